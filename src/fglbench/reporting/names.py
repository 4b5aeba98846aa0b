"""Names of the files that the tables and figures stages write for a study.

The Snakefile calls these functions while Snakemake parses it, so this module has no slow imports.
"""

from collections.abc import Mapping
from typing import Any

TABLE_FORMATS = ("csv", "md", "tex", "html")
FIGURE_FORMATS = ("png", "pdf")


def is_compared(study: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Return whether a table is compared with a paper.

    Args:
        study: the study's specification.
        table: one entry of its `tables`.

    Returns:
        True for a table of cells, if the study names a reference file and the table names a printed table.
    """
    return bool(study.get("reference")) and bool(table.get("reference")) and table.get("kind", "cells") == "cells"


def table_files(study: Mapping[str, Any]) -> list[str]:
    """Return the names of the files in `tables/<study>/`.

    Args:
        study: the study's specification with `tables` and, optionally, `reference`.

    Returns:
        File names in the study's order, each table in all formats.
    """
    stems: list[str] = []
    for table in study.get("tables") or []:
        stems += [table["name"], *([f"{table['name']}-compared"] if is_compared(study, table) else [])]
    return [f"{stem}.{suffix}" for stem in stems for suffix in TABLE_FORMATS]


def figure_files(study: Mapping[str, Any]) -> list[str]:
    """Return the names of the files in `figures/<study>/`.

    Args:
        study: the study's specification with `figures`.

    Returns:
        File names in the study's order, each figure in all formats.
    """
    return [f"{figure['name']}.{suffix}" for figure in study.get("figures") or [] for suffix in FIGURE_FORMATS]
