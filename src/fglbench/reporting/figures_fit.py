"""Texts of a figure that fit what they stand beside, however long the names are."""

import re
from collections import defaultdict
from collections.abc import Iterable

from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

LINE = 1.2  # height of a line of text, in font sizes


def width(texts: Iterable[str], font: FontProperties) -> float:
    """Inches of the longest line; a little more than measured, for drawn glyphs are rounded to pixels."""
    lines = [line for text in texts for line in text.split("\n")]
    return max(1.03 * text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] / 72 for line in lines)


def wrapped(text: str, room: float, font: FontProperties) -> str:
    """The text in lines of at most `room` inches: broken after spaces, dashes, slashes and underscores, and inside
    what is too long even so. Lines that it has stay."""
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
    """Wraps the titles and the names of axes to what they stand beside, makes the figure higher by the lines that this
    adds to its title and to each row of panels, and fixes the layout. Call it inside `rc_context(LOOK)`."""
    layout = figure.get_layout_engine()
    assert layout is not None, "the layout is fixed already"
    layout.execute(figure)
    added: defaultdict[int, float] = defaultdict(float)  # inches by row of panels
    for axes in figure.axes:
        across, down = axes.get_position().size * figure.get_size_inches()
        _wrap(axes.yaxis.label, down)
        place = axes.get_subplotspec()
        row = place.rowspan.start if place else 0
        added[row] = max(added[row], _wrap(axes.title, across) + _wrap(axes.xaxis.label, across))
    title = figure._suptitle  # type: ignore[attr-defined]
    of_title = _wrap(title, figure.get_figwidth() - 0.3) if title else 0
    figure.set_figheight(figure.get_figheight() + of_title + sum(added.values()))
    layout.execute(figure)
    figure.set_layout_engine("none")


def _wrap(text: Text, room: float) -> float:
    """Wraps a text of a figure to `room` inches; how much higher it is then, in inches."""
    before = text.get_text()
    text.set_text(wrapped(before, room, text.get_fontproperties()))
    return (text.get_text().count("\n") - before.count("\n")) * LINE * float(text.get_fontsize()) / 72
