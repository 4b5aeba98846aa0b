"""Colours, markers and dashes of the methods, the same in all figures of a study.

The colours follow Okabe and Ito, are distinct for the common kinds of colour blindness, and end with black. After eight
methods the colours repeat with another marker and dash. The dash also shows the backbone: two cycles of colours and
four backbones stay distinct.
"""

from typing import NamedTuple

Dash = str | tuple[int, tuple[int, ...]]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (8, 2)), (0, (8, 2, 2, 2)), (0, (2, 1)), (0, (1, 4)))


class Style(NamedTuple):
    """Colour, marker and dash of one series.

    Attributes:
        colour: hexadecimal RGB.
        marker: marker of matplotlib.
        dash: line style of matplotlib.
    """

    colour: str
    marker: str
    dash: Dash


def styles(labels: list[str], backbones: list[str]) -> dict[tuple[str, str], Style]:
    """Assign a style to each pair of label and backbone.

    Args:
        labels: labels of methods, in the study's order.
        backbones: labels of backbones, in the study's order.

    Returns:
        Styles by (label, backbone): colour and marker by label, dash by backbone.
    """
    by_series = {}
    for index, label in enumerate(labels):
        turn, colour = divmod(index, len(COLOURS))
        marker = MARKERS[(colour + 3 * turn) % len(MARKERS)]
        for offset, backbone in enumerate(backbones):
            dash = DASHES[(len(DASHES) // 2 * turn + offset) % len(DASHES)]
            by_series[label, backbone] = Style(COLOURS[colour], marker, dash)
    return by_series
