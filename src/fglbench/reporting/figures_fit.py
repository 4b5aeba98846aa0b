"""Wrapping of figure texts to the available space."""

import re
from collections import defaultdict
from collections.abc import Iterable

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

LINE = 1.2  # height of a line of text, in font sizes


def width(texts: Iterable[str], font: FontProperties) -> float:
    """Return the width of the longest line.

    The result is 3 % above the measured width because drawn glyphs are rounded to pixels.

    Args:
        texts: at least one text, each of one or more lines.
        font: font of the texts.

    Returns:
        Inches.
    """
    lines = [line for text in texts for line in text.split("\n")]
    return max(1.03 * text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] / 72 for line in lines)


def wrapped(text: str, room: float, font: FontProperties) -> str:
    """Wrap a text to a width.

    Lines break after spaces, dashes, slashes and underscores, and inside words that are too long. Existing line breaks
    stay.

    Args:
        text: text of one or more lines.
        room: largest width of a line, in inches.
        font: font of the text.

    Returns:
        The text with line breaks.
    """
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for piece in re.split(r"(?<=[\s/_-])", paragraph):
            if line.strip() and width([line + piece.rstrip()], font) > room:
                lines.append(line.rstrip())
                line = ""
            line += piece
            while len(line) > 1 and width([line.rstrip()], font) > room:
                end = next((end for end in range(len(line) - 1, 1, -1) if width([line[:end]], font) <= room), 1)
                lines.append(line[:end])
                line = line[end:]
        lines.append(line.rstrip())
    return "\n".join(lines)


def settle(figure: Figure) -> None:
    """Wrap titles and axis labels, enlarge the figure for the added lines, and fix its layout.

    The height grows by the lines added to the figure's title and to each row of panels. Call it inside
    `rc_context(LOOK)`.

    Args:
        figure: a figure with a layout engine.
    """
    layout = figure.get_layout_engine()
    assert layout is not None, "the layout of the figure is already fixed"
    layout.execute(figure)
    added: defaultdict[int, float] = defaultdict(float)  # inches by row of panels
    for axes in figure.axes:
        across, down = axes.get_position().size * figure.get_size_inches()
        _wrap(axes.yaxis.label, down)
        cell = axes.get_subplotspec()
        row = cell.rowspan.start if cell else 0
        added[row] = max(added[row], _wrap(axes.title, across) + _wrap(axes.xaxis.label, across))
    title = figure._suptitle  # type: ignore[attr-defined]
    of_title = _wrap(title, figure.get_figwidth() - 0.3) if title else 0
    figure.set_figheight(figure.get_figheight() + of_title + sum(added.values()))
    layout.execute(figure)
    figure.set_layout_engine("none")


def _wrap(text: Text, room: float) -> float:
    """Wrap a text of a figure to `room` inches; return the added height in inches."""
    before = text.get_text()
    text.set_text(wrapped(before, room, text.get_fontproperties()))
    return (text.get_text().count("\n") - before.count("\n")) * LINE * float(text.get_fontsize()) / 72
