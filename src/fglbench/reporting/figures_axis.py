"""Final scores against the number of clients, the local epochs or the fraction of participating clients."""

from collections.abc import Callable, Mapping

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from fglbench.errors import ConfigError
from fglbench.evaluation.statistics import summarise
from fglbench.records.presentation import FigureSpec
from fglbench.records.study import PROBLEM, StudyRecord
from fglbench.reporting.figures_base import (
    LOOK,
    SERIES,
    error_line,
    legend,
    panels_by,
    score_label,
    series_name,
    series_styles,
    without_data,
)
from fglbench.reporting.figures_rows import scored
from fglbench.reporting.frames import groups


def accuracy_by_clients(study: StudyRecord, spec: FigureSpec) -> Figure:
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
    chosen, gains = scored(study, spec), spec.gains
    return _along("clients", "Clients", ["dataset", "scheme"], _gained(chosen, gains) if gains else chosen, study, spec)


def _gained(chosen: pd.DataFrame, gains: Mapping[str, str]) -> pd.DataFrame:
    """Subtract the baseline of each label in `gains` from its values, for the same partition, backbone and seed."""
    if chosen.empty:
        return chosen
    keys = [*PROBLEM, "backbone", "seed"]
    parts = []
    for label, base in gains.items():
        scores, baseline = (chosen[chosen["label"] == name].set_index(keys) for name in (label, base))
        differences = scores.assign(value=scores["value"] - baseline["value"])
        parts.append(differences.dropna(subset=["value"]).reset_index())
    return pd.concat(parts)


def accuracy_by_local_epochs(study: StudyRecord, spec: FigureSpec) -> Figure:
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
        return without_data(spec, "score")
    chosen = _relabelled(chosen, "local_epochs", lambda labels: min(labels, key=len), study, spec)
    return _along("local_epochs", "Local epochs", list(PROBLEM), chosen, study, spec)


def accuracy_by_participation(study: StudyRecord, spec: FigureSpec) -> Figure:
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
        return without_data(spec, "score")
    chosen = _relabelled(chosen, "participation", lambda labels: labels[-1], study, spec)
    chosen["percent"] = 100 * chosen["participation"]
    return _along("percent", "Clients in a round (%)", list(PROBLEM), chosen, study, spec)


def _relabelled(
    chosen: pd.DataFrame, axis: str, choose: Callable[[list[str]], str], study: StudyRecord, spec: FigureSpec
) -> pd.DataFrame:
    """Give each method and backbone one label, which `choose` selects from its labels in ascending order of the axis.

    Raises:
        ConfigError: a method has several labels at one value of the axis.
    """
    parts = []
    for (*_, method, _), rows in groups(chosen, [*PROBLEM, "method", "backbone"], study.order):
        by_value = rows.groupby(axis)["label"].unique()
        for value, labels in by_value.items():
            if len(labels) > 1:
                raise ConfigError(
                    [
                        f"figure '{spec.name}': '{method}' has several labels at {axis} {value}: "
                        f"{', '.join(sorted(labels))}. Choose one of them under 'where'."
                    ]
                )
        parts.append(rows.assign(label=choose([str(labels[0]) for labels in by_value])))
    return pd.concat(parts)


def _along(
    axis: str, name: str, fields: list[str], chosen: pd.DataFrame, study: StudyRecord, spec: FigureSpec
) -> Figure:
    """Draw the scores against the column `axis`: one panel per combination of `fields`, one line per series."""
    if chosen.empty:
        return without_data(spec, "score")
    look = series_styles(study)
    with rc_context(LOOK):
        figure, parts = panels_by(fields, chosen, study, spec)
        for panel, _, part in parts:
            for (label, backbone), rows in groups(part, SERIES, study.order):
                positions = sorted(set(rows[axis].tolist()))
                points = [(x, summarise(rows.loc[rows[axis] == x, "value"].tolist())) for x in positions]
                error_line(panel, points, look[label, backbone], series_name((label, backbone), chosen))
            panel.set_xticks(sorted(set(chosen[axis].tolist())))
            panel.set_xlabel(name)
            panel.set_ylabel(("Gain: " if spec.gains else "") + score_label(spec.metric, spec.split, spec.reading))
        legend(figure, figure.axes)
    return figure
