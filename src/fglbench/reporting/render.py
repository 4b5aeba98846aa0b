"""Output of tables as CSV, Markdown, LaTeX and HTML, each with its own escaping."""

import csv
import io
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fglbench.reporting.cells import Table, TableCell

_MARKDOWN = re.compile(r"([\\`*_{}\[\]|~$])")
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "_": r"\_",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "§": r"\S{}",
    "¶": r"\P{}",
    "○": r"$\circ$",
    "∅": r"$\emptyset$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "▴": r"$\bigtriangleup$",
    "▾": r"$\bigtriangledown$",
    "⇕": r"$\Updownarrow$",
}


def escape_markdown(text: str) -> str:
    """Escape a text for Markdown with tables, HTML and mathematics.

    Args:
        text: any text.

    Returns:
        One line, which Markdown shows as `text` with single spaces.
    """
    one_line = " ".join(text.split())
    return _MARKDOWN.sub(r"\\\1", one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX.

    Args:
        text: any text.

    Returns:
        One line with commands of plain LaTeX for the symbols of this package.
    """
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def to_csv(table: Table) -> str:
    """Render a table as CSV: mean, standard deviation, n and outcome of every column.

    Args:
        table: the table; its caption is left out because CSV contains only records.

    Returns:
        CSV with a header line; numbers have 12 significant digits.
    """
    stream = io.StringIO()
    names = list(dict.fromkeys(name for record in table.data for name in record))
    writer = csv.DictWriter(stream, names or table.row_fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_value(value) for name, value in record.items()} for record in table.data)
    return stream.getvalue()


def _csv_value(value: Any) -> Any:
    return f"{value:.12g}" if isinstance(value, float) else value


def to_markdown(table: Table) -> str:
    """Render a table as GitHub-flavoured Markdown.

    Args:
        table: the table.

    Returns:
        Title, caption, table, legend and notes.
    """
    heads = [*table.row_fields, *(", ".join(head) or "value" for head in table.columns)]
    lines = [f"**{escape_markdown(table.title)}**", "", escape_markdown(" ".join(table.caption)), ""]
    lines.append("| " + " | ".join(map(escape_markdown, heads)) + " |")
    lines.append("|" + " --- |" * len(table.row_fields) + " ---: |" * len(table.columns))
    for key, row in zip(table.rows, table.cells, strict=True):
        texts = [*map(escape_markdown, key), *(_marked(cell, escape_markdown, "**{}**", "<u>{}</u>") for cell in row)]
        lines.append("| " + " | ".join(texts) + " |")
    if table.legend:
        lines += ["", escape_markdown(_legend(table))]
    for note in table.notes:
        lines += ["", escape_markdown(note)]
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """Render a table as a LaTeX `table` environment, which needs the package booktabs.

    Args:
        table: the table.

    Returns:
        LaTeX with title and caption above, legend and notes below.
    """
    below = " ".join([*([_legend(table)] if table.legend else []), *table.notes])
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex(f'{table.title}. ' + ' '.join(table.caption))}}}",
        rf"\label{{tab:{re.sub('[^A-Za-z0-9-]', '-', table.name)}}}",
        rf"\begin{{tabular}}{{{'l' * len(table.row_fields)}{'r' * len(table.columns)}}}",
        r"\toprule",
        *_latex_heads(table),
        r"\midrule",
    ]
    for index, (key, row) in enumerate(zip(table.rows, table.cells, strict=True)):
        if index and key[:-1] != table.rows[index - 1][:-1]:
            lines.append(r"\midrule")
        cells = (_marked(cell, escape_latex, r"\textbf{{{}}}", r"\underline{{{}}}") for cell in row)
        lines.append(_latex_row([*map(escape_latex, key), *cells]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if below:
        lines += [r"\par\smallskip", rf"\parbox{{\linewidth}}{{\footnotesize {escape_latex(below)}}}"]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_heads(table: Table) -> list[str]:
    lines = []
    for level in range(max(1, len(table.column_fields))):
        last = level == len(table.column_fields) - 1 or not table.column_fields
        lead = [escape_latex(name) if last else "" for name in table.row_fields]
        spans = [
            rf"\multicolumn{{{width}}}{{{'r' if width == 1 else 'c'}}}{{{escape_latex(text)}}}"
            for text, width in spanned(table, level)
        ]
        lines.append(_latex_row([*lead, *spans]))
    return lines


def _latex_row(cells: list[str]) -> str:
    # LaTeX reads "*" and "[" at the start of a row as an option of the row above.
    guard = "{}" if cells[0].startswith(("*", "[")) else ""
    return guard + " & ".join(cells) + r" \\"


def spanned(table: Table, level: int) -> list[tuple[str, int]]:
    """Return the column heads of one level; neighbours with the same upper heads are merged.

    Args:
        table: the table.
        level: position among the column fields, from 0 at the top.

    Returns:
        (text, number of columns) of each head.
    """
    spans: list[tuple[tuple[str, ...], int]] = []
    for head in table.columns:
        key = head[: level + 1]
        if spans and spans[-1][0] == key:
            spans[-1] = (key, spans[-1][1] + 1)
        else:
            spans.append((key, 1))
    return [(key[-1] if key else "value", width) for key, width in spans]


@cache
def environment() -> Environment:
    """Return the Jinja environment of the page templates, which escapes all values.

    Returns:
        The environment, created once per process.
    """
    loader = PackageLoader("fglbench.reporting", "templates")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip


def to_html(table: Table) -> str:
    """Render a table as a page of its own.

    Args:
        table: the table.

    Returns:
        HTML; `fragment` extracts the part that the report embeds.
    """
    return page(table.title, html_table(table))


def page(title: str, content: Markup) -> str:
    """Render a page around trusted content.

    Args:
        title: title of the page; it is escaped.
        content: escaped HTML.

    Returns:
        HTML.
    """
    return environment().get_template("table_page.html.j2").render(title=title, content=content)


def html_table(table: Table) -> Markup:
    """Render a table as an HTML fragment.

    Args:
        table: the table.

    Returns:
        HTML with all text escaped.
    """
    groups: list[tuple[tuple[str, ...], list[tuple[str, list[TableCell]]]]] = []
    for key, row in zip(table.rows, table.cells, strict=True):
        if not groups or groups[-1][0] != key[:-1]:
            groups.append((key[:-1], []))
        groups[-1][1].append((key[-1] if key else "", row))
    levels = [spanned(table, level) for level in range(max(1, len(table.column_fields)))]
    return Markup(
        environment()
        .get_template("table.html.j2")
        .render(
            table=table,
            groups=groups,
            levels=levels,
            legend=_legend(table),
            marks=any(cell.mark for row in table.cells for cell in row),
        )
    )


def fragment(page: str) -> str:
    """Extract the content of a page from `page`.

    Args:
        page: HTML from `page`.

    Returns:
        HTML, trusted because `page` escaped all text.
    """
    return page.partition('<body class="single">\n')[2].partition("</body>")[0]


def _legend(table: Table) -> str:
    return "; ".join(f"{symbol} {meaning}" for symbol, meaning in table.legend) + ("." if table.legend else "")


def _marked(cell: TableCell, escape: Callable[[str], str], bold: str, underlined: str) -> str:
    text = escape(cell.text)
    shown = bold.format(text) if cell.best else underlined.format(text) if cell.second else text
    return f"{shown} {escape(cell.mark)}" if cell.mark else shown
