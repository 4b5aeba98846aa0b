"""The table of a study's datasets: sizes, split and setting, each beside the printed value."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fglbench.records.presentation import Reference, TableSpec
from fglbench.records.study import StudyRecord
from fglbench.reporting.cells import Table, TableCell
from fglbench.reporting.frames import ordered
from fglbench.reporting.reference import base_dataset

SIZES = ("nodes", "features", "edges", "classes")
PROTOCOL = ("split", "setting")
SETTINGS = ("transductive", "inductive")


def dataset_table(study: StudyRecord, spec: TableSpec, reference: pd.DataFrame | None) -> Table:
    """Build the table with one row per dataset, in the study's order.

    With a reference, the printed value follows each value of the study. Datasets that only the paper has come last.

    Args:
        study: the collected records.
        spec: the table's entry in `study.json`: name, title, reference.
        reference: the frame from `reference.load_reference`, or None. Its metric `split` is a text; the setting follows
            the last semicolon of that row's note.

    Returns:
        The table; "–" marks unknown values.
    """
    recorded: dict[str, dict[str, int]] = study.settings["sizes"]
    labels = ordered([(label,) for label in recorded], ["dataset"], study.order)
    sizes = {label: _texts(recorded[label]) | _protocol(study, label) for (label,) in labels}
    printed = _printed(reference, spec.printed_table) if reference is not None else {}
    names = {label: _printed_name(str(study.name("dataset", label)), spec.reference, printed) for label in sizes}
    alone = [name for name in printed if name not in names.values()]
    sources: list[tuple[str, ...]] = [("ours",), ("printed",)] if printed else [()]
    columns = [(size, *source) for size in (*SIZES, *PROTOCOL) for source in sources]
    rows: list[tuple[str, ...]] = []
    cells: list[list[TableCell]] = []
    data: list[dict[str, Any]] = []
    for label in [*sizes, *alone]:
        ours, theirs = sizes.get(label, {}), printed.get(names.get(label, label), {})
        texts = [(theirs if column[1:] == ("printed",) else ours).get(column[0], "–") for column in columns]
        rows.append((label,))
        cells.append([TableCell(text=text) for text in texts])
        data.append({"dataset": label} | {" ".join(column): text for column, text in zip(columns, texts, strict=True)})
    return Table(
        name=spec.name,
        title=spec.heading,
        caption=["Edges are undirected, without duplicates and self-loops; splits are training, validation and test."],
        row_fields=["dataset"],
        rows=rows,
        column_fields=["size", "source"] if printed else ["size"],
        columns=columns,
        cells=cells,
        legend=[("–", "not in this study, not known before the graph is made, or not printed")]
        if any(c.text == "–" for row in cells for c in row)
        else [],
        notes=[],
        data=data,
    )


def _printed(reference: pd.DataFrame, printed_table: Reference) -> dict[str, dict[str, str]]:
    """Return the printed sizes, split and setting by dataset."""
    rows = reference[(reference["table"] == printed_table.table) & reference["metric"].isin((*SIZES, "split"))]
    by_dataset: dict[str, dict[str, str]] = {}
    for row in rows.to_dict("records"):
        texts = by_dataset.setdefault(row["dataset"], {})
        if row["metric"] in SIZES:
            texts |= _texts({row["metric"]: int(row["value"])})
            continue
        texts["split"] = row["value"]
        setting = row["note"].rpartition(";")[2].strip()
        if setting in SETTINGS:
            texts["setting"] = setting
    return by_dataset


def _protocol(study: StudyRecord, label: str) -> dict[str, str]:
    """Return the split and the setting of a dataset; empty if the records have none."""
    protocol = (study.settings.get("protocols") or {}).get(label) or study.settings.get("protocol") or {}
    if "split" not in protocol:
        return {}
    split = protocol["split"]
    ratios_of = split if "kind" in split else protocol["task"]
    ratios = "/".join(f"{100 * ratios_of[role]:g}%" for role in ("train", "val", "test") if role in ratios_of)
    if ratios_of is not split:
        return {"split": f"{ratios} of edges", "setting": protocol["setting"]}
    counts = f"{split.get('train_per_class')}/class, {split.get('val_nodes')}, {split.get('test_nodes') or 'the rest'}"
    texts = {"ratios": ratios, "per_class": counts}
    return {"split": texts.get(split["kind"], split["kind"]), "setting": protocol["setting"]}


def _printed_name(name: str, printed_table: Reference | None, printed: Mapping[str, Any]) -> str:
    return name if name in printed else base_dataset(name, printed_table)


def _texts(sizes: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{value:,}" for name, value in sizes.items()}
