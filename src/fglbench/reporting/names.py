"""Names of the files that the tables and figures stages write for a study.

The Snakefile calls these functions while Snakemake parses it, so this module has no slow imports.
"""

from collections.abc import Sequence

from fglbench.records.presentation import FigureSettings, TableSettings

TABLE_FORMATS = ("csv", "md", "tex", "html")
FIGURE_FORMATS = ("png", "pdf")


def is_compared(table: TableSettings, reference: str | None) -> bool:
    """Return whether a table is compared with a paper.

    Args:
        table: settings of the table.
        reference: the study's file of printed numbers; None if there is none.

    Returns:
        True for a table of cells that names a printed table, if the study has a file of printed numbers.
    """
    return bool(reference) and table.reference is not None and table.kind == "cells"


def table_files(tables: Sequence[TableSettings], reference: str | None) -> list[str]:
    """Return the names of the files in `tables/<study>/`.

    Args:
        tables: settings of the study's tables.
        reference: the study's file of printed numbers; None if there is none.

    Returns:
        File names in the study's order, each table in all formats.
    """
    stems: list[str] = []
    for table in tables:
        stems += [table.name, *([f"{table.name}-compared"] if is_compared(table, reference) else [])]
    return [f"{stem}.{suffix}" for stem in stems for suffix in TABLE_FORMATS]


def figure_files(figures: Sequence[FigureSettings]) -> list[str]:
    """Return the names of the files in `figures/<study>/`.

    Args:
        figures: settings of the study's figures.

    Returns:
        File names in the study's order, each figure in all formats.
    """
    return [f"{figure.name}.{suffix}" for figure in figures for suffix in FIGURE_FORMATS]
