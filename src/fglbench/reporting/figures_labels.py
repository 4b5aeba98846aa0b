"""Label distributions of the partitions beside the training curves of the methods on them."""

from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from fglbench.records.presentation import FigureSpec
from fglbench.records.study import PROBLEM, StudyRecord
from fglbench.reporting.figures_base import LOOK, legend, panel_title, panels, series_styles, without_data
from fglbench.reporting.figures_curves import draw_rounds
from fglbench.reporting.figures_heatmap import draw_labels
from fglbench.reporting.figures_rows import complete_rows, partition_rows
from fglbench.reporting.frames import groups


def labels_and_convergence(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the label heat map of every scheme, then the training curves of all methods on every scheme.

    Each dataset and number of clients is one row of panels.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        The figure; a note replaces the panels if no partition or no curve matches.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    partitions = partition_rows(study.partitions, spec)
    curves = complete_rows(study, study.curves, spec, needed="test_score")
    if partitions.empty or curves.empty:
        return without_data(spec, "partition with curves")
    look = series_styles(study)
    rows: dict[tuple[Any, Any], list[tuple[str, tuple[Any, ...], pd.DataFrame]]] = {}
    for content, frame in (("labels", partitions), ("curves", curves)):
        for key, part in groups(frame, list(PROBLEM), study.order):
            rows.setdefault((key[0], key[2]), []).append((content, key, part))
    drawn = [(row, *panel) for row, parts in rows.items() for panel in parts]
    with rc_context(LOOK):
        figure, axes = panels([(row,) for row, *_ in drawn], spec.heading, height=3.2)
        for panel, (_, content, key, part) in zip(axes, drawn, strict=True):
            title = panel_title(list(PROBLEM), key)
            if content == "labels":
                panel.grid(visible=False)
                draw_labels(figure, panel, part, title)
            else:
                draw_rounds(panel, part, look, study, curves)
                panel.set_title(title)
        legend(figure, axes)
    return figure
