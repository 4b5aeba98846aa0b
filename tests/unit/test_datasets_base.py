"""The canonical graph, against networkx, and its files."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from fglbench.datasets.base import canonical_edges, content_hash
from fglbench.datasets.card import data_card
from fglbench.datasets.components import largest_component
from fglbench.errors import StorageError
from fglbench.records.graph import load_graph, save_graph


@pytest.mark.parametrize("seed", range(8))
def test_canonical_edges_agree_with_networkx(seed):
    pairs = np.random.default_rng(seed).integers(0, 12, size=(2, 60))
    before = pairs.copy()
    edges, cleaning = canonical_edges(pairs, 12)
    graph = nx.Graph(pairs.T.tolist())
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    expected = sorted(list(graph.edges) + [(v, u) for u, v in graph.edges])
    assert edges.T.tolist() == [list(pair) for pair in expected]
    assert edges.dtype == np.int64
    directed = nx.MultiDiGraph(pairs.T.tolist())
    assert cleaning["stored_entries"] == directed.number_of_edges() == 60
    assert cleaning["self_loops_removed"] == nx.number_of_selfloops(directed)
    simple = nx.DiGraph([pair for pair in pairs.T.tolist() if pair[0] != pair[1]])
    assert cleaning["duplicates_removed"] == 60 - cleaning["self_loops_removed"] - simple.number_of_edges()
    assert cleaning["reverse_added"] == len(expected) - simple.number_of_edges()
    np.testing.assert_array_equal(pairs, before)


def test_canonical_edges_of_nothing():
    edges, cleaning = canonical_edges(np.empty((2, 0)), 3)
    assert edges.shape == (2, 0)
    assert set(cleaning.values()) == {0}


def test_adjacency_is_the_graph(tiny_graph):
    graph = nx.from_scipy_sparse_array(tiny_graph.adjacency())
    assert sorted(graph.edges) == [(0, 1), (0, 2), (1, 2), (2, 3), (4, 5), (5, 6)]
    assert tiny_graph.num_edges == 6


@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_a_graph_survives_its_files(tiny_graph, tmp_path, storage):
    graph = tiny_graph if storage == "dense" else replace(tiny_graph, features=sp.csr_matrix(tiny_graph.features))
    save_graph(graph, tmp_path, data_card(graph))
    loaded = load_graph(tmp_path)
    assert content_hash(loaded) == content_hash(graph)
    assert type(loaded.features) is type(graph.features)
    assert (loaded.classes, loaded.cleaning) == (graph.classes, graph.cleaning)
    np.testing.assert_array_equal(loaded.masks["val"], graph.masks["val"])


def test_content_hash_sees_one_label(tiny_graph):
    labels = tiny_graph.labels.copy()
    labels[7] = 0
    assert content_hash(replace(tiny_graph, labels=labels)) != content_hash(tiny_graph)


def test_a_truncated_graph_is_an_error(tiny_graph, tmp_path):
    save_graph(tiny_graph, tmp_path, {})
    archive = tmp_path / "graph.npz"
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(StorageError, match=r"graph\.npz"):
        load_graph(tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_largest_component_agrees_with_networkx(tiny_graph, seed):
    generator = np.random.default_rng(seed)
    edges, cleaning = canonical_edges(generator.integers(0, 40, size=(2, 22)), 40)
    labels = generator.integers(0, 2, 40)
    features = sp.csr_matrix(np.arange(40, dtype=np.float32)[:, None] + 1)
    mask = generator.random(40) < 0.5
    graph = replace(tiny_graph, edges=edges, labels=labels, features=features, masks={"test": mask}, cleaning=cleaning)
    reference = nx.from_scipy_sparse_array(graph.adjacency())
    nodes = sorted(max(nx.connected_components(reference), key=lambda part: (len(part), -min(part))))
    part = largest_component(graph)
    np.testing.assert_array_equal(part.features.toarray()[:, 0] - 1, nodes)
    np.testing.assert_array_equal(part.labels, labels[nodes])
    np.testing.assert_array_equal(part.masks["test"], mask[nodes])
    inside = nx.convert_node_labels_to_integers(reference.subgraph(nodes), ordering="sorted")
    assert nx.utils.edges_equal(nx.from_scipy_sparse_array(part.adjacency()).edges, inside.edges)
    assert part.cleaning["nodes_removed"] == 40 - len(nodes)
    assert part.cleaning["edges_removed"] == graph.num_edges - part.num_edges
