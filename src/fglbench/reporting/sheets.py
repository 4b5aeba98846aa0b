"""What one file of the tables stage holds, in its four formats: a table and what stands around it."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fglbench.reporting import render
from fglbench.reporting.cells import Table


@dataclass(frozen=True)
class Picture:
    """A figure that pages show.

    Attributes:
        draw: gives the PNG; called only where it is shown, since drawing takes its time.
        words: below it.
    """

    draw: Callable[[], bytes]
    words: str


@dataclass(frozen=True)
class Sheet:
    """The content of `<table>.{csv,md,tex,html}`.

    Attributes:
        table: the table itself; its records are the CSV.
        above: a shorter one that is read first.
        picture: between the two.
        folded: a longer one below; a page shows it on demand, LaTeX and a terminal leave it out.
    """

    table: Table
    above: Table | None = None
    picture: Picture | None = None
    folded: Table | None = None

    @property
    def shown(self) -> list[Table]:
        """The tables that are read at once."""
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
