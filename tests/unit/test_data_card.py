"""The data card: numbers worked by hand on a tiny graph, and networkx's where it has them."""

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from fglbench.datasets import catalogue, embedded
from fglbench.datasets.card import data_card, format_card


def test_numbers_worked_by_hand(tiny_graph):
    assert data_card(tiny_graph) == {
        "nodes": 8,
        "edges": 6,
        "features": 3,
        "classes": 2,
        "density": 6 / 28,
        "average_degree": 12 / 8,
        "isolated_nodes": 1,
        "connected_components": 3,
        "largest_component": 4,
        "edge_homophily": 4 / 6,  # 2-3 and 5-6 join two classes
        "label_histogram": [4, 4],
        "unlabelled": 0,
        "feature_density": 10 / 24,
        "feature_storage": "dense",
        "masks": {"train": 2, "val": 2, "test": 3},
    }


def test_numbers_of_networkx(tmp_path):
    club = nx.karate_club_graph()
    spec = catalogue.get("karate")
    graph = embedded.load(spec, spec.read_settings({}), tmp_path)
    card = data_card(graph)
    assert card["density"] == pytest.approx(nx.density(club))
    assert card["average_degree"] == pytest.approx(np.mean([degree for _, degree in club.degree]))
    assert card["connected_components"] == nx.number_connected_components(club)
    same = sum(graph.labels[u] == graph.labels[v] for u, v in club.edges)
    assert card["edge_homophily"] == pytest.approx(same / club.number_of_edges())
    assert card["feature_storage"] == "csr"


def test_unlabelled_nodes_count_nowhere_else(tiny_graph):
    labels = tiny_graph.labels.copy()
    labels[[3, 7]] = -1
    card = data_card(replace(tiny_graph, labels=labels))
    assert card["unlabelled"] == 2
    assert card["label_histogram"] == [4, 2]
    assert card["edge_homophily"] == 4 / 5  # the edge 2-3 has an end without a label


def test_storage_of_features_changes_no_number(tiny_graph):
    dense = data_card(tiny_graph)
    sparse = data_card(replace(tiny_graph, features=sp.csr_matrix(tiny_graph.features)))
    assert sparse.pop("feature_storage") == "csr"
    dense.pop("feature_storage")
    assert sparse == dense


def test_a_graph_without_edges_has_no_homophily(tiny_graph):
    card = data_card(replace(tiny_graph, edges=np.empty((2, 0), dtype=np.int64), masks={}))
    assert card["edge_homophily"] is None
    assert (card["isolated_nodes"], card["connected_components"], card["largest_component"]) == (8, 8, 1)
    json.dumps(card, allow_nan=False)
    assert "edge homophily         -\n" in format_card(card)
    assert "official split         none" in format_card(card)


def test_text_is_aligned_and_complete(tiny_graph):
    card = data_card(tiny_graph) | {"name": "tiny", "title": "Tiny", "about": "Eight nodes.", "settings": {"seed": 3}}
    text = format_card(card | {"cleaning": {**tiny_graph.cleaning, "duplicates_removed": 1_302}})
    lines = text.splitlines()
    assert lines[:3] == ["Tiny (tiny)", "Eight nodes.", ""]
    assert all(line[21:23] == "  " and line[23] != " " for line in lines[3:])
    rows = {line[:21].rstrip(): line[23:] for line in lines[3:]}
    assert rows["nodes"] == "8"
    assert rows["edges"] == "6 undirected"
    assert rows["stored entries"] == "6 in the raw data"
    assert rows["duplicates removed"] == "1,302"
    assert rows["self-loops removed"] == "0"
    assert rows["density"] == "0.214"
    assert rows["edge homophily"] == "0.6667"
    assert rows["nodes per class"] == "4 4"
    assert rows["official split"] == "train 2, val 2, test 3"
    assert rows["settings"] == "seed=3"
