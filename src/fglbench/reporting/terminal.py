"""Tables for a terminal."""

import io

from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from fglbench.reporting.cells import Table

_FRAME = 3  # a column's borders and padding


def to_text(table: Table, width: int = 120, colour: bool = False) -> str:
    """A table as text; one that is wider than `width` characters is printed as several with the same row heads.

    Args:
        colour: with the marks of best and second as bold and underlined, for a terminal.
    """
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
    )
    console.print(_terminal_table(table, width))
    return stream.getvalue()


def _terminal_table(table: Table, width: int) -> Group:
    grids = [_grid(table, columns) for columns in _blocks(table, width)]
    legend = [f"{symbol} {meaning}" for symbol, meaning in table.legend]
    below = [Text(line, style="dim") for line in (" ".join(table.caption), *legend, *table.notes) if line]
    return Group(Text(table.title, style="bold"), *grids, *below)


def _grid(table: Table, columns: list[int]) -> RichTable:
    grid = RichTable(header_style="bold")
    for name in table.row_fields:
        grid.add_column(Text(name), no_wrap=True)
    for column in columns:
        grid.add_column(Text("\n".join(table.columns[column])), justify="right", no_wrap=True)
    for place, (key, row) in enumerate(zip(table.rows, table.cells, strict=True)):
        if place and key[:-1] != table.rows[place - 1][:-1]:
            grid.add_section()
        styles = ["bold" if row[column].best else "underline" if row[column].second else "" for column in columns]
        texts = [Text(row[column].text, style=style) for column, style in zip(columns, styles, strict=True)]
        grid.add_row(*map(Text, key), *texts)
    return grid


def _blocks(table: Table, width: int) -> list[list[int]]:
    """Columns that fit side by side, as many as possible in each block and at least one."""

    def widest(texts: list[str]) -> int:
        return max(map(cell_len, texts), default=0) + _FRAME

    heads = 1 + sum(widest([name, *(row[place] for row in table.rows)]) for place, name in enumerate(table.row_fields))
    blocks: list[list[int]] = [[]]
    used = heads
    for column, head in enumerate(table.columns):
        needed = widest([*head, *(row[column].text for row in table.cells)])
        if blocks[-1] and used + needed > width:
            blocks.append([])
            used = heads
        blocks[-1].append(column)
        used += needed
    return blocks
