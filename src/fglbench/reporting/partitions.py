"""The table of a study's partitions: sizes, cut edges and label distances between clients."""

from typing import Any

import pandas as pd

from fglbench.evaluation.statistics import summarise
from fglbench.records.study import PROBLEM, StudyRecord
from fglbench.reporting.cells import Table, TableCell
from fglbench.reporting.frames import groups, shown
from fglbench.reporting.tables import mean_text

COLUMNS = (
    "nodes per client",
    "edges in clients",
    "cut edges",
    "cut share (%)",
    "label distance",
    "clients without nodes",
)


def partition_table(study: StudyRecord) -> Table:
    """Build the table with one row per (dataset, scheme, clients), over all seeds.

    Args:
        study: the collected records.

    Returns:
        The table, in the study's order.
    """
    parts = list(groups(study.partitions, list(PROBLEM), study.order))
    keys, cells = [key for key, _ in parts], [_row(part) for _, part in parts]
    rows = [tuple(shown(name, value) for name, value in zip(PROBLEM, key, strict=True)) for key in keys]
    return Table(
        name="partitions",
        title="Sizes, missing links and label distributions",
        caption=[
            "Nodes per client: smallest, median and largest over all seeds; clients without nodes are counted over all "
            "seeds.",
            "Edges are undirected; cut edges are the edges of the whole graph that no client has.",
            "Label distance: mean cosine distance between the label distributions of the clients.",
            "Numbers with ± are mean and sample standard deviation (n − 1) over seeds.",
        ],
        row_fields=list(PROBLEM),
        rows=rows,
        column_fields=["value"],
        columns=[(name,) for name in COLUMNS],
        cells=cells,
        legend=[],
        notes=[],
        data=[
            dict(zip(PROBLEM, key, strict=True)) | {name: cell.text for name, cell in zip(COLUMNS, row, strict=True)}
            for key, row in zip(keys, cells, strict=True)
        ],
    )


def _row(part: pd.DataFrame) -> list[TableCell]:
    seeds = part.groupby("seed").agg(
        edges=("edges", "sum"), cut=("cut_edges", "first"), distance=("cosine_distance", "first")
    )
    nodes = part["nodes"]
    total = seeds["edges"] + seeds["cut"]
    share = (seeds["cut"] / total.where(total > 0, 1) * 100).tolist()
    sizes = f"{nodes.min()} / {nodes.median():g} / {nodes.max()}"
    empty = [f"{int((part[role] == 0).sum())} {role}" for role in ("train", "val", "test") if (part[role] == 0).any()]
    return [
        TableCell(text=sizes),
        _over_seeds(seeds["edges"].tolist(), 0),
        _over_seeds(seeds["cut"].tolist(), 0),
        _over_seeds(share, 1),
        _over_seeds(seeds["distance"].dropna().tolist(), 3),
        TableCell(text=", ".join(empty) or "none"),
    ]


def _over_seeds(values: list[Any], digits: int) -> TableCell:
    if not values:
        return TableCell(text="–")
    summary = summarise(values)
    return TableCell(text=mean_text(summary.mean, summary.std, digits))
