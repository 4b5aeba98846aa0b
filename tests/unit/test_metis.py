"""METIS: what it is given, what becomes of a crash, and how empty parts are filled."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from fglbench.datasets.base import Graph, canonical_edges
from fglbench.errors import DiskError, PartitionError, ResourceError
from fglbench.partition.base import assign_clients, parts_of
from fglbench.partition.child import in_child
from fglbench.partition.schemes import metis
from fglbench.partition.schemes.metis import compressed, fill_empty
from fglbench.partition.search import metis_membership
from fglbench.runtime import child


def graph_of(network: nx.Graph) -> Graph:
    nodes = len(network)
    edges, _ = canonical_edges(np.array(network.edges).T, nodes)
    return Graph(edges, np.ones((nodes, 1), np.float32), np.zeros(nodes, np.int64), 1)


def with_edges(pairs: list[tuple[int, int]], nodes: int) -> Graph:
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Graph(edges, np.ones((nodes, 1), np.float32), np.zeros(nodes, np.int64), 1)


@pytest.mark.parametrize("recursive", [False, True])
def test_separates_two_cliques(recursive):
    network = nx.barbell_graph(10, 0)
    parts = assign_clients(graph_of(network), "barbell", "metis", 2, {"recursive": recursive}, seed=0).parts
    assert sorted(part.tolist() for part in parts) == [list(range(10)), list(range(10, 20))]


def test_cuts_fewer_edges_than_chance_in_equal_parts():
    graph = graph_of(nx.convert_node_labels_to_integers(nx.grid_2d_graph(20, 20)))
    owner = np.empty(400, dtype=int)
    parts = assign_clients(graph, "grid", "metis", 4, {}, seed=0).parts
    for client, part in enumerate(parts):
        owner[part] = client
    cut = (owner[graph.edges[0]] != owner[graph.edges[1]]).sum() // 2
    assert cut <= 80  # 40 at best, 570 of 760 at random
    assert max(map(len, parts)) <= 1.05 * 100


def test_star_gets_its_missing_parts_and_a_note():
    graph = graph_of(nx.star_graph(19))
    starts, adjacent = compressed(graph)
    found = {int(seed): len(set(metis_membership(starts, adjacent, 10, False, seed).tolist())) for seed in range(1, 6)}
    assert min(found.values()) < 10  # the trap is real
    assignment = assign_clients(graph, "star", "metis", 10, {}, seed=0)
    assert len(assignment.parts) == 10 and min(map(len, assignment.parts)) >= 1
    assert any("left part" in note and "empty" in note for note in assignment.notes)


def test_an_empty_part_gets_the_loose_half_of_the_largest():
    edges, _ = canonical_edges(np.array([[0, 0, 1, 2, 3, 5], [1, 2, 2, 3, 4, 6]]), 7)
    # part 0 holds 0 1 2 3 4, inside which they have 2 2 3 2 1 neighbours; part 2 holds 5 6
    repaired, notes = fill_empty(np.array([0, 0, 0, 0, 0, 2, 2]), edges, 3)
    assert [part.tolist() for part in parts_of(repaired, 3)] == [[1, 2, 3], [0, 4], [5, 6]]
    assert len(notes) == 1 and "part 1 empty; it received 2 of the 5 nodes of part 0" in notes[0]


def test_nothing_to_fill_changes_nothing():
    member = np.array([1, 0, 1, 0])
    repaired, notes = fill_empty(member, np.zeros((2, 0), np.int64), 2)
    assert repaired.tolist() == member.tolist() and notes == []


def test_many_empty_parts_are_all_filled():
    repaired, notes = fill_empty(np.zeros(9, np.int64), np.zeros((2, 0), np.int64), 9)
    assert sorted(repaired.tolist()) == list(range(9)) and len(notes) == 8


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(0, 1), (1, 0), (1, 2)], "not symmetric: 1 entries lack their reverse, the first 1 -> 2"),
        ([(0, 1), (0, 3), (1, 0), (3, 0)], "node ids 0 to 3, and it has 3 nodes"),
        ([(0, -1), (-1, 0)], "node ids -1 to 0, and it has 3 nodes"),
        ([(1, 0), (0, 1)], "not sorted"),
        ([(0, 1), (0, 1), (1, 0), (1, 0)], "is repeated"),
        ([(0, 1), (1, 0), (1, 1)], "node 1 has a self-loop"),
    ],
)
def test_input_that_would_crash_is_refused_before_the_call(monkeypatch, pairs, message):
    monkeypatch.setattr(child, "COMMAND", ["/nonexistent/command"])  # reaching it would raise FileNotFoundError
    with pytest.raises(PartitionError, match=message):
        assign_clients(with_edges(pairs, 3), "bad", "metis", 2, {}, seed=0)


@pytest.mark.parametrize(
    ("harm", "kind", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", PartitionError, "METIS was ended by SIGSEGV"),
        ("os._exit(1)", PartitionError, "METIS ended with exit status 1. Use other"),
        ("os._exit(0)", PartitionError, "METIS ended with exit status 0"),
        ("time.sleep(60)", PartitionError, "METIS did not finish within 2 s"),
        ("raise ValueError('MemoryError')", PartitionError, r"exit status 1 \(ValueError: MemoryError\). Use other"),
        ("raise ValueError", PartitionError, r"exit status 1 \(ValueError\). Use other"),
        # What another try may not meet with is not taken for a partition that cannot be made.
        ("os.kill(os.getpid(), signal.SIGKILL)", ResourceError, "METIS was ended by SIGKILL: memory"),
        ("raise MemoryError", ResourceError, r"exit status 1 \(MemoryError\): memory ran out"),
        ("raise OSError(28, 'No space left on device')", DiskError, "is full. Free space there"),
    ],
)
def test_what_happens_to_the_child_is_a_named_error(monkeypatch, tmp_path, harm, kind, message):
    (tmp_path / "harmful.py").write_text(f"import os, signal, time\n\n\ndef part(**_):\n    {harm}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(metis, "metis_membership", importlib.import_module("harmful").part)
    monkeypatch.setattr(metis, "TIME_LIMIT_S", 2 if "sleep" in harm else 600)
    with pytest.raises(kind, match=message) as raised:
        assign_clients(graph_of(nx.path_graph(6)), "path", "metis", 2, {}, seed=0)
    assert type(raised.value) is kind
    sys.modules.pop("harmful")


def test_the_child_ends_with_its_parent(tmp_path):
    sleeps = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    (tmp_path / "sleeper.py").write_text(f"def sleep():\n    {sleeps}\n")
    program = (
        "import sleeper; from fglbench.partition.child import in_child; in_child(sleeper.sleep, {}, {}, 600, 'it')"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, env=environment)
    deadline = time.time() + 60
    while not (tmp_path / "pid").exists() and time.time() < deadline:
        time.sleep(0.05)
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    while alive(child) and time.time() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_an_exception_in_the_child_is_quoted():
    with pytest.raises(PartitionError, match=r"METIS ended with exit status 1 .*TypeError"):
        in_child(metis_membership, {"starts": np.zeros(1)}, {"nonsense": 1}, 60, "METIS")
