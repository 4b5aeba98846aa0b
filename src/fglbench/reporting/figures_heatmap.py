"""Heat maps of the clients' label distributions and of the aggregation weights between clients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fglbench.records.presentation import FigureSpec
from fglbench.records.study import PROBLEM, StudyRecord
from fglbench.reporting.figures_base import LOOK, panel_title, panels, panels_by, whole_numbers, without_data
from fglbench.reporting.figures_rows import complete_rows, partition_rows
from fglbench.reporting.frames import groups

MOST_NUMBERS = 100
MAP_LOOK = LOOK | {"axes.grid": False, "axes.spines.top": True, "axes.spines.right": True}


def label_heatmap(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the nodes per client and class of the first seed, one panel per dataset, scheme and number of clients.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no partition matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen = partition_rows(study.partitions, spec)
    if chosen.empty:
        return without_data(spec, "partition")
    with rc_context(MAP_LOOK):
        height = min(5.0, max(2.7, 0.22 * _most_clients(chosen) + 1.2))
        figure, parts = panels_by(list(PROBLEM), chosen, study, spec, height=height)
        for panel, key, part in parts:
            draw_labels(figure, panel, part, panel_title(list(PROBLEM), key))
    return figure


def draw_labels(figure: Figure, panel: Axes, part: pd.DataFrame, title: str) -> None:
    """Draw the heat map of one partition, for its first seed.

    Args:
        figure: the figure, for the colour bar.
        panel: the axes.
        part: rows of `study.partitions` of one dataset, scheme and number of clients.
        title: title of the panel, without the seed.
    """
    seed = int(part["seed"].min())
    counts = _counts(part[part["seed"] == seed].sort_values("client")["classes"].tolist())
    _heatmap(figure, panel, counts, f"{title} (seed {seed})", "Nodes")
    if counts.size <= MOST_NUMBERS:
        _write_numbers(panel, counts)
    panel.set_xlabel("Class")
    panel.set_ylabel("Client")


def aggregation_weights(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the label heat map of every problem, then the mixing matrices of its cells, for the first seed.

    A problem is one dataset, scheme and number of clients. Each complete cell that recorded a mixing matrix has one
    panel, with the weights of the round that is read.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no mixing matrix matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen, partitions = complete_rows(study, study.mixing, spec), partition_rows(study.partitions, spec)
    if chosen.empty:
        return without_data(spec, "aggregation weight")
    labels = dict(groups(partitions, list(PROBLEM), study.order)) if not partitions.empty else {}
    drawn: list[tuple[tuple[Any, ...], Callable[[Figure, Axes, pd.DataFrame, str], None], pd.DataFrame, str]] = []
    for key, cells in groups(chosen, list(PROBLEM), study.order):
        title = panel_title(list(PROBLEM), key)
        drawn += [(key, draw_labels, labels[key], title)] if key in labels else []
        for (backbone, label), part in groups(cells, ["backbone", "label"], study.order):
            drawn.append((key, _draw_weights, part, f"{title}\n{label} ({backbone})"))
    with rc_context(MAP_LOOK):
        height = min(5.0, max(3.0, 0.2 * _most_clients(chosen) + 1.4))
        figure, axes = panels([key for key, *_ in drawn], spec.heading, height=height)
        for panel, (_, draw, part, title) in zip(axes, drawn, strict=True):
            draw(figure, panel, part, title)
    return figure


def _draw_weights(figure: Figure, panel: Axes, part: pd.DataFrame, title: str) -> None:
    """Draw the heat map of one cell's mixing matrix, for its first seed."""
    seed = int(part["seed"].min())
    first = part[part["seed"] == seed].sort_values("client")
    title = f"{title}, seed {seed}, round {int(first['round'].iloc[0]) + 1}"
    _heatmap(figure, panel, np.stack(first["weights"].tolist()), title, "Weight")
    panel.set_xlabel("Sender")
    panel.set_ylabel("Receiver")


def _heatmap(figure: Figure, panel: Axes, values: np.ndarray, title: str, unit: str) -> None:
    image = panel.imshow(values, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
    panel.set_title(title, fontsize=9.5)
    whole_numbers(panel.xaxis)
    whole_numbers(panel.yaxis)
    bar = figure.colorbar(image, ax=panel, fraction=0.05, pad=0.03)
    bar.set_label(unit, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    if np.issubdtype(values.dtype, np.integer):
        whole_numbers(bar.ax.yaxis)


def _most_clients(frame: pd.DataFrame) -> int:
    """Return the number of clients of the problem that has the most."""
    return int(frame.groupby(list(PROBLEM))["client"].nunique().max())


def _counts(histograms: list[Any]) -> np.ndarray:
    """Return node counts [clients, classes] int64; histograms that end early are filled with zeros."""
    classes = max((len(histogram) for histogram in histograms), default=0)
    counts = np.zeros((len(histograms), max(1, classes)), dtype=np.int64)
    for row, histogram in enumerate(histograms):
        counts[row, : len(histogram)] = histogram
    return counts


def _write_numbers(panel: Any, counts: np.ndarray) -> None:
    half = counts.max() / 2
    for (row, column), count in np.ndenumerate(counts):
        colour = "white" if count > half else "#374151"
        panel.text(column, row, str(count), ha="center", va="center", fontsize=7.5, color=colour)
