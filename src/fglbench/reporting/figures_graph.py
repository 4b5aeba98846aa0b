"""Drawings of a whole graph and of its clients' graphs."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fglbench.records.presentation import FigureSpec
from fglbench.records.study import PROBLEM, StudyRecord
from fglbench.reporting.figures_base import LOOK, panel_title, without_data
from fglbench.reporting.figures_rows import partition_rows
from fglbench.reporting.frames import groups
from fglbench.reporting.palette import COLOURS

UNLABELLED, ANCHOR = "#b8bec8", "#111111"
_CLASSES = (*COLOURS[:-1], "#7A5195", "#A0A83B", "#5D6D7E")
_PANEL = 2.4  # inches


def graph(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the whole graph and the clients' graphs for every dataset, scheme and number of clients, for the first seed.

    Nodes are coloured by class. Anchors (nodes that several clients hold) are larger and ringed.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the drawings if no partition matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen = partition_rows(study.drawings, spec)
    if chosen.empty:
        return without_data(spec, "graph")
    with rc_context(LOOK):
        parts = list(groups(chosen, list(PROBLEM), study.order))
        wide = max(2 + math.ceil((len(part) - 1) / 2) for _, part in parts)
        figure = Figure(figsize=(_PANEL * wide, 2 * _PANEL * len(parts) + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(spec.heading, fontsize=12, fontweight="bold")
        bands = np.atleast_1d(np.array(figure.subfigures(len(parts), 1)))
        for band, (key, part) in zip(bands, parts, strict=True):
            _draw_partition(band, part.sort_values("client"), panel_title(list(PROBLEM), key))
        classes = sorted({int(label) for labels in chosen["label"] for label in np.unique(labels)})
        figure.legend(handles=_handles(classes, chosen), loc="outside lower center", ncols=8, frameon=False)
    return figure


def _draw_partition(band: Any, part: pd.DataFrame, title: str) -> None:
    whole, *clients = part.to_dict("records")
    columns = math.ceil(len(clients) / 2)
    grid = band.add_gridspec(2, 2 + columns)
    _draw(band.add_subplot(grid[:, :2]), whole, f"{title}: the whole graph")
    for position, client in enumerate(clients):
        row, column = divmod(position, columns)
        _draw(band.add_subplot(grid[row, 2 + column]), client, f"Client {client['client'] + 1}")


def _draw(panel: Axes, row: Mapping[Any, Any], title: str) -> None:
    coordinates = np.stack([row["x"], row["y"]], axis=1).astype(float)
    ends = np.stack([row["source"], row["target"]], axis=1)
    lines = LineCollection(list(coordinates[ends]), colors="#9aa3af", linewidths=0.3, alpha=0.6, zorder=1)
    panel.add_collection(lines)
    colours, anchor = np.array([_colour(int(label)) for label in row["label"]]), np.asarray(row["anchor"], dtype=bool)
    area = float(np.clip(4000 / max(1, len(coordinates)), 1.5, 24.0))
    (x, y), (anchor_x, anchor_y) = coordinates[~anchor].T, coordinates[anchor].T
    panel.scatter(x, y, s=area, c=colours[~anchor], linewidths=0, zorder=2)
    ring = 0.25 + area / 40
    panel.scatter(anchor_x, anchor_y, s=2 * area, c=colours[anchor], edgecolors=ANCHOR, linewidths=ring, zorder=3)
    panel.set_title(title, fontsize=9.5)
    panel.set_aspect("equal")
    panel.axis("off")


def _colour(label: int) -> str:
    return UNLABELLED if label < 0 else _CLASSES[label % len(_CLASSES)]


def _handles(classes: list[int], chosen: pd.DataFrame) -> list[Line2D]:
    """Return the legend entries: one point per class, counted from 1, and one for anchors if there are any."""

    def point(colour: str, name: str, **look: Any) -> Line2D:
        return Line2D([], [], linestyle="", marker="o", color=colour, label=name, **look)

    handles = [point(_colour(label), f"class {label + 1}" if label >= 0 else "no label") for label in classes]
    if any(np.any(anchor) for anchor in chosen["anchor"]):
        handles.append(point("#ffffff", "anchor", markeredgecolor=ANCHOR))
    return handles
