"""Louvain: the communities found, and how they become clients."""

import random
import sys

import networkx as nx
import numpy as np
import pytest

from fglbench.datasets.base import Graph, canonical_edges
from fglbench.errors import PartitionError
from fglbench.partition import communities
from fglbench.partition.base import assign_clients
from fglbench.partition.schemes.louvain import cut, deal
from fglbench.partition.search import louvain_communities
from fglbench.runtime import child

ALGORITHMS = ["python-louvain", "igraph", "igraph-leiden"]


def edges_once(network: nx.Graph) -> np.ndarray:
    return np.array(sorted(tuple(sorted(edge)) for edge in network.edges)).T


def graph_of(network: nx.Graph) -> Graph:
    nodes = len(network)
    edges, _ = canonical_edges(np.array(network.edges).T, nodes)
    return Graph(edges, np.ones((nodes, 1), np.float32), np.zeros(nodes, np.int64), 1)


def groups(membership: np.ndarray) -> list[set[int]]:
    return [set(np.flatnonzero(membership == label).tolist()) for label in np.unique(membership)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_finds_planted_communities(algorithm):
    network = nx.connected_caveman_graph(7, 9)
    found = louvain_communities(edges_once(network), 63, algorithm, resolution=1.0, seed=4)
    assert found.dtype == np.int64
    assert sorted(map(min, groups(found))) == [0, 9, 18, 27, 36, 45, 54]
    assert all(len(group) == 9 for group in groups(found))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_modularity_is_that_of_networkx_louvain(algorithm):
    network = nx.karate_club_graph()
    for _, _, data in network.edges(data=True):
        data.clear()
    found = louvain_communities(edges_once(network), 34, algorithm, resolution=1.0, seed=0)
    reference = nx.community.modularity(network, nx.community.louvain_communities(network, seed=0))
    assert nx.community.modularity(network, groups(found)) >= reference - 0.03


@pytest.mark.parametrize("algorithm", ALGORITHMS[1:])
def test_resolution_above_one_gives_more_communities(algorithm):
    edges = edges_once(nx.gnp_random_graph(120, 0.08, seed=3))
    counts = [len(groups(louvain_communities(edges, 120, algorithm, value, seed=0))) for value in (0.3, 1.0, 4.0)]
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nodes_without_edges_are_communities_of_their_own(algorithm):
    found = louvain_communities(np.array([[0, 0, 1], [1, 2, 2]]), 5, algorithm, resolution=1.0, seed=0)
    assert sorted(map(sorted, groups(found))) == [[0, 1, 2], [3], [4]]


def test_long_communities_are_cut_in_ascending_ids():
    membership = np.array([5, 2, 5, 5, 2, 5, 5, 9, 5, 5])
    assert [piece.tolist() for piece in cut(membership, 3)] == [[0, 2, 3], [5, 6, 8], [1, 4], [7], [9]]


def test_pieces_go_to_the_client_with_the_fewest_nodes():
    pieces = [np.array(piece) for piece in ([0, 2, 3], [5, 6, 8], [1, 4], [7], [9])]
    # sizes: 3 0 0 | 3 3 0 | 3 3 2 | 3 3 3 | 4 3 3
    assert [part.tolist() for part in deal(pieces, 3)] == [[0, 2, 3, 9], [5, 6, 8], [1, 4, 7]]


def test_dealt_sizes_are_balanced():
    stream = np.random.default_rng(0)
    membership = np.repeat(np.arange(40), stream.integers(1, 60, size=40))
    for clients in (2, 7, 20):
        sizes = [len(part) for part in deal(cut(membership, len(membership) // clients), clients)]
        # The last piece of the fullest client went to the emptiest one, so they differ by one piece at most.
        assert max(sizes) - min(sizes) <= len(membership) // clients and sum(sizes) == len(membership)


def test_the_algorithm_is_chosen_by_size_and_resolution_and_recorded():
    graph = graph_of(nx.connected_caveman_graph(4, 6))

    def note(**chosen) -> str:
        return assign_clients(graph, "caves", "louvain", 2, chosen, seed=0).notes[0]

    assert note(igraph_above_edges=graph.num_edges).startswith("Louvain: python-louvain (0.")
    assert note(igraph_above_edges=graph.num_edges - 1).startswith("Louvain: igraph (")
    assert note(leiden_above_edges=graph.num_edges - 1).startswith("Louvain: igraph-leiden (")
    assert note(resolution=0.9).startswith("Louvain: igraph (") and "4 communities" in note(resolution=0.9)


@pytest.mark.parametrize("algorithm", ALGORITHMS[1:])
def test_igraph_reads_its_seed_and_not_the_global_generator(algorithm):
    edges = edges_once(nx.gnp_random_graph(200, 0.03, seed=0))
    found = []
    for global_seed, seed in ((1, 5), (2, 5), (1, 6)):
        random.seed(global_seed)
        found.append(louvain_communities(edges, 200, algorithm, resolution=1.0, seed=seed).tolist())
    assert found[0] == found[1] != found[2]


def test_a_search_without_end_is_ended(monkeypatch):
    monkeypatch.setattr(child, "COMMAND", [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(communities, "TIME_LIMIT_S", 1)
    graph = graph_of(nx.path_graph(6))
    with pytest.raises(PartitionError, match=r"'path'.*Louvain \(python-louvain\) did not finish within 1 s.*another"):
        assign_clients(graph, "path", "louvain", 2, {}, seed=0)
