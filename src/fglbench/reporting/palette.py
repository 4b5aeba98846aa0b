"""Colours and markers that stay with a method in all figures of a study.

The colours are those of Okabe and Ito, distinct for the common kinds of colour blindness, the black one last; after
eight methods the colours come again with another marker and dash. The dash tells the backbone, too: twice the colours
and four backbones stay apart.
"""

from typing import NamedTuple

Dash = str | tuple[int, tuple[int, ...]]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (8, 2)), (0, (8, 2, 2, 2)), (0, (2, 1)), (0, (1, 4)))


class Style(NamedTuple):
    colour: str
    marker: str
    dash: Dash


def styles(labels: list[str], backbones: list[str]) -> dict[tuple[str, str], Style]:
    """The style of each (label, backbone): colour and marker by label, dash by backbone."""
    found = {}
    for place, label in enumerate(labels):
        turn, colour = divmod(place, len(COLOURS))
        for second, backbone in enumerate(backbones):
            dash = DASHES[(len(DASHES) // 2 * turn + second) % len(DASHES)]
            found[label, backbone] = Style(COLOURS[colour], MARKERS[(colour + 3 * turn) % len(MARKERS)], dash)
    return found
