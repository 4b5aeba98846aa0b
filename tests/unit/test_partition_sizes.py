"""The table of partitions: means over clients, over seeds, beside what a paper prints."""

import pandas as pd
import pytest
from synthetic_records import study_of, table_spec

from fglbench.errors import ConfigError
from fglbench.reporting.partition_sizes import partition_sizes_table

PRINTED = pd.DataFrame(
    [
        ["4.2", "cora", "louvain_anchor", "2", "avg_nodes", "6.5"],
        ["4.2", "cora", "louvain_anchor", "2", "anchor_ratio", "0.384"],
        ["4.2", "cora", "louvain_anchor", "4", "avg_nodes", "9"],
        ["4.2", "pubmed", "louvain_anchor", "2", "avg_nodes", "99"],
    ],
    columns=["table", "dataset", "partition", "clients", "metric", "value"],
)


def rows(seed: int, nodes: list[int], anchors: list[int], **place) -> list[dict]:
    base = {"dataset": "Cora", "scheme": "anchored", "clients": len(nodes), "seed": seed}
    own = [{"nodes": n, "edges": 2 * n, "communities": 3, "anchors": a} for n, a in zip(nodes, anchors, strict=True)]
    return [base | place | client for client in own]


def study():
    found = study_of(
        pd.DataFrame(),
        names={"dataset": {"Cora": "cora-lcc"}, "scheme": {"anchored": "louvain_anchor"}},
        order={"dataset": ["Cora"], "scheme": ["anchored", "plain"], "clients": [2, 3]},
    )
    disjoint = [
        {"dataset": "Cora", "scheme": "plain", "clients": 2, "seed": 0, "nodes": nodes, "edges": 1} for nodes in (3, 4)
    ]
    made = [*rows(0, [6, 8], [2, 2]), *rows(1, [5, 9], [4, 2]), *rows(0, [2, 2, 2], [1, 1, 1]), *disjoint]
    return type(found)(**{**vars(found), "partitions": pd.DataFrame(made)})


def texts(table) -> dict[tuple[str, ...], dict[tuple[str, ...], str]]:
    return {
        row: {column: cell.text for column, cell in zip(table.columns, cells, strict=True)}
        for row, cells in zip(table.rows, table.cells, strict=True)
    }


def test_ours_by_hand_beside_the_printed_numbers():
    made = partition_sizes_table(study(), table_spec(where={}, reference={"table": "4.2"}), PRINTED)
    found = texts(made)
    assert list(found) == [
        ("Cora", "anchored", "2 clients"),
        ("Cora", "anchored", "3 clients"),
        ("Cora", "plain", "2 clients"),
    ]
    first = found[made.rows[0]]
    assert first["nodes", "ours"] == "7.0 ± 0.0" and first["nodes", "printed"] == "6.5"
    assert first["anchors", "ours"] == "2.5 ± 0.7"  # 2 and 3
    assert first["anchors / nodes", "ours"] == "0.357 ± 0.101"  # 2 / 7 and 3 / 7
    assert first["anchors / nodes", "printed"] == "0.384" and first["edges", "printed"] == "–"
    assert found[made.rows[1]]["nodes", "printed"] == "–"  # nothing is printed of 3 clients
    assert found[made.rows[2]]["anchors", "ours"] == "–" and found[made.rows[2]]["nodes", "ours"] == "3.5"
    assert made.data[0]["nodes printed"] == "6.5"


def test_without_a_reference_and_with_a_choice_of_clients():
    made = partition_sizes_table(study(), table_spec(where={"clients": [3], "label": ["FedAvg"]}), None)
    assert made.rows == [("Cora", "anchored", "3 clients")]
    assert [name for (name,) in made.columns] == ["communities", "anchors", "nodes", "edges", "anchors / nodes"]
    assert made.cells[0][4].text == "0.500"


def test_an_unknown_field_is_refused():
    broken = study()
    with pytest.raises(ConfigError, match="'where' names 'scheme'"):
        partition_sizes_table(
            type(broken)(**{**vars(broken), "partitions": broken.partitions.drop(columns="scheme")}),
            table_spec(where={"scheme": ["plain"]}),
            None,
        )
