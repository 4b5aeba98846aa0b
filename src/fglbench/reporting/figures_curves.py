"""Training curves: score per round and per second of training."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fglbench.evaluation.quantities import quantity
from fglbench.records.presentation import FigureSpec
from fglbench.records.study import PROBLEM, StudyRecord
from fglbench.reporting.figures_base import (
    LOOK,
    SERIES,
    legend,
    panels_by,
    score_label,
    series_name,
    series_styles,
    whole_numbers,
    without_data,
)
from fglbench.reporting.figures_rows import complete_rows
from fglbench.reporting.frames import groups

GRID_POINTS = 200


def accuracy_per_round(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the score after each round (from 1): mean over seeds, with a band of one sample standard deviation.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no curve matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    return _curves(study, spec, _by_round, "Round")


def draw_rounds(
    panel: Axes, rows: pd.DataFrame, look: Mapping[Any, Any], study: StudyRecord, chosen: pd.DataFrame
) -> None:
    """Draw the test curves per round of one problem, one line for each label and backbone.

    Args:
        panel: the axes.
        rows: rows of `study.curves` of one dataset, scheme and number of clients.
        look: styles by (label, backbone).
        study: the collected records.
        chosen: all rows of the figure, which decide whether names include the backbone.
    """
    metric = study.metric_on(rows["dataset"].iloc[0])
    scale = quantity(metric).scale
    for (label, backbone), part in groups(rows, SERIES, study.order):
        x, values = _by_round(part, "test_score")
        _band(panel, x, values * scale, series_name((label, backbone), chosen), look[label, backbone])
    whole_numbers(panel.xaxis)
    panel.set_xlabel("Round")
    panel.set_ylabel(score_label(metric))


def accuracy_per_second(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the score over seconds of training, without start-up and evaluation.

    Seeds are interpolated onto common times. Runs on different kinds of device are separate lines.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no curve matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    return _curves(study, spec, _by_second, "Training time (s)")


def _curves(study: StudyRecord, spec: FigureSpec, bring_together: Any, x_label: str) -> Figure:
    split, metric = spec.split, spec.metric
    score, scale = f"{split}_score", quantity(metric).scale
    chosen = complete_rows(study, study.curves, spec, needed=score)
    if chosen.empty:
        return without_data(spec, "curve")
    chosen = chosen.merge(_devices(study.runs), on=["cell", "seed"], how="left").fillna({"device": ""})
    several_devices = bring_together is _by_second and chosen["device"].nunique() > 1
    look = series_styles(study)
    fields = [*SERIES, "device"] if several_devices else SERIES
    with rc_context(LOOK):
        figure, parts = panels_by(list(PROBLEM), chosen, study, spec)
        for panel, _, part in parts:
            for (label, backbone, *device), rows in groups(part, fields, study.order):
                name = series_name((label, backbone), chosen) + (f" [{device[0]}]" if device else "")
                x, values = bring_together(rows, score)
                _band(panel, x, values * scale, name, look[label, backbone])
                if bring_together is _by_round:
                    _mark_phases(panel, rows, x, values * scale, look[label, backbone])
            panel.set_xlabel(x_label)
            if bring_together is _by_round:
                whole_numbers(panel.xaxis)
            panel.set_ylabel(score_label(metric, split))
        legend(figure, figure.axes)
    return figure


def _devices(runs: pd.DataFrame) -> pd.DataFrame:
    if "device" not in runs:
        return pd.DataFrame(columns=["cell", "seed", "device"])
    named = runs[runs["device"].fillna("") != ""]
    return named[["cell", "seed", "device"]].drop_duplicates(["cell", "seed"])


def _by_round(rows: pd.DataFrame, score: str) -> tuple[np.ndarray, np.ndarray]:
    """Return rounds [R] from 1 and values [seeds, R], for the rounds that every seed has."""
    table = rows.pivot_table(index="seed", columns="round", values=score).dropna(axis="columns")
    return table.columns.to_numpy(dtype=float) + 1, table.to_numpy(dtype=float)


def _mark_phases(panel: Axes, rows: pd.DataFrame, x: np.ndarray, values: np.ndarray, style: Any) -> None:
    """Mark the start of each phase after the first, at the median over seeds of the phase's first round."""
    if "phase" not in rows or rows["phase"].isna().all():
        return
    first = rows.groupby(["phase", "seed"])["round"].min().groupby("phase").median().sort_values() + 1
    for start in first.iloc[1:].round():
        if start in x:
            panel.plot(start, values.mean(axis=0)[x == start], marker="o", markersize=4, color=style.colour)


def _by_second(rows: pd.DataFrame, score: str) -> tuple[np.ndarray, np.ndarray]:
    """Return times [G] that every seed covers, and values [seeds, G] interpolated linearly at these times."""
    seeds = [part.sort_values("train_seconds") for _, part in rows.groupby("seed")]
    start = max(float(part["train_seconds"].iloc[0]) for part in seeds)
    end = min(float(part["train_seconds"].iloc[-1]) for part in seeds)
    if end < start:
        return np.empty(0), np.empty((len(seeds), 0))
    times = np.linspace(start, end, GRID_POINTS if end > start else 1)
    return times, np.stack([np.interp(times, part["train_seconds"], part[score]) for part in seeds])


def _band(panel: Axes, x: np.ndarray, values: np.ndarray, name: str, style: Any) -> None:
    if not x.size:
        return
    mean = values.mean(axis=0)
    marker = style.marker if len(x) == 1 else ""
    panel.plot(x, mean, color=style.colour, linestyle=style.dash, marker=marker, label=name)
    if len(values) > 1:
        std = values.std(axis=0, ddof=1)
        panel.fill_between(x, mean - std, mean + std, color=style.colour, alpha=0.16, linewidth=0)
