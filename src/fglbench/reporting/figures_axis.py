"""Final scores against the number of clients, the local epochs or the fraction of participating clients."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from fglbench.errors import ConfigError
from fglbench.evaluation.statistics import summarise
from fglbench.records.study import PROBLEM, StudyRecord
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


def accuracy_by_clients(study: StudyRecord, spec: Mapping[str, Any]) -> Figure:
    """Draw the score against the number of clients, one panel per dataset and scheme.

    Error bars show one sample standard deviation over seeds. With `gains`, the figure shows differences between pairs
    of labels, seed by seed.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no score matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen, gains = scored(study, spec), spec.get("gains") or {}
    return _along("clients", "Clients", ["dataset", "scheme"], _gained(chosen, gains) if gains else chosen, study, spec)


def _gained(chosen: pd.DataFrame, gains: Mapping[str, str]) -> pd.DataFrame:
    """Subtract the baseline of each label in `gains` from its values, at the same place and seed."""
    if chosen.empty:
        return chosen
    keys = [*PROBLEM, "backbone", "seed"]
    found = []
    for label, base in gains.items():
        own, other = (chosen[chosen["label"] == name].set_index(keys) for name in (label, base))
        found.append(own.assign(value=own["value"] - other["value"]).dropna(subset=["value"]).reset_index())
    return pd.concat(found)


def accuracy_by_local_epochs(study: StudyRecord, spec: Mapping[str, Any]) -> Figure:
    """Draw the score against the local epochs of a round, one panel per dataset, scheme and number of clients.

    Each method and backbone is one line; its name is its shortest label. Error bars show one sample standard deviation.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no score matches.

    Raises:
        ConfigError: a method has two labels at one number of epochs, or `where` names an unknown column.
    """
    chosen = scored(study, spec)
    if chosen.empty or "local_epochs" not in chosen:
        return nothing(spec, "score")
    lines = groups(chosen, [*PROBLEM, "method", "backbone"], study.order)
    named = [(rows, _labels(rows, "local_epochs", method, spec)) for (*_, method, _), rows in lines]
    chosen = pd.concat([rows.assign(label=min(labels, key=len)) for rows, labels in named])
    return _along("local_epochs", "Local epochs", list(PROBLEM), chosen, study, spec)


def accuracy_by_participation(study: StudyRecord, spec: Mapping[str, Any]) -> Figure:
    """Draw the score against the fraction of clients in a round, one panel per dataset, scheme and number of clients.

    Each method and backbone is one line; its name is its label at the largest fraction. Error bars show one sample
    standard deviation.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no score matches.

    Raises:
        ConfigError: a method has two labels at one fraction, or `where` names an unknown column.
    """
    chosen = scored(study, spec)
    if chosen.empty or "participation" not in chosen:
        return nothing(spec, "score")
    lines = groups(chosen, [*PROBLEM, "method", "backbone"], study.order)
    named = [(rows, _labels(rows, "participation", method, spec)) for (*_, method, _), rows in lines]
    chosen = pd.concat([rows.assign(label=labels[-1]) for rows, labels in named])
    chosen["percent"] = 100 * chosen["participation"]
    return _along("percent", "Clients in a round (%)", list(PROBLEM), chosen, study, spec)


def _labels(rows: pd.DataFrame, axis: str, method: str, spec: Mapping[str, Any]) -> list[str]:
    """Return the label of a method at each value of the axis, in ascending order; raise if a value has several."""
    names = rows.groupby(axis)["label"].unique()
    for value, found in names.items():
        if len(found) > 1:
            raise ConfigError(
                [
                    f"figure '{spec['name']}': '{method}' has several labels at {axis} {value}: "
                    f"{', '.join(sorted(found))}. Choose one of them under 'where'."
                ]
            )
    return [str(found[0]) for found in names]


def _along(
    axis: str, name: str, fields: list[str], chosen: pd.DataFrame, study: StudyRecord, spec: Mapping[str, Any]
) -> Figure:
    """Draw the scores against the column `axis`: one panel per combination of `fields`, one line per series."""
    if chosen.empty:
        return nothing(spec, "score")
    look = series_styles(study)
    with rc_context(LOOK):
        parts = list(groups(chosen, fields, study.order))
        figure, axes = panels([key for key, _ in parts], title_of(spec))
        for panel, (key, part) in zip(axes, parts, strict=True):
            for (label, backbone), rows in groups(part, ["label", "backbone"], study.order):
                places = sorted(set(rows[axis].tolist()))
                points = [(x, summarise(rows.loc[rows[axis] == x, "value"].tolist())) for x in places]
                error_line(panel, points, look[label, backbone], series_name((label, backbone), chosen))
            panel.set_xticks(sorted(set(chosen[axis].tolist())))
            panel.set_title(panel_title(fields, key))
            panel.set_xlabel(name)
            panel.set_ylabel(("Gain: " if spec.get("gains") else "") + score_label(study, spec))
        legend(figure, axes)
    return figure
