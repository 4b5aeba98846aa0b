"""Tables for a terminal."""

import io

from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from fglbench.reporting.cells import Table


def terminal_table(table: Table) -> Group:
    """A table that rich can print: caption, grid, legend and notes."""
    grid = RichTable(title=Text(table.title, style="bold"), title_justify="left", header_style="bold")
    for name in table.row_fields:
        grid.add_column(Text(name), no_wrap=True)
    for head in table.columns:
        grid.add_column(Text("\n".join(head)), justify="right", no_wrap=True)
    for place, (key, row) in enumerate(zip(table.rows, table.cells, strict=True)):
        if place and key[:-1] != table.rows[place - 1][:-1]:
            grid.add_section()
        styles = ["bold" if cell.best else "underline" if cell.second else "" for cell in row]
        grid.add_row(*map(Text, key), *(Text(cell.text, style=s) for cell, s in zip(row, styles, strict=True)))
    legend = [f"{symbol} {meaning}" for symbol, meaning in table.legend]
    below = [Text(line, style="dim") for line in (" ".join(table.caption), *legend, *table.notes) if line]
    return Group(grid, *below)


def to_text(table: Table, width: int = 120) -> str:
    """The same as plain text, `width` characters wide."""
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, force_terminal=False).print(terminal_table(table))
    return stream.getvalue()
