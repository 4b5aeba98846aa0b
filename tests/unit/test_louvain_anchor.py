"""Louvain with anchors: which nodes are copied to which clients, and which edges a client has."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fglbench.datasets.base import Graph, canonical_edges
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment, assign_clients
from fglbench.partition.card import partition_card
from fglbench.partition.schemes.louvain_anchor import with_neighbours
from fglbench.partition.split import counts_of
from fglbench.partition.subgraph import induced_edges


def graph_of(network: nx.Graph) -> Graph:
    nodes = len(network)
    edges, _ = canonical_edges(np.array(network.edges, dtype=np.int64).reshape(-1, 2).T, nodes)
    return Graph(edges, np.ones((nodes, 1), np.float32), np.zeros(nodes, np.int64), 1)


def card_of(graph: Graph, assignment: Assignment) -> dict:
    return partition_card(graph, assignment, counts_of([np.zeros(len(part), np.int8) for part in assignment.parts]))


def test_neighbours_across_a_cut_are_copied_by_hand():
    """Client 0 owns 0 1 2, client 1 owns 3 4 5 6; the edges 2-3, 2-4 are cut, and 3-4 joins two copies at client 0."""
    network = nx.Graph([(0, 1), (1, 2), (2, 3), (2, 4), (3, 4), (4, 5), (5, 6)])
    graph, owner = graph_of(network), np.array([0, 0, 0, 1, 1, 1, 1])
    parts, copies = with_neighbours(graph, owner, 2)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6]]
    assert [part[copy].tolist() for part, copy in zip(parts, copies, strict=True)] == [[3, 4], [2]]
    card = card_of(graph, Assignment(parts, copies=copies, communities=[1, 1]))
    assert card["edges"] == [4, 5]  # 0-1 1-2 2-3 2-4, without 3-4; 2-3 2-4 3-4 4-5 5-6
    assert (card["copies"], card["anchors"], card["communities"]) == ([2, 1], [3, 3], [1, 1])
    assert (card["shared_nodes"], card["holders"], card["cut_edges"]) == (3, [0, 4, 3], 0)


def test_communities_are_dealt_in_turn_largest_first():
    """Cliques of 9, 7, 6, 5 and 4 nodes, joined in a row by one edge each."""
    sizes = [6, 9, 4, 7, 5]
    network = nx.disjoint_union_all([nx.complete_graph(size) for size in sizes])
    starts = np.cumsum([0, *sizes])
    network.add_edges_from((start - 1, start) for start in starts[1:-1])
    found = assign_clients(graph_of(network), "cliques", "louvain-anchor", 2, {}, seed=0)
    cliques = [set(range(start, start + size)) for start, size in zip(starts, sizes, strict=False)]
    assert [set(own.tolist()) for own in found.owned] == [
        cliques[1] | cliques[0] | cliques[2],  # first, third and fifth
        cliques[3] | cliques[4],
    ]
    assert found.communities == [3, 2] and "found 5 communities, dealt in turn" in found.notes[0]


def test_edges_between_copies_may_be_kept():
    """Of two cliques joined by the edges 0-4 and 0-5, the first client has copies of 4 and 5, which are joined."""
    network = nx.disjoint_union(nx.complete_graph(4), nx.complete_graph(4))
    network.add_edges_from([(0, 4), (0, 5)])
    graph = graph_of(network)
    owned, kept = (
        assign_clients(graph, "cliques", "louvain-anchor", 2, {"between_copies": chosen}, seed=0)
        for chosen in (False, True)
    )
    assert [part.tolist() for part in owned.parts] == [part.tolist() for part in kept.parts]
    assert kept.copies is None
    first, second = card_of(graph, owned), card_of(graph, kept)
    assert sum(first["edges"]) == 12 + 2 * 2 and sum(second["edges"]) == 12 + 2 * 2 + 1
    assert first["anchors"] == second["anchors"]


def test_more_clients_than_communities_are_refused():
    with pytest.raises(PartitionError, match=r"'caves'.*4 communities for 5 clients\. Request at most 4"):
        assign_clients(graph_of(nx.connected_caveman_graph(4, 6)), "caves", "louvain-anchor", 5, {}, seed=0)


@pytest.mark.parametrize("clients", range(1, 9))
def test_no_edge_is_lost(clients):
    network = nx.connected_caveman_graph(9, 7)
    network.add_edges_from((node, node + 20) for node in range(0, 40, 3))
    graph = graph_of(network)
    found = assign_clients(graph, "caves", "louvain-anchor", clients, {"resolution": 2.0}, seed=1)
    card = card_of(graph, found)
    assert card["cut_edges"] == 0 and card.get("left_out", 0) == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 25), st.integers(0, 60), st.integers(1, 6), st.integers(0, 10**6))
def test_copies_are_the_cut_endpoints_and_edges_are_there_once_for_each_owner(nodes, edges, clients, seed):
    network = nx.gnm_random_graph(nodes, edges, seed=seed)
    owner = np.random.default_rng(seed).integers(clients, size=nodes)
    owner[: min(clients, nodes)] = np.arange(min(clients, nodes))
    graph, clients = graph_of(network), int(owner.max()) + 1
    parts, copies = with_neighbours(graph, owner, clients)
    cut = [(u, v) for u, v in network.edges if owner[u] != owner[v]]
    endpoints = {(int(owner[u]), v) for u, v in cut} | {(int(owner[v]), u) for u, v in cut}
    held = {(c, int(node)) for c, (part, copy) in enumerate(zip(parts, copies, strict=True)) for node in part[copy]}
    assert held == endpoints
    assert all((np.diff(part) > 0).all() for part in parts)
    flat, ptr = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
    stacked = induced_edges(graph, flat, ptr, np.concatenate(copies))
    rows, columns = stacked.nonzero()
    client = np.repeat(np.arange(clients), np.diff(ptr))
    ends = zip(client[rows].tolist(), flat[rows].tolist(), flat[columns].tolist(), strict=True)
    have = {(of, min(u, v), max(u, v)) for of, u, v in ends}
    assert have == {(int(owner[end]), min(edge), max(edge)) for edge in network.edges for end in edge}
