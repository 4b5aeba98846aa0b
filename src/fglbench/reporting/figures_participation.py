"""Final scores against the fraction of clients that takes part in a round."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from fglbench.errors import ConfigError
from fglbench.evaluation.statistics import summarise
from fglbench.reporting.figures_base import (
    LOOK,
    error_line,
    groups,
    legend,
    nothing,
    panel_title,
    panels,
    score_label,
    scored,
    series_name,
    series_styles,
    title_of,
)
from fglbench.reporting.records import PROBLEM, Study


def accuracy_by_participation(study: Study, spec: Mapping[str, Any]) -> Figure:
    """The score against the fraction of clients, one panel per dataset, scheme and number of clients, a line for every
    method and backbone, called by its label at the largest fraction; error bars of one sample standard deviation.

    Raises:
        ConfigError: a method has two labels at one fraction.
    """
    chosen = scored(study, spec)
    if chosen.empty or "participation" not in chosen:
        return nothing(spec, "score")
    look = series_styles(study)
    with rc_context(LOOK):
        parts = list(groups(chosen, list(PROBLEM), study.order))
        figure, axes = panels([key for key, _ in parts], title_of(spec))
        for panel, (key, part) in zip(axes, parts, strict=True):
            for (method, backbone), rows in groups(part, ["method", "backbone"], study.order):
                label = _label(rows, method, spec)
                fractions = sorted(set(rows["participation"].tolist()))
                scores = [summarise(rows.loc[rows["participation"] == f, "value"].tolist()) for f in fractions]
                points = [(100 * fraction, score) for fraction, score in zip(fractions, scores, strict=True)]
                error_line(panel, points, look[label, backbone], series_name((label, backbone), chosen))
            panel.set_title(panel_title(list(PROBLEM), key))
            panel.set_xlabel("Clients in a round (%)")
            panel.set_ylabel(score_label(spec))
        legend(figure, axes)
    return figure


def _label(rows: pd.DataFrame, method: str, spec: Mapping[str, Any]) -> str:
    """What a method is called; its settings must not differ at one fraction."""
    names = rows.groupby("participation")["label"].unique()
    for fraction, found in names.items():
        if len(found) > 1:
            raise ConfigError(
                [
                    f"figure '{spec['name']}': '{method}' has several labels at participation {fraction}: "
                    f"{', '.join(sorted(found))}. Choose one of them under 'where'."
                ]
            )
    return str(names.iloc[-1][0])
