"""The partition card: numbers worked by hand."""

import json

import numpy as np
import pytest

from fglbench.datasets.base import Graph, canonical_edges
from fglbench.partition.base import Assignment
from fglbench.partition.card import mean_cosine_distance, partition_card
from fglbench.partition.split import NONE, TEST, TRAIN, VAL, counts_of


@pytest.fixture
def six_nodes() -> Graph:
    """Edges 0-1 0-2 1-2 2-3 3-4; node 5 alone. Labels 0 0 1 1 1 and none."""
    edges, cleaning = canonical_edges(np.array([[0, 0, 1, 2, 3], [1, 2, 2, 3, 4]]), 6)
    return Graph(edges, np.ones((6, 1), np.float32), np.array([0, 0, 1, 1, 1, -1]), 3, cleaning=cleaning)


def test_hand_worked_card(six_nodes):
    parts = [np.array([0, 1, 3]), np.array([2, 4, 5])]
    roles = [np.array([TRAIN, TEST, VAL], np.int8), np.array([TRAIN, VAL, NONE], np.int8)]
    card = partition_card(six_nodes, Assignment(parts, ["a note"]), counts_of(roles))
    assert card == {
        "nodes": [3, 3],
        "edges": [1, 0],  # 0-1 alone is inside a client
        "isolated": [1, 3],
        "classes": [[2, 1, 0], [0, 2, 0]],
        "unlabelled": [0, 1],
        "train": [1, 1],
        "val": [1, 1],
        "test": [1, 0],
        "total_nodes": 6,
        "total_edges": 5,
        "cut_edges": 4,
        "missing_link_share": 0.8,
        "cosine_distance": pytest.approx(1 - 1 / np.sqrt(5)),  # (2, 1, 0) and (0, 2, 0)
        "without": {"train": [], "val": [], "test": [1]},
        "notes": ["a note"],
    }
    assert json.loads(json.dumps(card, allow_nan=False))["nodes"] == [3, 3]


def test_shared_nodes_count_an_edge_as_missing_only_if_no_client_has_it(six_nodes):
    parts = [np.array([0, 1, 2]), np.array([1, 2, 3])]
    card = partition_card(six_nodes, Assignment(parts), counts_of([np.zeros(3, np.int8)] * 2))
    assert card["edges"] == [3, 2]
    assert card["cut_edges"] == 1  # 3-4; the edge 1-2 is in both clients


def test_copies_and_what_is_not_covered_are_counted(six_nodes):
    """Node 2 is a copy at client 0, nodes 1 and 2 would be joined there; node 5 is held out, node 4 left out."""
    parts = [np.array([0, 1, 2]), np.array([1, 2, 3])]
    copies = [np.array([False, True, True]), np.zeros(3, dtype=bool)]
    assignment = Assignment(parts, copies=copies, held_out=np.array([5]), held_out_clients=(1,))
    card = partition_card(six_nodes, assignment, counts_of([np.zeros(3, np.int8)] * 2))
    assert card["edges"] == [2, 2]  # 0-1 and 0-2, not 1-2; 1-2 and 2-3
    assert card["cut_edges"] == 1
    assert card["copies"] == [2, 0] and card["anchors"] == [2, 2]
    assert card["holders"] == [2, 2, 2]  # 4 and 5, 0 and 3, 1 and 2
    assert (card["shared_nodes"], card["left_out"], card["held_out"], card["held_out_clients"]) == (2, 1, 1, [1])
    json.dumps(card, allow_nan=False)


def test_graph_without_edges_has_no_missing_links():
    graph = Graph(np.zeros((2, 0), np.int64), np.ones((3, 1), np.float32), np.array([-1, -1, -1]), 2)
    assignment = Assignment([np.array([0, 1]), np.array([2])])
    card = partition_card(graph, assignment, counts_of([np.zeros(2, np.int8), np.zeros(1, np.int8)]))
    assert (card["edges"], card["cut_edges"], card["missing_link_share"]) == ([0, 0], 0, 0.0)
    assert card["cosine_distance"] is None
    assert card["without"] == {"train": [0, 1], "val": [0, 1], "test": [0, 1]}


@pytest.mark.parametrize(
    ("histogram", "expected"),
    [
        ([[1, 0], [0, 1]], 1.0),
        ([[3, 6], [1, 2], [10, 20]], 0.0),
        ([[1, 0], [0, 1], [1, 0]], 2 / 3),  # pairs: 1, 0, 1
        ([[3, 4], [4, 3]], 1 / 25),
        ([[1, 0], [0, 1], [0, 0]], 1.0),  # the client without labels is left out
        ([[1, 0], [0, 0]], None),
        ([[5, 5]], None),
    ],
)
def test_mean_cosine_distance(histogram, expected):
    assert mean_cosine_distance(np.array(histogram)) == (None if expected is None else pytest.approx(expected))
