"""Content of one file of the tables stage: a table with its accompanying tables and picture, in four formats."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fglbench.reporting import render
from fglbench.reporting.cells import Table


@dataclass(frozen=True)
class Picture:
    """A figure on a page.

    Attributes:
        draw: returns the PNG; called only for HTML because drawing is slow.
        words: caption below the figure.
    """

    draw: Callable[[], bytes]
    words: str


@dataclass(frozen=True)
class Sheet:
    """The content of `<table>.{csv,md,tex,html}`.

    Attributes:
        table: the main table, whose records are the CSV.
        above: a shorter table shown first; None for none.
        picture: figure between `above` and `table`; None for none.
        folded: a longer table below; the page folds it, and LaTeX and the terminal leave it out.
    """

    table: Table
    above: Table | None = None
    picture: Picture | None = None
    folded: Table | None = None

    @property
    def shown(self) -> list[Table]:
        """The tables that are always visible: `above`, if present, and `table`."""
        return [table for table in (self.above, self.table) if table]


def _csv(sheet: Sheet) -> str:
    return render.to_csv(sheet.table)


def _markdown(sheet: Sheet) -> str:
    tables = [*sheet.shown, *([sheet.folded] if sheet.folded else [])]
    return "\n".join(map(render.to_markdown, tables))


def _latex(sheet: Sheet) -> str:
    return "\n".join(map(render.to_latex, sheet.shown))


def _html(sheet: Sheet) -> str:
    parts: dict[str, Any] = {
        name: table and render.html_table(table)
        for name, table in (("above", sheet.above), ("table", sheet.table), ("folded", sheet.folded))
    }
    if sheet.picture:
        source = f"data:image/png;base64,{base64.b64encode(sheet.picture.draw()).decode('ascii')}"
        parts["picture"] = {"source": source, "words": sheet.picture.words}
    content = render.environment().get_template("sheet.html.j2").render(**{"picture": None} | parts, sheet=sheet)
    return render.page(sheet.table.title, Markup(content))


RENDERERS: dict[str, Callable[[Sheet], str]] = {"csv": _csv, "md": _markdown, "tex": _latex, "html": _html}
