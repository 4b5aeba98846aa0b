"""The names of the files that the tables and figures stages write for a study, known before any of them exists.

The Snakefile asks for them while it is parsed, so nothing heavy is imported here.
"""

from collections.abc import Mapping
from typing import Any

TABLE_FORMATS = ("csv", "md", "tex", "html")
FIGURE_FORMATS = ("png", "pdf")


def is_compared(study: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Whether a table is set beside a paper's: the study names a reference file and the table a table in it."""
    return bool(study.get("reference")) and bool(table.get("reference")) and table.get("kind", "cells") == "cells"


def table_files(study: Mapping[str, Any]) -> list[str]:
    """File names inside `tables/<study>/`, in the study's order.

    Args:
        study: the study's specification with `tables` and, optionally, `reference`.
    """
    stems: list[str] = []
    for table in study.get("tables") or []:
        stems += [table["name"], *([f"{table['name']}-compared"] if is_compared(study, table) else [])]
    return [f"{stem}.{suffix}" for stem in stems for suffix in TABLE_FORMATS]


def figure_files(study: Mapping[str, Any]) -> list[str]:
    """File names inside `figures/<study>/`, in the study's order."""
    return [f"{figure['name']}.{suffix}" for figure in study.get("figures") or [] for suffix in FIGURE_FORMATS]
