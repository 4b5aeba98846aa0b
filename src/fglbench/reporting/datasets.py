"""The datasets of a study in one table: their sizes, each beside the printed one."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fglbench.reporting.cells import Cell, Table
from fglbench.reporting.records import Study, ordered
from fglbench.reporting.reference import base_dataset

SIZES = ("nodes", "features", "edges", "classes")


def dataset_table(study: Study, spec: Mapping[str, Any], reference: pd.DataFrame | None) -> Table:
    """One row per dataset, in the study's order; with a reference, a printed number follows each of ours, and datasets
    that only the paper has come last.

    Args:
        study: the records.
        spec: the table's entry in `study.json`: name, title, reference.
        reference: as `reference.load_reference` reads it, or None.
    """
    recorded: dict[str, dict[str, int]] = study.settings["sizes"]
    labels = ordered([(label,) for label in recorded], ["dataset"], study.order)
    sizes = {label: recorded[label] for (label,) in labels}
    wish = spec.get("reference") or {}
    printed = _printed(reference, wish) if reference is not None else {}
    names = {label: _printed_name(str(study.name("dataset", label)), wish, printed) for label in sizes}
    alone = [name for name in printed if name not in names.values()]
    columns = [(size, *who) for size in SIZES for who in ([("ours",), ("printed",)] if printed else [()])]
    rows: list[tuple[str, ...]] = []
    cells: list[list[Cell]] = []
    data: list[dict[str, Any]] = []
    for label in [*sizes, *alone]:
        ours, theirs = sizes.get(label, {}), printed.get(names.get(label, label), {})
        texts = [_text((theirs if column[1:] == ("printed",) else ours).get(column[0])) for column in columns]
        rows.append((label,))
        cells.append([Cell(text=text) for text in texts])
        data.append({"dataset": label} | {" ".join(c): t for c, t in zip(columns, texts, strict=True)})
    return Table(
        name=spec["name"],
        title=(spec.get("title") or spec["name"]).removesuffix("."),
        caption=["Edges are undirected, without duplicates and self-loops."],
        row_fields=["dataset"],
        rows=rows,
        column_fields=["size", "source"] if printed else ["size"],
        columns=columns,
        cells=cells,
        legend=[("–", "not in this study, not known before it is made, or not printed")]
        if any(c.text == "–" for row in cells for c in row)
        else [],
        notes=[],
        data=data,
    )


def _printed(reference: pd.DataFrame, wish: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    rows = reference[(reference["table"] == str(wish["table"])) & reference["metric"].isin(SIZES)]
    found: dict[str, dict[str, int]] = {}
    for row in rows.to_dict("records"):
        found.setdefault(row["dataset"], {})[row["metric"]] = int(row["value"])
    return found


def _printed_name(name: str, wish: Mapping[str, Any], printed: Mapping[str, Any]) -> str:
    return name if name in printed else base_dataset(name, wish)


def _text(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
