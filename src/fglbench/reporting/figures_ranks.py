"""Average ranks of the methods over datasets; bars join methods that do not differ significantly."""

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fglbench.evaluation.quantities import quantity
from fglbench.evaluation.statistics import ranks_over_datasets
from fglbench.records.presentation import FigureSpec
from fglbench.records.study import PROBLEM, StudyRecord
from fglbench.reporting.figures_base import (
    FONT,
    LOOK,
    SERIES,
    Series,
    empty,
    panels,
    series_name,
    series_styles,
    without_data,
)
from fglbench.reporting.figures_fit import wrapped
from fglbench.reporting.figures_rows import scored
from fglbench.reporting.frames import distinct, select
from fglbench.reporting.palette import Style

_WIDTH = 7.2  # width of the panel, in inches


def average_ranks(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw average ranks on one axis, best at the left, with Nemenyi's critical difference.

    The figure follows Demsar, JMLR 7, 2006, figure 1. A dataset counts once: the ranks of its schemes and numbers of
    clients are averaged first because they are not independent. Only problems in which every method has a complete cell
    are ranked. The figure lists methods without any complete cell as left out. Centralised methods are not ranked.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the axis below three methods or two datasets.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen = scored(study, spec)
    chosen = chosen[~chosen["method"].isin(study.centralised)] if len(chosen) else chosen
    if chosen.empty:
        return without_data(spec, "rank")
    means = chosen.groupby([*PROBLEM, *SERIES], sort=False)["value"].mean().unstack(SERIES).dropna()
    datasets = means.index.get_level_values("dataset").nunique()
    result = ranks_over_datasets(means.to_dict(), quantity(spec.metric).better or "higher")
    if means.shape[1] < 3 or result is None or result.critical_difference is None:
        return empty(
            spec.heading,
            f"Average ranks need at least 3 methods and 2 datasets with complete cells; this figure has "
            f"{means.shape[1]} and {datasets}.",
        )
    series: list[Series] = [key for key, _ in result.order]
    average = np.array([rank for _, rank in result.order])
    texts = [
        wrapped(f"{series_name(key, chosen)}  {rank:.2f}", 0.45 * _WIDTH, FONT)
        for key, rank in zip(series, average.tolist(), strict=True)
    ]
    row = 0.28 + 0.17 * max(text.count("\n") for text in texts)
    look = series_styles(study)
    with rc_context(LOOK):
        figure, (axes,) = panels([("",)], spec.heading, width=_WIDTH, height=1.1 + row * len(series))
        _draw(axes, texts, average, [look[key] for key in series], result.critical_difference)
        axes.set_xlabel(
            f"Average rank over {datasets} datasets (1 is best);\n"
            f"bars join methods within the critical difference {result.critical_difference:.2f} (Nemenyi, 5%)"
            + _left_out(study, spec, chosen)
        )
    return figure


def _left_out(study: StudyRecord, spec: FigureSpec, chosen: pd.DataFrame) -> str:
    """Return the line that names the requested methods without a complete cell; "" if there are none."""
    requested = select(study.runs, spec.where, f"figure '{spec.name}'")
    requested = requested[~requested["method"].isin(study.centralised)]
    ranked = set(zip(chosen["label"], chosen["backbone"], strict=True))
    missing = [key for key in distinct(requested, SERIES, study.order) if key not in ranked]
    names = ", ".join(series_name((str(label), str(backbone)), requested) for label, backbone in missing)
    return f"\nleft out, without a complete cell: {names}" if names else ""


def _draw(axes: Axes, texts: list[str], average: np.ndarray, look: list[Style], difference: float) -> None:
    """Draw one row per method, a point with name and rank, and the bars below the rows."""
    for row, (text, rank, style) in enumerate(zip(texts, average, look, strict=True)):
        axes.plot([rank], [-row], color=style.colour, marker=style.marker, linestyle="none")
        axes.annotate(text, (rank, -row), (8, 0), textcoords="offset points", va="center")
    bars = cliques(average, difference)
    for level, (first, last) in enumerate(bars):
        low, high, y = average[first], average[last], -len(texts) - 0.7 * level
        axes.plot([low, high], [y, y], color="#374151", linewidth=3.2, solid_capstyle="round")
    axes.set_xlim(1 - 0.15, len(texts) + 0.9)
    axes.set_ylim(-len(texts) - 0.7 * max(len(bars), 1), 0.8)
    axes.set_xticks(range(1, len(texts) + 1))
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)


def cliques(average: np.ndarray, difference: float) -> list[tuple[int, int]]:
    """Return the maximal runs of at least two methods whose average ranks lie within the critical difference.

    Args:
        average: [M], average ranks in ascending order.
        difference: the critical difference.

    Returns:
        (first, last) positions of each run; no run lies inside another.
    """
    runs: list[tuple[int, int]] = []
    for first, rank in enumerate(average):
        last = int(np.searchsorted(average, rank + difference, side="right")) - 1
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs
