"""Figures of a study by kind, as PNG and PDF."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from fglbench.records.presentation import FigureSpec
from fglbench.records.study import StudyRecord
from fglbench.reporting.figures_axis import accuracy_by_clients, accuracy_by_local_epochs, accuracy_by_participation
from fglbench.reporting.figures_bars import accuracy_by_method, seconds_by_method
from fglbench.reporting.figures_base import LOOK
from fglbench.reporting.figures_bytes import bytes_by_accuracy
from fglbench.reporting.figures_curves import accuracy_per_round, accuracy_per_second
from fglbench.reporting.figures_fit import settle
from fglbench.reporting.figures_graph import graph
from fglbench.reporting.figures_heatmap import aggregation_weights, label_heatmap
from fglbench.reporting.figures_labels import labels_and_convergence
from fglbench.reporting.figures_ranks import average_ranks
from fglbench.reporting.names import FIGURE_FORMATS
from fglbench.storage import replacing

KINDS: dict[str, Callable[[StudyRecord, FigureSpec], Figure]] = {
    function.__name__: function
    for function in (
        accuracy_per_round,
        accuracy_per_second,
        accuracy_by_clients,
        label_heatmap,
        bytes_by_accuracy,
        average_ranks,
        accuracy_by_participation,
        aggregation_weights,
        labels_and_convergence,
        seconds_by_method,
        accuracy_by_method,
        accuracy_by_local_epochs,
        graph,
    )
}
# Dates and versions are left out so that equal records give equal bytes.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
}


def draw(study: StudyRecord, spec: FigureSpec) -> Figure:
    """Draw the figure of one entry of `study.json`.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`: name, kind, title, where, split, metric, gains.

    Returns:
        The figure; a note replaces the panels if no record matches.

    Raises:
        ConfigError: the records lack a column of the figure, or a kind of figure refuses its records.
    """
    return KINDS[spec.kind](study, spec)


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write `<name>.png` and `<name>.pdf` atomically, and fix the figure's layout.

    Args:
        figure: a figure whose layout is not yet fixed.
        folder: the output folder.
        name: file name without suffix.
    """
    with rc_context(LOOK):
        settle(figure)  # once for all formats
    for suffix in FIGURE_FORMATS:
        with replacing(Path(folder) / f"{name}.{suffix}") as temporary, rc_context(LOOK):
            figure.savefig(temporary, format=suffix, metadata=_METADATA[suffix])
