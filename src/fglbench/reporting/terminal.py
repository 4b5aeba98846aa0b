"""Output of tables for a terminal."""

import io

from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from fglbench.reporting.cells import Table

_FRAME = 3  # characters of a column's border and padding


def to_text(table: Table, width: int = 120, colour: bool = False) -> str:
    """Render a table as text.

    Args:
        table: the table.
        width: characters per line; a wider table is split into several with the same row heads.
        colour: whether to use the terminal's styles, which show the marks of best and second in bold and underlined.

    Returns:
        Title, table, caption, legend and notes.
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
    # Rich drops trailing spaces, so each text is padded here to leave space for the marks.
    for column in columns:
        head = [_padded(line, _width(table, column)) for line in table.columns[column]]
        grid.add_column(Text("\n".join(head)), no_wrap=True)
    texts = [_texts(table, column) for column in columns]
    for index, key in enumerate(table.rows):
        if index and key[:-1] != table.rows[index - 1][:-1]:
            grid.add_section()
        grid.add_row(*map(Text, key), *(column[index] for column in texts))
    return grid


def _texts(table: Table, column: int) -> list[Text]:
    """Return the cells of a column, with aligned numbers and marks after them."""
    room, width = _room(table, column), _width(table, column)
    texts = []
    for cell in (row[column] for row in table.cells):
        style = "bold" if cell.best else "underline" if cell.second else ""
        before = " " * (width - room - cell_len(cell.text))
        texts.append(Text.assemble(before, (cell.text, style), f" {cell.mark}" if cell.mark else ""))
    return texts


def _padded(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _room(table: Table, column: int) -> int:
    """Return the number of characters that the marks of a column take."""
    return 2 if any(row[column].mark for row in table.cells) else 0


def _width(table: Table, column: int) -> int:
    texts = [cell_len(row[column].text) + _room(table, column) for row in table.cells]
    return max([*texts, *map(cell_len, table.columns[column])], default=0)


def _blocks(table: Table, width: int) -> list[list[int]]:
    """Split the columns into blocks that fit the width, with at least one column in each."""

    def widest(texts: list[str]) -> int:
        return max(map(cell_len, texts), default=0) + _FRAME

    heads = 1  # the left border
    for index, name in enumerate(table.row_fields):
        heads += widest([name, *(row[index] for row in table.rows)])
    blocks: list[list[int]] = [[]]
    used = heads
    for column in range(len(table.columns)):
        needed = _width(table, column) + _FRAME
        if blocks[-1] and used + needed > width:
            blocks.append([])
            used = heads
        blocks[-1].append(column)
        used += needed
    return blocks
