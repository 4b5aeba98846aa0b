"""Colours and markers that stay with a method in all figures of a study.

The colours are those of Okabe and Ito, distinct for the common kinds of colour blindness, the black one last; after
eight methods the colours come again with another marker and dash.
"""

from typing import NamedTuple

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")


class Style(NamedTuple):
    colour: str
    marker: str
    dash: str


def styles(labels: list[str], backbones: list[str]) -> dict[tuple[str, str], Style]:
    """The style of each (label, backbone): colour and marker by label, dash by backbone."""
    found = {}
    for place, label in enumerate(labels):
        turn, colour = divmod(place, len(COLOURS))
        for second, backbone in enumerate(backbones):
            dash = DASHES[(turn + second) % len(DASHES)]
            found[label, backbone] = Style(COLOURS[colour], MARKERS[(colour + 3 * turn) % len(MARKERS)], dash)
    return found
