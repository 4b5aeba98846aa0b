"""Bar charts of the methods: scores, and running time of local training and the server."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fglbench.evaluation.statistics import summarise
from fglbench.records.presentation import FigureSpec
from fglbench.records.study import FIELDS, PROBLEM, StudyRecord
from fglbench.reporting.figures_base import (
    FONT,
    LOOK,
    PANEL_WIDTH,
    SERIES,
    legend,
    panel_title,
    panels_by,
    score_label,
    series_name,
    series_styles,
    without_data,
)
from fglbench.reporting.figures_fit import wrapped
from fglbench.reporting.figures_rows import complete_rows, for_every_seed, scored
from fglbench.reporting.frames import distinct, groups

_CLIENTS, _SERVER = "#4477aa", "#ee6677"


def seconds_by_method(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw stacked bars of the seconds of local training and of the server over all rounds.

    There is one panel per dataset, scheme, number of clients and device. Error bars show one sample standard deviation
    of the sum.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no running time matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen = complete_rows(study, study.runs, spec)
    seconds = for_every_seed(_seconds(chosen), chosen)
    if seconds.empty:
        return without_data(spec, "running time")
    devices = seconds["device"].nunique() > 1
    fields = [*PROBLEM, "device"]
    with rc_context(LOOK):
        names = _names(seconds, study)
        figure, parts = panels_by(fields, seconds, study, spec, height=_height(seconds, fields, names))
        for panel, key, part in parts:
            bars = list(groups(part, SERIES, study.order))
            for row, (_, runs) in enumerate(bars):
                total = summarise(runs["train_seconds"].tolist())
                server = float(runs["server_seconds"].mean())
                clients = total.mean - server
                panel.barh(row, clients, color=_CLIENTS, label="local training")
                panel.barh(row, server, left=clients, xerr=total.std, color=_SERVER, capsize=2, label="server")
            _name_rows(panel, [names[series] for series, _ in bars])
            title = panel_title(list(PROBLEM), key[: len(PROBLEM)])
            panel.set_title(f"{title}\n{key[-1]}" if devices else title)
            panel.set_xlabel("Seconds over all rounds")
        legend(figure, figure.axes)
    return figure


def accuracy_by_method(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the score of each method, one panel per dataset, scheme and number of clients.

    Error bars show one sample standard deviation over seeds. The score axis starts just below the lowest score.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no score matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen = scored(study, spec)
    if chosen.empty:
        return without_data(spec, "score")
    look = series_styles(study)
    with rc_context(LOOK):
        names = _names(chosen, study)
        fields = list(PROBLEM)
        figure, parts = panels_by(fields, chosen, study, spec, height=_height(chosen, fields, names))
        for panel, _, part in parts:
            bars = [(series, summarise(rows["value"].tolist())) for series, rows in groups(part, SERIES, study.order)]
            for row, ((label, backbone), score) in enumerate(bars):
                panel.barh(row, score.mean, xerr=score.std, color=look[label, backbone].colour, capsize=2)
            lowest = min(score.mean - (score.std or 0.0) for _, score in bars)
            highest = max(score.mean + (score.std or 0.0) for _, score in bars)
            room = 0.5 * (highest - lowest) or 0.1 * highest
            panel.set_xlim(max(0.0, lowest - room), highest + 0.2 * room)
            _name_rows(panel, [names[series] for series, _ in bars])
            panel.set_xlabel(score_label(spec.metric, spec.split, spec.reading))
    return figure


def _height(frame: pd.DataFrame, fields: list[str], names: Mapping[Any, str]) -> float:
    """Return the height of a panel in inches, enough for the panel with the most bars."""
    tallest = int(frame.drop_duplicates([*fields, *SERIES]).groupby(fields).size().max())
    bar = 0.28 + 0.17 * max(name.count("\n") for name in names.values())
    return max(2.0, bar * tallest + 1.0)


def _names(frame: pd.DataFrame, study: StudyRecord) -> dict[tuple[Any, ...], str]:
    """Return the names of the bars by series, wrapped to 0.45 of the panel width."""
    return {
        (label, backbone): wrapped(series_name((label, backbone), frame).strip(), 0.45 * PANEL_WIDTH, FONT)
        for label, backbone in distinct(frame, SERIES, study.order)
    }


def _name_rows(panel: Axes, names: list[str]) -> None:
    """Write the names beside the bars, from top to bottom."""
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.grid(axis="y", visible=False)


def _seconds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run that has both times."""
    keys = [*FIELDS, "seed", "device"]
    times = runs[runs["metric"].isin(["train_seconds", "server_seconds"])]
    if times.empty:
        return times
    wide = times.pivot_table(index=keys, columns="metric", values="value", aggfunc="first").reset_index()
    return wide.dropna() if {"train_seconds", "server_seconds"} <= set(wide.columns) else wide[:0]
