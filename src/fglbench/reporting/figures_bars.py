"""Bar charts of the methods: scores, and running time of local training and the server."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from fglbench.evaluation.statistics import summarise
from fglbench.records.study import FIELDS, PROBLEM, StudyRecord
from fglbench.reporting.figures_base import (
    FONT,
    LOOK,
    PANEL_WIDTH,
    for_every_seed,
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
from fglbench.reporting.figures_fit import wrapped
from fglbench.reporting.frames import complete_only, distinct, select

_CLIENTS, _SERVER = "#4477aa", "#ee6677"
_SERIES = ["label", "backbone"]


def seconds_by_method(study: StudyRecord, spec: Mapping[str, Any]) -> Figure:
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
    chosen = complete_only(study, select(study.runs, spec.get("where"), f"figure '{spec['name']}'"))
    seconds = for_every_seed(_seconds(chosen), chosen)
    if seconds.empty:
        return nothing(spec, "running time")
    devices = seconds["device"].nunique() > 1
    fields = [*PROBLEM, "device"]
    with rc_context(LOOK):
        parts = list(groups(seconds, fields, study.order))
        names = {series: _name(series, seconds) for series in distinct(seconds, _SERIES, study.order)}
        figure, axes = panels([key for key, _ in parts], title_of(spec), height=_height(parts, names))
        for panel, (key, part) in zip(axes, parts, strict=True):
            bars = list(groups(part, _SERIES, study.order))
            for row, (_, runs) in enumerate(bars):
                total = summarise(runs["train_seconds"].tolist())
                server = float(runs["server_seconds"].mean())
                clients = total.mean - server
                panel.barh(row, clients, color=_CLIENTS, label="local training")
                panel.barh(row, server, left=clients, xerr=total.std, color=_SERVER, capsize=2, label="server")
            panel.set_yticks(range(len(bars)), [names[series] for series, _ in bars])
            panel.invert_yaxis()
            panel.grid(axis="y", visible=False)
            title = panel_title(list(PROBLEM), key[: len(PROBLEM)])
            panel.set_title(f"{title}\n{key[-1]}" if devices else title)
            panel.set_xlabel("Seconds over all rounds")
        legend(figure, axes)
    return figure


def accuracy_by_method(study: StudyRecord, spec: Mapping[str, Any]) -> Figure:
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
        return nothing(spec, "score")
    look = series_styles(study)
    with rc_context(LOOK):
        parts = list(groups(chosen, list(PROBLEM), study.order))
        names = {series: _name(series, chosen) for series in distinct(chosen, ["label", "backbone"], study.order)}
        figure, axes = panels([key for key, _ in parts], title_of(spec), height=_height(parts, names))
        for panel, (key, part) in zip(axes, parts, strict=True):
            bars = [(own, summarise(rows["value"].tolist())) for own, rows in groups(part, _SERIES, study.order)]
            for row, ((label, backbone), score) in enumerate(bars):
                panel.barh(row, score.mean, xerr=score.std, color=look[label, backbone].colour, capsize=2)
            lowest = min(score.mean - (score.std or 0.0) for _, score in bars)
            highest = max(score.mean + (score.std or 0.0) for _, score in bars)
            room = 0.5 * (highest - lowest) or 0.1 * highest
            panel.set_xlim(max(0.0, lowest - room), highest + 0.2 * room)
            panel.set_yticks(range(len(bars)), [names[series] for series, _ in bars])
            panel.invert_yaxis()
            panel.grid(axis="y", visible=False)
            panel.set_title(panel_title(list(PROBLEM), key))
            panel.set_xlabel(score_label(study, spec))
    return figure


def _height(parts: list[tuple[tuple[Any, ...], pd.DataFrame]], names: Mapping[Any, str]) -> float:
    """Return the height of a panel in inches, enough for the panel with the most bars."""
    tallest = max(len(part[_SERIES].drop_duplicates()) for _, part in parts)
    bar = 0.28 + 0.17 * max(name.count("\n") for name in names.values())
    return max(2.0, bar * tallest + 1.0)


def _name(series: tuple[Any, ...], seconds: pd.DataFrame) -> str:
    """Return the name of a bar, wrapped to 0.45 of the panel width."""
    return wrapped(series_name((series[0], series[1]), seconds).strip(), 0.45 * PANEL_WIDTH, FONT)


def _seconds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run that has both times."""
    keys = [*FIELDS, "seed", "device"]
    times = runs[runs["metric"].isin(["train_seconds", "server_seconds"])]
    if times.empty:
        return times
    wide = times.pivot_table(index=keys, columns="metric", values="value", aggfunc="first").reset_index()
    return wide.dropna() if {"train_seconds", "server_seconds"} <= set(wide.columns) else wide[:0]
