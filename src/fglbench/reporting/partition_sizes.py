"""The table of the clients' sizes: communities, anchors, nodes and edges, each beside the printed value.

Source: Fed-GALA, table 4.2.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fglbench.evaluation.statistics import summarise
from fglbench.records.presentation import Reference, TableSpec
from fglbench.records.study import PROBLEM, StudyRecord
from fglbench.reporting.cells import Table, TableCell
from fglbench.reporting.frames import groups, of_partitions, select, shown
from fglbench.reporting.reference import base_dataset
from fglbench.reporting.tables import mean_text

QUANTITIES = {
    "communities": "avg_communities",
    "anchors": "avg_anchors",
    "nodes": "avg_nodes",
    "edges": "avg_edges",
    "anchors / nodes": "anchor_ratio",
}
"""Quantities of a partition, each with its metric in reference files."""

_DIGITS = {"communities": 1, "anchors": 1, "nodes": 1, "edges": 1, "anchors / nodes": 3}
_NONE = "–"


def partition_sizes_table(study: StudyRecord, spec: TableSpec, reference: pd.DataFrame | None) -> Table:
    """Build the table with one row per (dataset, scheme, clients), in the study's order.

    With a reference, the printed value follows each value of the study.

    Args:
        study: the collected records.
        spec: the table's entry in `study.json`: name, title, where, reference.
        reference: the frame from `reference.load_reference`, or None.

    Returns:
        The table; values are means over the clients of a partition, with standard deviation over seeds.

    Raises:
        ConfigError: `where` names an unknown field.
    """
    frame = select(study.partitions, of_partitions(spec.where), f"table '{spec.name}'")
    sources = ["ours", "printed"] if reference is not None else ["ours"]
    columns: list[tuple[str, ...]] = [
        (name, source) if len(sources) > 1 else (name,) for name in QUANTITIES for source in sources
    ]
    keys, cells, data = [], [], []
    for key, part in groups(frame, list(PROBLEM), study.order):
        keys.append(key)
        coordinates = dict(zip(PROBLEM, key, strict=True))
        ours = _ours(part)
        theirs = {} if reference is None else _printed(study, spec.printed_table, reference, coordinates)
        texts = {"ours": ours, "printed": theirs}
        row = [TableCell(text=texts[source].get(name, _NONE)) for name in QUANTITIES for source in sources]
        cells.append(row)
        data.append(coordinates | {" ".join(column): cell.text for column, cell in zip(columns, row, strict=True)})
    return Table(
        name=spec.name,
        title=spec.heading,
        caption=[
            "Means over the clients of a partition. An anchor is a node that several clients hold; a client's anchors "
            "are its own nodes that others hold and its copies of others' nodes.",
            "Edges are undirected. Numbers with ± are mean and sample standard deviation (n − 1) over seeds.",
        ],
        row_fields=list(PROBLEM),
        rows=[tuple(shown(name, value) for name, value in zip(PROBLEM, key, strict=True)) for key in keys],
        column_fields=["size", "source"] if len(sources) > 1 else ["size"],
        columns=columns,
        cells=cells,
        legend=[(_NONE, "not printed, or not recorded")] if any(c.text == _NONE for row in cells for c in row) else [],
        notes=[],
        data=data,
    )


def _ours(part: pd.DataFrame) -> dict[str, str]:
    """Return the mean over the clients of one partition, summarised over seeds."""
    counted = [name for name in QUANTITIES if name in part and part[name].notna().all()]
    seeds = part.groupby("seed")[counted].mean()
    if "anchors" in seeds:
        seeds["anchors / nodes"] = seeds["anchors"] / seeds["nodes"]
    summaries = {name: summarise(seeds[name].tolist()) for name in seeds.columns}
    return {name: mean_text(summary.mean, summary.std, _DIGITS[name]) for name, summary in summaries.items()}


def _printed(
    study: StudyRecord, printed_table: Reference, reference: pd.DataFrame, coordinates: Mapping[str, Any]
) -> dict[str, str]:
    names = {field: str(study.name(field, coordinates[field])) for field in ("dataset", "scheme")}
    rows = reference[
        (reference["table"] == printed_table.table)
        & (reference["dataset"] == base_dataset(names["dataset"], printed_table))
        & (reference["partition"] == names["scheme"])
        & (reference["clients"] == str(coordinates["clients"]))
    ]
    values = dict(zip(rows["metric"], rows["value"], strict=True))
    return {name: values[metric] for name, metric in QUANTITIES.items() if values.get(metric)}
