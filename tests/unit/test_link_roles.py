"""Roles of edges: counts, negatives, and what messages pass on, by hand and by brute force."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import BEYOND_A_COVER, Case, beyond_a_cover, random_graph, tiny_case, with_links

from fglbench import registry
from fglbench.datasets.base import Graph, canonical_edges
from fglbench.errors import PartitionError, StorageError
from fglbench.partition.links import Pairs, draw_pairs
from fglbench.partition.ratios import NONE, TEST, VAL
from fglbench.partition.subgraph import induced_edges, without_edges
from fglbench.records.graph import save_graph
from fglbench.records.split import load_split
from fglbench.stages.preprocess import load_federation, preprocess
from fglbench.stages.split import split
from fglbench.storage import read_json, read_npz, write_npz

DEFAULT = (0.85, 0.05, 0.1)
LINKS = {"name": "link-prediction", "version": 1, "settings": {}}


def graph_of(pairs: Any, nodes: int) -> Graph:
    edges, cleaning = canonical_edges(np.array(pairs).T, nodes)
    return Graph(edges, np.eye(nodes, dtype=np.float32), np.zeros(nodes, dtype=np.int64), 1, cleaning=cleaning)


def drawn(graph: Graph, parts: list[np.ndarray], ratios: Any = DEFAULT, seed: int = 0) -> tuple[Pairs, np.ndarray]:
    nodes, ptr = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
    adjacency = induced_edges(graph, nodes, ptr)
    return draw_pairs(adjacency, nodes, ptr, graph.edges, ratios, np.random.default_rng(seed))


def joined(graph: Graph) -> set[tuple[int, int]]:
    return {(int(u), int(v)) for u, v in graph.edges.T}


def test_a_cycle_of_twenty_nodes_by_hand() -> None:
    graph = graph_of([(i, (i + 1) % 20) for i in range(20)], 20)
    pairs, training = drawn(graph, [np.arange(20)])
    assert training.tolist() == [17]  # 0.85, 0.05 and 0.1 of 20 edges
    assert pairs.count(VAL).tolist() == [2]  # one edge, one pair without
    assert pairs.count(TEST).tolist() == [4]
    assert pairs.edge.tolist() == [True, False, True, True, False, False]
    assert pairs.role.tolist() == [VAL, VAL, TEST, TEST, TEST, TEST]
    assert all(tuple(ends) in joined(graph) for ends in pairs.ends[pairs.edge])


@pytest.mark.parametrize("seed", range(5))
def test_negatives_are_distinct_absent_from_the_whole_graph_and_of_one_client(seed: int) -> None:
    graph = random_graph(90, 3, 3, 300, seed, sparse=True)
    owner = np.random.default_rng(seed).permutation(np.arange(90) % 4)
    parts = [np.flatnonzero(owner == client) for client in range(4)]
    pairs, training = drawn(graph, parts, (0.5, 0.2, 0.3), seed)
    nodes = np.concatenate(parts)
    seen: set[tuple[int, int]] = set()
    for client, part in enumerate(parts):
        own = slice(pairs.ptr[client], pairs.ptr[client + 1])
        inside = {(u, v) for u, v in combinations(part.tolist(), 2) if (u, v) in joined(graph)}
        role, edge, ends = pairs.role[own], pairs.edge[own], nodes[pairs.ends[own]]
        for code in (VAL, TEST):
            assert (edge & (role == code)).sum() == (~edge & (role == code)).sum()
        assert training[client] + edge.sum() == len(inside)
        for (u, v), is_edge in zip(ends.tolist(), edge, strict=True):
            assert u < v
            assert ((u, v) in inside) == is_edge
            assert is_edge or (u, v) not in joined(graph)
            assert {u, v} <= set(part.tolist())
            assert (u, v) not in seen
            seen.add((u, v))


def test_what_crosses_between_clients_is_no_negative_either() -> None:
    """Two clients hold the same nodes but for one; the edges that only one of them has are of the whole graph."""
    graph = graph_of([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5), (1, 4)], 6)
    parts = [np.arange(5), np.arange(1, 6)]
    for seed in range(20):
        pairs, _ = drawn(graph, parts, (0.4, 0.3, 0.3), seed)
        nodes = np.concatenate(parts)
        role_of: dict[tuple[int, int], int] = {}
        for ends, role, edge in zip(nodes[pairs.ends].tolist(), pairs.role, pairs.edge, strict=True):
            assert (tuple(ends) in joined(graph)) == edge
            if role != NONE:
                assert role_of.setdefault(tuple(ends), int(role)) == role  # one role, whoever holds it


def test_nearly_complete_clients_hide_edges_that_have_no_counterpart() -> None:
    everything = list(combinations(range(6), 2))
    graph = graph_of([pair for pair in everything if pair != (0, 1)], 6)  # 14 edges, one pair without
    pairs, training = drawn(graph, [np.arange(6)], (0.5, 0.2, 0.3))
    assert training.tolist() == [7]
    assert (~pairs.edge).sum() == 1
    assert pairs.ends[~pairs.edge].tolist() == [[0, 1]]
    assert pairs.count(VAL).tolist() == [2]
    assert pairs.count(TEST).tolist() == [0]
    assert (pairs.role == NONE).sum() == 6  # neither trained on nor scored
    assert pairs.edge.sum() + training[0] == 14


def test_clients_without_edges_have_no_pairs(tmp_path: Path) -> None:
    case = with_links(tiny_case(tmp_path), tmp_path / "links")
    assert case.pairs is not None
    assert case.pairs.ptr[-1] == case.pairs.ptr[-2]  # the last client has no edge


@pytest.mark.parametrize("kind", BEYOND_A_COVER)
def test_no_client_passes_messages_on_what_another_one_scores(kind: str, tmp_path: Path) -> None:
    case = with_links(beyond_a_cover(kind, tmp_path), tmp_path / "links")
    federation, pairs = case.federation("mlp"), case.pairs
    assert pairs is not None
    scored = {tuple(ends) for ends in case.nodes[pairs.ends[pairs.edge]].tolist()}
    used = {tuple(sorted(ends)) for ends in case.nodes[np.stack(federation.adjacency.nonzero(), 1)].tolist()}
    assert scored
    assert not scored & used


def changed_links(case: Case, folder: Path) -> Case:
    """The same training edges, and other edges scored: those that were are gone, and some that were none are there."""
    assert case.pairs is not None
    pairs, nodes = case.pairs, case.nodes
    gone = {tuple(ends) for ends in nodes[pairs.ends[pairs.edge]].tolist()}
    kept = [pair for pair in case.graph.edges.T.tolist() if tuple(sorted(pair)) not in gone]
    new = nodes[pairs.ends[~pairs.edge]].tolist()
    edges, cleaning = canonical_edges(np.array(kept + new).T, case.graph.num_nodes)
    graph = Graph(edges, case.graph.features, case.graph.labels, case.graph.classes, cleaning=cleaning)
    other = Pairs(pairs.ends, pairs.ptr, pairs.role, ~pairs.edge)
    return Case(graph, nodes, case.ptr, case.role, folder, case.filled, case.copy, other)


@pytest.mark.parametrize("backbone", registry.names("backbone"))
def test_scored_edges_change_no_input_of_training(backbone: str, tmp_path: Path) -> None:
    case = with_links(tiny_case(tmp_path / "one", sizes=(30, 25)), tmp_path / "links", (0.5, 0.2, 0.3))
    one, other = (own.federation(backbone) for own in (case, changed_links(case, tmp_path / "other")))
    assert (one.adjacency != other.adjacency).nnz == 0
    for request, made in one.precomputed.items():
        assert (made.operator != other.precomputed[request].operator).nnz == 0
        for matrix, changed in zip(made.features, other.precomputed[request].features, strict=True):
            assert np.array_equal(
                matrix.toarray() if not isinstance(matrix, np.ndarray) else matrix,
                changed.toarray() if not isinstance(changed, np.ndarray) else changed,
            )
    assert one.pairs is not None and other.pairs is not None
    assert (one.pairs.edge != other.pairs.edge).all()


def test_without_edges_by_hand() -> None:
    graph = graph_of([(0, 1), (1, 2), (0, 2)], 3)
    left = without_edges(graph.adjacency(), np.array([[1, 2]]))
    assert left.toarray().tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert without_edges(graph.adjacency(), np.zeros((0, 2), dtype=np.int64)).nnz == 6


def spec(**changes: Any) -> dict[str, Any]:
    return {"dataset": "tiny", "scheme": "random", "clients": 3, "settings": {}, "split": {}, "task": LINKS, **changes}


def test_the_split_stage_stores_pairs_and_counts_them(tmp_path: Path) -> None:
    graph = random_graph(60, 3, 3, 240, 0, sparse=True)
    save_graph(graph, tmp_path / "graph", {})
    split(tmp_path / "graph", spec(), [0, 1], tmp_path / "split")
    found, card = load_split(tmp_path / "split/seed0"), read_json(tmp_path / "split/seed0/card.json")
    assert found.pairs is not None
    assert card["val"] == found.pairs.count(VAL).tolist()
    assert card["test"] == found.pairs.count(TEST).tolist()
    assert card["request"]["task"] == LINKS
    hidden = np.bincount(np.searchsorted(found.ptr, found.pairs.ends[found.pairs.edge, 0], "right") - 1, minlength=3)
    assert (np.array(card["train"]) + hidden).tolist() == card["edges"]
    assert not found.role.any()
    other = load_split(tmp_path / "split/seed1").pairs
    assert other is not None and not np.array_equal(other.ends, found.pairs.ends)
    needs = {"r": 0.5, "hops": 1, "features": "raw"}
    preprocess(tmp_path / "graph", tmp_path / "split", needs, [0], tmp_path / "prepared")
    federation = load_federation(tmp_path / "graph", tmp_path / "prepared/seed0", needs)
    assert federation.adjacency.nnz == 2 * sum(card["train"])
    assert federation.pairs is not None and np.array_equal(federation.pairs.ends, found.pairs.ends)


def test_clients_that_lack_edges_follow_the_policy(tmp_path: Path) -> None:
    graph = random_graph(30, 3, 3, 25, 0, sparse=True)
    save_graph(graph, tmp_path / "graph", {})
    split(tmp_path / "graph", spec(clients=6), [0], tmp_path / "split")
    card = read_json(tmp_path / "split/seed0/card.json")
    assert card["without"]["test"]
    with pytest.raises(PartitionError, match="no test targets at clients"):
        split(tmp_path / "graph", spec(clients=6, split={"empty": "error"}), [0], tmp_path / "refused")
    assert not (tmp_path / "refused/seed0").exists()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("pairs", lambda ends: ends[:-1], "numbers of pairs and of their roles differ"),
        ("pairs", lambda ends: ends + 10**6, "outside its client"),
    ],
)
def test_pairs_that_contradict_themselves_are_refused(name: str, change: Any, message: str) -> None:
    pairs, _ = drawn(random_graph(40, 3, 3, 160, 0, sparse=True), [np.arange(20), np.arange(20, 40)])
    arrays = {**pairs.arrays(), name: change(pairs.arrays()[name])}
    changed = Pairs.from_arrays(arrays)
    assert changed is not None
    assert message in str(changed.problem(np.array([0, 20, 40])))
    assert pairs.problem(np.array([0, 20, 40])) is None


def test_a_damaged_split_of_links_is_refused(tmp_path: Path) -> None:
    graph = random_graph(60, 3, 3, 240, 0, sparse=True)
    save_graph(graph, tmp_path / "graph", {})
    split(tmp_path / "graph", spec(), [0], tmp_path / "split")
    path = tmp_path / "split/seed0/split.npz"
    arrays = read_npz(path)
    write_npz(path, {**arrays, "pair_role": arrays["pair_role"][:-1]})
    with pytest.raises(StorageError):
        load_split(tmp_path / "split/seed0")


@pytest.mark.parametrize("size", range(2, 9))
def test_complete_clients_of_any_size_come_to_an_end(size: int) -> None:
    """Five nodes with all their ten edges want one pair without, and there is none."""
    graph = graph_of(list(combinations(range(size), 2)), size)
    pairs, training = drawn(graph, [np.arange(size)])
    assert (pairs.role == NONE).all()
    assert pairs.edge.all()
    assert training[0] + len(pairs.edge) == size * (size - 1) // 2


def test_clients_that_share_nodes_but_no_edge_score_no_pair_twice() -> None:
    graph = graph_of([(0, 2), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4), (4, 5), (0, 5)], 6)
    parts = [np.array([0, 1, 2, 3]), np.array([0, 1, 4, 5])]
    nodes = np.concatenate(parts)
    for seed in range(30):
        pairs, _ = drawn(graph, parts, (0.5, 0.25, 0.25), seed)
        scored = [tuple(ends) for ends in nodes[pairs.ends[~pairs.edge]].tolist()]
        assert len(set(scored)) == len(scored)
