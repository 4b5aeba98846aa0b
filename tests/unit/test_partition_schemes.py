"""Laws that every partition scheme keeps, and the checks of the door they are called through."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fglbench import registry
from fglbench.datasets.base import Graph, canonical_edges
from fglbench.errors import ComponentError, PartitionError, StorageError
from fglbench.partition.base import Assignment, assign_clients
from fglbench.partition.card import partition_card
from fglbench.partition.schemes import random as random_scheme
from fglbench.partition.schemes.dirichlet import Settings as DirichletSettings
from fglbench.partition.split import SplitSettings, assign_roles, counts_of, draw_held_out
from fglbench.partition.subgraph import induced_edges
from fglbench.records.graph import save_graph
from fglbench.records.split import load_split
from fglbench.seeding import numpy_stream
from fglbench.stages.split import split
from fglbench.storage import hash_file, write_json, write_npz

SCHEMES = [name for name in registry.names("scheme") if name not in ("whole", "native", "file")]
DISJOINT = [name for name in SCHEMES if not registry.declaration("scheme", name).constants.get("OVERLAPS")]
SOURCE = Path(__file__).parents[2] / "src"
# Mild label skew: the default leaves a client of a tiny graph without a node more often than not.
MILD = {"dirichlet": {"alpha": 50.0}}


def graph_of(network: nx.Graph, classes: int = 3) -> Graph:
    """A canonical graph of a networkx graph with nodes 0 to n - 1; classes alternate."""
    nodes = network.number_of_nodes()
    edges, cleaning = canonical_edges(np.array(list(network.edges), dtype=np.int64).reshape(-1, 2).T, nodes)
    features = np.ones((nodes, 2), dtype=np.float32)
    return Graph(edges, features, np.arange(nodes) % classes, classes, cleaning=cleaning)


def with_isolated(network: nx.Graph, isolated: int) -> nx.Graph:
    network.add_nodes_from(range(len(network), len(network) + isolated))
    return network


GRAPHS = {
    "communities": nx.connected_caveman_graph(6, 8),
    "disconnected": nx.disjoint_union_all(
        [nx.cycle_graph(5), nx.path_graph(9), nx.complete_graph(7), nx.star_graph(6)]
    ),
    "star": nx.star_graph(19),
    "isolated": with_isolated(nx.gnp_random_graph(30, 0.1, seed=1), 20),
    "edgeless": nx.empty_graph(25),
}


@pytest.mark.parametrize("clients", [1, 4, 10])
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("scheme", DISJOINT)
def test_every_node_once_and_every_edge_accounted_for(scheme, kind, clients):
    graph = graph_of(GRAPHS[kind])
    assignment = assign_clients(graph, kind, scheme, clients, MILD.get(scheme, {}), seed=0)
    assert len(assignment.parts) == clients and min(map(len, assignment.parts)) >= 1
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in assignment.parts)
    assert np.sort(np.concatenate(assignment.parts)).tolist() == list(range(graph.num_nodes))
    roles = [np.zeros(len(part), dtype=np.int8) for part in assignment.parts]
    card = partition_card(graph, assignment, counts_of(roles))
    assert sum(card["edges"]) + card["cut_edges"] == GRAPHS[kind].number_of_edges()
    assert sum(card["nodes"]) == graph.num_nodes


@pytest.mark.parametrize("scheme", DISJOINT)
def test_as_many_clients_as_nodes(scheme):
    graph = graph_of(nx.star_graph(5), classes=1)
    if scheme == "dirichlet":
        pytest.skip("a draw that gives each client exactly one node is all but impossible")
    parts = assign_clients(graph, "star", scheme, 6, {}, seed=0).parts
    assert sorted(part.tolist() for part in parts) == [[0], [1], [2], [3], [4], [5]]


@pytest.mark.parametrize("scheme", DISJOINT)
def test_client_edges_are_the_induced_subgraphs(scheme):
    network = GRAPHS["isolated"]
    graph = graph_of(network)
    parts = assign_clients(graph, "isolated", scheme, 4, MILD.get(scheme, {}), seed=3).parts
    assert_induced(network, parts)


def assert_induced(network: nx.Graph, parts: list[np.ndarray]) -> None:
    expected = nx.Graph()
    for part in parts:
        start = len(expected)
        expected.add_nodes_from(range(start, start + len(part)))
        local = {int(node): start + i for i, node in enumerate(part)}
        expected.add_edges_from((local[u], local[v]) for u, v in network.subgraph(part.tolist()).edges)
    stacked = induced_edges(graph_of(network), np.concatenate(parts), np.cumsum([0, *map(len, parts)]))
    assert_same_matrix(stacked, expected)


def assert_same_matrix(stacked, expected: nx.Graph) -> None:
    dense = nx.to_numpy_array(expected, nodelist=range(len(expected)))
    assert stacked.dtype == np.float32 and stacked.has_sorted_indices
    assert stacked.nnz == dense.sum()  # nothing stored twice
    assert np.array_equal(stacked.toarray(), dense) and np.array_equal(dense, dense.T)


def test_induced_subgraphs_of_clients_that_share_nodes():
    network = nx.cycle_graph(6)
    parts = [np.array([0, 1, 2, 5]), np.array([1, 2, 3]), np.array([1, 4])]
    stacked = induced_edges(graph_of(network), np.concatenate(parts), np.array([0, 4, 7, 9]))
    expected = nx.Graph([(0, 1), (1, 2), (0, 3), (4, 5), (5, 6)])
    expected.add_nodes_from(range(9))
    assert_same_matrix(stacked, expected)


def test_an_edge_between_two_copies_is_not_there():
    network = nx.cycle_graph(6)
    parts = [np.array([0, 1, 2, 3]), np.array([2, 3, 4, 5])]
    copy = np.array([False, False, True, True, False, False, False, False])
    stacked = induced_edges(graph_of(network), np.concatenate(parts), np.array([0, 4, 8]), copy)
    expected = nx.Graph([(0, 1), (1, 2), (4, 5), (5, 6), (6, 7)])  # client 0: 0-1 and 1-2, not 2-3
    expected.add_nodes_from(range(8))
    assert_same_matrix(stacked, expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 25), st.integers(0, 60), st.integers(1, 6), st.integers(0, 10**6))
def test_induced_subgraphs_of_any_graph(nodes, edges, clients, seed):
    stream = np.random.default_rng(seed)
    network = nx.gnm_random_graph(nodes, edges, seed=seed)
    parts = [np.flatnonzero(stream.random(nodes) < 0.5) for _ in range(clients)]
    assert_induced(network, parts)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_seed_decides_and_only_the_seed(scheme):
    graph = graph_of(nx.gnp_random_graph(400, 0.02, seed=5))  # METIS draws nothing on much smaller ones
    chosen = MILD.get(scheme, {})
    first, again, other = (assign_clients(graph, "gnp", scheme, 4, chosen, seed).parts for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


IN_A_PROCESS = """
import json, sys
import networkx as nx, numpy as np
from fglbench import registry
from fglbench.datasets.base import Graph, canonical_edges
from fglbench.partition.base import assign_clients
from fglbench.partition.split import SplitSettings, assign_roles
pairs = np.array(nx.gnp_random_graph(120, 0.06, seed=2).edges).T
graph = Graph(canonical_edges(pairs, 120)[0], np.ones((120, 1), dtype=np.float32), np.arange(120) % 4, 4)
made = {}
for scheme, chosen in json.loads(sys.argv[1]):
    assignment = assign_clients(graph, "gnp", scheme, 5, chosen, 7)
    roles = assign_roles(graph.labels, assignment, SplitSettings(), 7, "gnp", scheme, {})
    made[scheme + str(chosen)] = [[part.tolist() for part in assignment.parts], [role.tolist() for role in roles]]
print(json.dumps(made))
"""


def test_two_processes_with_other_hash_seeds_agree():
    asked = [[scheme, MILD.get(scheme, {})] for scheme in SCHEMES] + [
        ["louvain", {"igraph_above_edges": 0}],
        ["louvain", {"leiden_above_edges": 0}],
    ]
    made = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, "-c", IN_A_PROCESS, json.dumps(asked)]
        made.append(json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout))
    assert made[0] == made[1] and len(made[0]) == len(asked)


@pytest.mark.parametrize("clients", [0, -1, 21])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_impossible_numbers_of_clients_are_refused_by_name(scheme, clients):
    with pytest.raises(PartitionError, match=rf"'star'.*'{scheme}'.* {clients} clients.*1 to 20"):
        assign_clients(graph_of(GRAPHS["star"]), "star", scheme, clients, {}, seed=0)


def test_settings_are_checked_by_name():
    with pytest.raises(PartitionError, match=r"'dirichlet'.*alfa.*Its settings: alpha, min_nodes, tries"):
        assign_clients(graph_of(GRAPHS["star"]), "star", "dirichlet", 2, {"alfa": 1.0}, seed=0)
    with pytest.raises(ComponentError, match="Did you mean 'metis'"):
        assign_clients(graph_of(GRAPHS["star"]), "star", "mettis", 2, {}, seed=0)


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ([[0, 1, 2], []], PartitionError, "1 clients with nodes"),
        ([[0, 1, 2, 3]], PartitionError, "1 clients with nodes"),
        ([[0, 1], [2]], ComponentError, "left out 1 nodes, the first 3"),
        ([[0, 1, 2], [2, 3]], ComponentError, "1 nodes to several clients, the first 2"),
        ([[1, 0], [2, 3]], ComponentError, "strictly ascending"),
        ([[0, 1], [2, 4]], ComponentError, "from 0 to 3"),
    ],
)
def test_what_a_scheme_returns_is_checked(monkeypatch, parts, error, message):
    made = Assignment([np.array(part, dtype=np.int64) for part in parts])
    monkeypatch.setattr(random_scheme, "assign", lambda *_: made)
    with pytest.raises(error, match=message):
        assign_clients(graph_of(nx.path_graph(4)), "path", "random", 2, {}, seed=0)


def assigned(monkeypatch, parts, *declared, nodes=4, **of):
    """What comes back of a scheme that declares this and gives that, on a path."""
    made = Assignment([np.array(part) for part in parts], **of)
    monkeypatch.setattr(random_scheme, "assign", lambda *_: made)
    for name in declared:
        monkeypatch.setattr(random_scheme, name, True, raising=False)
    found = assign_clients(graph_of(nx.path_graph(nodes)), "path", "random", len(parts), {}, seed=0)
    assert found is made
    return found


def test_a_scheme_may_declare_that_clients_share_nodes_and_that_it_leaves_some_out(monkeypatch):
    assigned(monkeypatch, [[0, 1, 2], [2, 3]], "OVERLAPS")
    with pytest.raises(ComponentError, match=r"left out 1 nodes, the first 3; .* LEAVES_OUT = True"):
        assigned(monkeypatch, [[0, 1, 2], [2]], "OVERLAPS")
    assigned(monkeypatch, [[0, 1, 2], [2]], "LEAVES_OUT", held_out=np.array([3]))


MINE, YOURS = np.zeros(2, dtype=bool), np.ones(2, dtype=bool)


@pytest.mark.parametrize(
    ("parts", "of", "message"),
    [
        ([[0, 1], [1, 2]], {"held_out": np.array([2, 3])}, "assigned 1 held-out nodes to clients, the first 2"),
        ([[0, 1], [1, 2]], {"held_out": np.array([4])}, "for held_out, the scheme returned int64 ids 4 to 4"),
        ([[0, 1], [1, 2]], {"copies": [MINE, MINE]}, "node 1 has 2 owners"),
        ([[0, 1], [1, 2]], {"copies": [MINE, YOURS]}, "node 2 has 0 owners"),
        (
            [[0, 1], [1, 2]],
            {"copies": [MINE, YOURS[:1]]},
            r"client 1, the scheme returned copies bool \[1\]; expected bool \[2\]",
        ),
        ([[0, 1], [1, 2]], {"held_out_clients": (1,)}, "client 1 is held out and shares 1 nodes .* first 1"),
        ([[0, 1], [2, 3]], {"held_out_clients": (0, 1)}, r"clients \[0, 1\]; .* at least one client that trains"),
        ([[0, 1], [2, 3]], {"held_out_clients": (2,)}, "from 0 to 1"),
        ([[0, 1], [2, 3]], {"roles": np.array([0, 1, 2, 4])}, r"roles \[4\]; expected \[4\] with values 0 to 3"),
    ],
)
def test_owners_and_what_is_held_out_are_checked(monkeypatch, parts, of, message):
    with pytest.raises(ComponentError, match=message):
        assigned(monkeypatch, parts, "OVERLAPS", "LEAVES_OUT", **of)


def test_a_split_stores_copies_and_what_the_scheme_holds_out(monkeypatch, tmp_path):
    """A path of 10 nodes of which the split holds out some; of the 8 others, the scheme holds out the last."""
    made = Assignment(
        [np.array([0, 1, 2, 3]), np.array([3, 4]), np.array([6])],
        copies=[np.arange(4) == 3, np.zeros(2, dtype=bool), np.zeros(1, dtype=bool)],
        held_out=np.array([7]),
        held_out_clients=(2,),
    )
    monkeypatch.setattr(random_scheme, "assign", lambda *_: made)
    for name in ("OVERLAPS", "LEAVES_OUT"):
        monkeypatch.setattr(random_scheme, name, True, raising=False)
    save_graph(graph_of(nx.path_graph(10)), tmp_path / "graph", {})
    spec = {"dataset": "path", "scheme": "random", "clients": 3, "settings": {}, "split": {"held_out": 0.2}}
    split(tmp_path / "graph", spec, [0], tmp_path / "split")
    stored, card = load_split(tmp_path / "split/seed0"), json.loads((tmp_path / "split/seed0/card.json").read_text())
    drawn = draw_held_out(10, 0.2, 0, "path")
    left = np.setdiff1d(np.arange(10), drawn)
    assert stored.nodes.tolist() == left[[0, 1, 2, 3, 3, 4, 6]].tolist()
    assert stored.held_out.tolist() == sorted([*drawn.tolist(), left[7]])
    assert stored.copy.tolist() == [False, False, False, True, False, False, False]
    assert (card["held_out"], card["held_out_clients"], card["left_out"]) == (3, [2], 1)
    assert stored.role[-1] == 3


def test_whole_gives_all_nodes_to_one_client_and_refuses_more():
    graph = graph_of(GRAPHS["star"])
    assert assign_clients(graph, "star", "whole", 1, {}, seed=0).parts[0].tolist() == list(range(20))
    with pytest.raises(PartitionError, match=r"'whole', 2 clients: .*1 client"):
        assign_clients(graph, "star", "whole", 2, {}, seed=0)


def test_native_takes_the_clients_of_the_dataset():
    graph = replace(graph_of(GRAPHS["star"]), clients=np.arange(20) * 7 % 3)
    parts = assign_clients(graph, "star", "native", 3, {}, seed=0).parts
    assert [part.tolist() for part in parts] == [[n for n in range(20) if n * 7 % 3 == client] for client in range(3)]
    with pytest.raises(PartitionError, match=r"'native', 2 clients: the dataset comes split into 3 clients; request 3"):
        assign_clients(graph, "star", "native", 2, {}, seed=0)
    with pytest.raises(PartitionError, match="does not come split into clients"):
        assign_clients(graph_of(GRAPHS["star"]), "star", "native", 2, {}, seed=0)


def test_the_clients_of_a_dataset_are_stored_split_and_part_of_a_split_s_request(tmp_path):
    spec = {"dataset": "caves", "scheme": "native", "clients": 2, "settings": {}, "split": {"held_out": 0.25}}
    requests = []
    for clients in (np.arange(48) % 2, np.arange(48) // 24):
        save_graph(replace(graph_of(GRAPHS["communities"]), clients=clients), tmp_path / "graph", {})
        split(tmp_path / "graph", spec, [0], tmp_path / "split")
        made = load_split(tmp_path / "split/seed0")
        assert len(made.held_out) == 12
        for client, nodes in enumerate(np.split(made.nodes, made.ptr[1:-1])):
            assert nodes.tolist() == [n for n in range(48) if clients[n] == client and n not in made.held_out]
        requests.append(json.loads((tmp_path / "split/seed0/card.json").read_text())["request"])
    assert requests[0]["graph"] != requests[1]["graph"]


def test_random_sizes_differ_by_at_most_one():
    parts = assign_clients(graph_of(nx.empty_graph(23)), "empty", "random", 5, {}, seed=0).parts
    assert sorted(map(len, parts)) == [4, 4, 5, 5, 5]


def test_dirichlet_names_what_it_could_not_reach():
    graph = graph_of(nx.empty_graph(60))
    chosen = {"alpha": 0.01, "min_nodes": 10, "tries": 3}
    message = (
        r"5 clients: with alpha 0\.01, none of 3 draws gave every client 10 nodes; the smallest client had at most \d"
    )
    with pytest.raises(PartitionError, match=message):
        assign_clients(graph, "empty", "dirichlet", 5, chosen, seed=0)
    with pytest.raises(PartitionError, match="13 nodes per client are more than the 60 nodes"):
        assign_clients(graph, "empty", "dirichlet", 5, {"min_nodes": 13}, seed=0)


def test_dirichlet_alpha_sets_the_skew():
    graph = graph_of(nx.empty_graph(3000), classes=6)

    def distance(alpha: float) -> float:
        parts = assign_clients(graph, "empty", "dirichlet", 5, {"alpha": alpha}, seed=0).parts
        return partition_card(graph, Assignment(parts), counts_of([np.zeros(len(part), np.int8) for part in parts]))[
            "cosine_distance"
        ]

    assert distance(1000.0) < 0.01 < 0.2 < distance(0.1)


def test_dirichlet_deals_unlabelled_nodes_evenly():
    graph = Graph(np.zeros((2, 0), np.int64), np.ones((40, 1), np.float32), np.full(40, -1), 2)
    rng = numpy_stream(0, "test")
    parts = registry.module("scheme", "dirichlet").assign(graph, 4, rng, DirichletSettings()).parts
    assert [len(part) for part in parts] == [10, 10, 10, 10]


@pytest.fixture
def stored_graph(tmp_path):
    save_graph(graph_of(GRAPHS["communities"]), tmp_path / "graph", {})
    return tmp_path / "graph"


SPEC = {"dataset": "caves", "scheme": "louvain", "clients": 3, "settings": {}, "split": {}}


def test_stage_writes_what_the_library_makes(stored_graph, tmp_path):
    split(stored_graph, SPEC, [0, 4], tmp_path / "split")
    graph = graph_of(GRAPHS["communities"])
    parts = assign_clients(graph, "caves", "louvain", 3, {}, seed=4).parts
    roles = assign_roles(graph.labels, Assignment(parts), SplitSettings(), 4, "caves", "louvain", {})
    made = load_split(tmp_path / "split/seed4")
    assert np.array_equal(made.nodes, np.concatenate(parts)) and made.nodes.dtype == np.int64
    assert made.ptr.tolist() == [0, *np.cumsum([len(part) for part in parts])] and made.ptr.dtype == np.int64
    assert np.array_equal(made.role, np.concatenate(roles)) and made.role.dtype == np.int8
    assert made.clients == 3
    card = json.loads((tmp_path / "split/seed4/card.json").read_text())
    assert card["request"]["settings"]["resolution"] == 1.0 and "python-louvain" in card["notes"][0]
    assert sorted(path.name for path in (tmp_path / "split").iterdir() if path.is_dir()) == ["seed0", "seed4"]


def test_stage_keeps_whole_seeds_and_remakes_others(stored_graph, tmp_path):
    folder = tmp_path / "split"

    def written() -> list[int]:
        return [(folder / f"seed{seed}/card.json").stat().st_ino for seed in (0, 1)]

    split(stored_graph, SPEC, [0, 1], folder)
    before, content = written(), (folder / "seed1/split.npz").read_bytes()
    split(stored_graph, SPEC, [0, 1], folder)
    assert written() == before
    (folder / "seed1/split.npz").write_bytes(content[:-20])
    split(stored_graph, SPEC, [0, 1], folder)
    assert written()[0] == before[0] and (folder / "seed1/split.npz").read_bytes() == content
    split(stored_graph, {**SPEC, "split": {"train": 0.4, "val": 0.3, "test": 0.3}}, [0], folder)
    assert json.loads((folder / "seed0/card.json").read_text())["request"]["split"]["train"] == 0.4


def test_stage_leaves_nothing_where_it_fails(stored_graph, tmp_path):
    with pytest.raises(PartitionError, match="1 to 48 clients"):
        split(stored_graph, {**SPEC, "clients": 49}, [0], tmp_path / "split")
    assert [path for path in (tmp_path / "split").iterdir() if path.suffix != ".lock"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"role": np.array([1, 2, 3, 1, 3], np.int8)}, "node 1 has two roles"),
        ({"nodes": np.array([1, 0, 1, 2, 3])}, "not ascending"),
        ({"ptr": np.array([0, 0, 5])}, "a client has no nodes"),
        ({"ptr": np.array([0, 2, 4])}, "5 in 'nodes', 5 in 'role', and the pointers of the clients are from 0 to 4"),
        ({"role": np.array([1, 2], np.int8)}, "disagree"),
        ({"copy": np.array([True, False])}, "disagree"),
    ],
)
def test_a_split_that_contradicts_itself_is_refused(tmp_path, change, message):
    good = {
        "nodes": np.array([0, 1, 1, 2, 3]),
        "ptr": np.array([0, 2, 5]),
        "role": np.array([1, 2, 2, 1, 3], np.int8),
    }
    stored = tmp_path / "split.npz"
    write_npz(stored, good)
    write_json(tmp_path / "card.json", {"sha256": hash_file(stored)})
    assert load_split(tmp_path).clients == 2
    write_npz(stored, {**good, **change})
    write_json(tmp_path / "card.json", {"sha256": hash_file(stored)})
    with pytest.raises(StorageError, match=message):
        load_split(tmp_path)
