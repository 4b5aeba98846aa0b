"""Scatter plot of the study's numbers against the printed ones, with the tolerance bands."""

import io
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.figure import Figure

from fglbench.evaluation.quantities import Quantity
from fglbench.reporting.compare import MOST_TOLERANCE_POINTS, TOLERANCE_POINTS
from fglbench.reporting.figures_base import LOOK, legend, panels
from fglbench.reporting.palette import styles

BANDS = ((MOST_TOLERANCE_POINTS, "#e8ecf1"), (TOLERANCE_POINTS, "#cdd5df"))


class Point(NamedTuple):
    """A printed number and the study's number.

    Attributes:
        backbone: backbone, which selects the panel.
        problem: dataset, scheme and clients in one line, which select colour and marker.
        printed: the paper's number, in printed units.
        ours: the study's mean, in printed units.
        unstable: whether the verdict is "unstable".
    """

    backbone: str
    problem: str
    printed: float
    ours: float
    unstable: bool


def scatter(points: list[Point], unit: Quantity) -> Figure:
    """Draw one panel for each backbone, with one colour and marker for each problem; unstable points are hollow.

    Args:
        points: at least one point.
        unit: the quantity of the numbers.

    Returns:
        The figure.
    """
    backbones, problems = (list(dict.fromkeys(names)) for names in list(zip(*points, strict=True))[:2])
    looks = styles(problems, [""])
    values = [value for point in points for value in (point.printed, point.ours)]
    low, high = min(values) - MOST_TOLERANCE_POINTS, max(values) + MOST_TOLERANCE_POINTS
    words = f"{unit.title} ({unit.unit})" if unit.unit else unit.title
    with rc_context(LOOK):
        figure, axes = panels([(backbone,) for backbone in backbones], "Ours against printed", height=3.6)
        for panel, backbone in zip(axes, backbones, strict=True):
            for width, colour in BANDS:
                below, above = ([end + side * width for end in (low, high)] for side in (-1, 1))
                name = f"within {width:g} points"
                panel.fill_between([low, high], below, above, color=colour, linewidth=0, label=name)
            panel.plot([low, high], [low, high], color="#6b7280", linewidth=0.8)
            for problem in problems:
                members = [point for point in points if (point.backbone, point.problem) == (backbone, problem)]
                look = looks[problem, ""]
                fills = ["none" if point.unstable else look.colour for point in members]
                x, y = [point.printed for point in members], [point.ours for point in members]
                panel.scatter(x, y, s=30, marker=look.marker, facecolors=fills, edgecolors=look.colour, label=problem)
            panel.set(xlim=(low, high), ylim=(low, high), aspect="equal", title=backbone)
            panel.set(xlabel=f"Printed {words}", ylabel=f"Our {words}")
        legend(figure, axes)
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as PNG; equal figures give equal bytes.

    Args:
        figure: the figure.

    Returns:
        Content of a PNG file.
    """
    stream = io.BytesIO()
    with rc_context(LOOK):
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
