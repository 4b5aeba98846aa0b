"""Shared parts of all figures: style, grid of panels, legend, series, and the note of an empty figure."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import MaxNLocator

from fglbench.evaluation.quantities import OF_RUNS, quantity
from fglbench.evaluation.statistics import Summary
from fglbench.records.presentation import FigureSpec
from fglbench.records.study import StudyRecord
from fglbench.reporting.figures_fit import LINE, width, wrapped
from fglbench.reporting.frames import distinct, groups, titled
from fglbench.reporting.palette import Style, styles

LOOK: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "legend.fontsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.edgecolor": "#6b7280",
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "pdf.fonttype": 42,
    "text.parse_math": False,  # users write the labels, so a dollar sign starts no formula
}
PANEL_WIDTH, PANEL_HEIGHT, MOST_COLUMNS = 3.6, 2.7, 4
FONT = FontProperties(family=LOOK["font.family"], size=LOOK["font.size"])
Series = tuple[str, str]
SERIES = ["label", "backbone"]


def panels(
    keys: list[tuple[Any, ...]], title: str, width: float = PANEL_WIDTH, height: float = PANEL_HEIGHT
) -> tuple[Figure, list[Axes]]:
    """Create a figure with one panel per key. Call it inside `rc_context(LOOK)`.

    If every dataset (the first entry of a key) has the same number of panels, from 2 to 4, each dataset is one row.

    Args:
        keys: keys of the panels, in order.
        title: title of the figure.
        width: of a panel, in inches.
        height: of a panel, in inches.

    Returns:
        The figure and its axes, one per key.
    """
    sizes = set(Counter(key[0] for key in keys).values())
    each = sizes.pop() if len(sizes) == 1 else 1
    columns = each if 1 < each <= MOST_COLUMNS else 2 if len(keys) == 4 else min(3, len(keys))
    rows = math.ceil(len(keys) / columns)
    # A single panel is wider so that its title and legend fit.
    figure = Figure(figsize=(max(width * columns, 5.2), height * rows + 0.9), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.07)  # type: ignore[union-attr, call-arg]
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in axes[len(keys) :]:
        spare.remove()
    return figure, axes[: len(keys)]


def panels_by(
    fields: list[str],
    frame: pd.DataFrame,
    study: StudyRecord,
    spec: FigureSpec,
    height: float = PANEL_HEIGHT,
) -> tuple[Figure, list[tuple[Axes, tuple[Any, ...], pd.DataFrame]]]:
    """Create a figure with one titled panel per combination of `fields`. Call it inside `rc_context(LOOK)`.

    Args:
        fields: column names, which begin with `dataset`.
        frame: all rows of the figure, at least one.
        study: the collected records.
        spec: the figure's entry in `study.json`.
        height: of a panel, in inches.

    Returns:
        The figure, and (axes, values of the fields, rows) of each panel in the study's order.
    """
    parts = list(groups(frame, fields, study.order))
    figure, axes = panels([key for key, _ in parts], spec.heading, height=height)
    for panel, (key, _) in zip(axes, parts, strict=True):
        panel.set_title(panel_title(fields, key))
    return figure, [(panel, key, part) for panel, (key, part) in zip(axes, parts, strict=True)]


def empty(title: str, note: str) -> Figure:
    """Create a figure that shows a note instead of data.

    Args:
        title: title of the figure.
        note: text in the centre.

    Returns:
        The figure.
    """
    with rc_context(LOOK):
        figure, (axes,) = panels([("",)], title)
        axes.axis("off")
        axes.text(0.5, 0.5, note, ha="center", va="center", wrap=True, transform=axes.transAxes, color="#6b7280")
    return figure


def without_data(spec: FigureSpec, what: str) -> Figure:
    """Create the figure for a filter that matches no record.

    Args:
        spec: the figure's entry in `study.json`.
        what: noun for the missing records, such as "score".

    Returns:
        A figure with a note that repeats the filter.
    """
    where = "; ".join(f"{name}: {value}" for name, value in spec.where.items())
    return empty(spec.heading, f"No {what} to draw{f' for {where}' if where else ''}.")


def series_styles(study: StudyRecord) -> dict[Series, Style]:
    """Return the style of every series, which is the same in all figures of a study.

    Args:
        study: the collected records.

    Returns:
        Styles by (label, backbone).
    """
    labels, backbones = ([value for (value,) in distinct(study.runs, [field], study.order)] for field in SERIES)
    return styles(labels, backbones)


def series_name(series: Series, chosen: pd.DataFrame) -> str:
    """Return the legend entry of a series.

    Args:
        series: (label, backbone).
        chosen: all rows of the figure.

    Returns:
        The label, with the backbone in brackets if the figure has several backbones.
    """
    name = f"{series[0]} ({series[1]})" if chosen["backbone"].nunique() > 1 else series[0]
    return f" {name}" if name.startswith("_") else name  # matplotlib's legend skips names with an underscore


def score_label(metric: str, split: str = "test", reading: str = "val") -> str:
    """Return the label of the score axis.

    Args:
        metric: score that is drawn.
        split: scored nodes.
        reading: round that is drawn.

    Returns:
        Split and metric with the unit, such as "Test accuracy (%)".
    """
    shown = quantity(metric)
    if metric in OF_RUNS:
        return shown.title.capitalize() + (f" ({shown.unit})" if shown.unit else "")
    notes = ", ".join(note for note in (shown.unit, "best on test" if reading == "test" else "") if note)
    nodes = split.replace("_", " ").capitalize()
    return f"{nodes} {shown.title}" + (f" ({notes})" if notes else "")


def error_line(panel: Axes, points: list[tuple[float, Summary]], style: Style, name: str) -> None:
    """Draw a line through means, with error bars of one sample standard deviation.

    Args:
        panel: the axes.
        points: (x, summary over seeds), in ascending order of x.
        style: colour, marker and dash of the line.
        name: legend entry.
    """
    panel.errorbar(
        [x for x, _ in points],
        [y.mean for _, y in points],
        yerr=[math.nan if y.std is None else y.std for _, y in points],
        color=style.colour,
        marker=style.marker,
        linestyle=style.dash,
        capsize=3,
        label=name,
    )


def panel_title(fields: list[str], key: tuple[Any, ...]) -> str:
    """Return the title of a panel.

    Args:
        fields: field names.
        key: one value per field.

    Returns:
        The values joined by commas, without empty ones.
    """
    return titled(fields, key)


def whole_numbers(axis: Axis) -> None:
    """Restrict the ticks of an axis to integers, even on a short axis.

    Args:
        axis: the axis to change.
    """
    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def legend(figure: Figure, axes: list[Axes]) -> None:
    """Add one legend below all panels, with each entry once, in as many columns as fit.

    The figure becomes taller by the legend's rows beyond two.

    Args:
        figure: the figure to change.
        axes: its panels.
    """
    entries: dict[str, Any] = {}
    for panel in axes:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, handle)
    if not entries:
        return
    size = LOOK["legend.fontsize"]
    font = FontProperties(family=LOOK["font.family"], size=size)
    handle_width = 5 * size / 72  # with the gaps of the handle, in inches
    room = figure.get_figwidth() - 0.3
    names = [wrapped(name, room - handle_width, font) for name in entries]
    columns = next(
        columns
        for columns in range(len(names), 0, -1)
        if columns == 1 or sum(width(part, font) + handle_width for part in _split(names, columns)) <= room
    )
    rows = max(sum(name.count("\n") + 1 for name in part) for part in _split(names, columns))
    figure.set_figheight(figure.get_figheight() + max(0, rows - 2) * (LINE + 0.3) * size / 72)
    figure.legend(entries.values(), names, loc="outside lower center", ncols=columns, frameon=False)


def _split(names: list[str], columns: int) -> list[list[str]]:
    """Split the names into columns as matplotlib does."""
    return [part.tolist() for part in np.array_split(names, columns)]
