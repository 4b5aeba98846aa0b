"""Which client has how many nodes of which class."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fglbench.reporting.figures_base import LOOK, groups, nothing, panel_title, panels, title_of
from fglbench.reporting.records import PROBLEM, Study, select

MOST_NUMBERS = 100


def label_heatmap(study: Study, spec: Mapping[str, Any]) -> Figure:
    """Nodes per client and class, one panel per dataset, scheme and number of clients, for the first seed."""
    chosen = select(study.partitions, spec.get("where"), f"figure '{spec['name']}'")
    if chosen.empty:
        return nothing(spec, "partition")
    with rc_context(LOOK | {"axes.grid": False, "axes.spines.top": True, "axes.spines.right": True}):
        parts = list(groups(chosen, list(PROBLEM), study.order))
        tallest = max(part["client"].nunique() for _, part in parts)
        figure, axes = panels(
            [key for key, _ in parts], title_of(spec), height=min(5.0, max(2.7, 0.22 * tallest + 1.2))
        )
        for panel, (key, part) in zip(axes, parts, strict=True):
            seed = int(part["seed"].min())
            counts = _counts(part[part["seed"] == seed].sort_values("client")["classes"].tolist())
            image = panel.imshow(counts, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
            if counts.size <= MOST_NUMBERS:
                _write_numbers(panel, counts)
            panel.set_title(f"{panel_title(list(PROBLEM), key)} (seed {seed})", fontsize=9.5)
            panel.set_xlabel("Class")
            panel.set_ylabel("Client")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
            panel.yaxis.set_major_locator(MaxNLocator(integer=True))
            bar = figure.colorbar(image, ax=panel, fraction=0.05, pad=0.03)
            bar.set_label("Nodes", fontsize=9)
            bar.ax.tick_params(labelsize=8)
    return figure


def _counts(histograms: list[Any]) -> np.ndarray:
    """[clients, classes] int64; clients whose highest classes are missing get zeros."""
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
