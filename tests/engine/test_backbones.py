"""Backbones on graphs of two and three nodes, worked out by hand, and the propagation that they ask for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import Case, backbone_of, case_of, tiny_case

from fglbench import registry
from fglbench.datasets.base import Graph, canonical_edges
from fglbench.federation.operators import no_dropout
from fglbench.partition.ratios import TRAIN


def one_client(folder: Path, edges: list[tuple[int, int]], x: list[float], *, sparse: bool) -> Case:
    """A graph with one feature, its nodes all of one client."""
    pairs, _ = canonical_edges(np.array(edges).T, len(x))
    features = np.array(x, dtype=np.float32).reshape(-1, 1)
    graph = Graph(pairs, sp.csr_matrix(features) if sparse else features, np.zeros(len(x), dtype=np.int64), 1)
    return case_of(graph, [np.arange(len(x))], np.full(len(x), TRAIN, dtype=np.int8), folder)


def logits(case: Case, name: str, parameters: dict[str, Any], **settings: Any) -> list[float]:
    """Of all nodes, under parameters given as nested lists of one client."""
    federation = case.federation(name, **settings)
    backbone = backbone_of(federation, name, **settings)
    stacked = {key: torch.tensor(value, dtype=torch.float32).unsqueeze(0) for key, value in parameters.items()}
    assert set(stacked) == set(backbone.initial(torch.Generator()))
    batch = backbone.batch(federation, np.array([0]))
    return backbone.forward(stacked, batch, no_dropout).logits.flatten().tolist()


LINEAR = {"0.weight": [[1.0]], "0.bias": [0.0]}
# The path 0-1-2 with x = (1, 0, 0): A x = (1/2, 1/sqrt 6, 0) and A^2 x = (5/12, 5/(6 sqrt 6), 1/6).
PATH, ONE = [(0, 1), (1, 2)], [1.0, 0.0, 0.0]
ROOT = 6**0.5


@pytest.mark.parametrize("sparse", [True, False])
def test_s2gc_of_a_path(tmp_path: Path, sparse: bool) -> None:
    found = logits(one_client(tmp_path, PATH, ONE, sparse=sparse), "s2gc", LINEAR, hops=2, alpha=0.2)
    expected = [0.2 + 0.4 / 2 + 0.4 * 5 / 12, 0.4 / ROOT + 0.4 * 5 / (6 * ROOT), 0.4 / 6]
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("sparse", [True, False])
def test_gbp_of_a_path(tmp_path: Path, sparse: bool) -> None:
    found = logits(one_client(tmp_path, PATH, ONE, sparse=sparse), "gbp", LINEAR, hops=2, beta=0.25, depth=1)
    weights = 0.25, 0.1875, 0.140625  # 1/4, 3/16, 9/64
    expected = [
        weights[0] + weights[1] / 2 + weights[2] * 5 / 12,
        weights[1] / ROOT + weights[2] * 5 / (6 * ROOT),
        weights[2] / 6,
    ]
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("sparse", [True, False])
def test_sign_of_a_path(tmp_path: Path, sparse: bool) -> None:
    parameters = {
        "0.0.weight": [[1.0]],
        "0.0.bias": [-0.5],
        "0.1.weight": [[2.0]],
        "0.1.bias": [0.0],
        "0.2.weight": [[-3.0]],
        "0.2.bias": [1.0],
        "1.weight": [[1.0], [10.0], [100.0]],
        "1.bias": [0.25],
    }
    found = logits(one_client(tmp_path, PATH, ONE, sparse=sparse), "sign", parameters, hops=2, hidden=1)
    # Hop 0: relu(x - 1/2) = (1/2, 0, 0); hop 1: (1, 2/sqrt 6, 0); hop 2: relu(1 - 3 A^2 x) = (0, 0, 1/2).
    second = max(1 - 15 / (6 * ROOT), 0.0)
    assert second == 0.0
    assert found == pytest.approx([0.25 + 0.5 + 10, 0.25 + 20 / ROOT, 0.25 + 50], abs=1e-5)


@pytest.mark.parametrize("sparse", [True, False])
def test_gamlp_of_two_nodes(tmp_path: Path, sparse: bool) -> None:
    # x = (1, 0), A x = (1/2, 1/2); history weighs 1, the hop itself 2.
    case = one_client(tmp_path, [(0, 1)], [1.0, 0.0], sparse=sparse)
    parameters = {**LINEAR, "attention.weight": [[1.0, 2.0]], "attention.bias": [0.0]}
    # Node 0: scores sigmoid(1 + 2) = 0.952574 and sigmoid(1 + 1) = 0.880797; shares 0.517937 and 0.482063.
    # Node 1: scores sigmoid(0) = 0.5 and sigmoid(0 + 1) = 0.731059; shares 0.442491 and 0.557509.
    found = logits(case, "gamlp", parameters, hops=1, depth=1)
    assert found == pytest.approx([0.517937 + 0.482063 / 2, 0.557509 / 2], abs=2e-6)
    # With jk both hops are compared with 3 x - 4 A x = (1, -2): node 0 has sigmoid(1 + 2) and sigmoid(1 + 1) again,
    # node 1 sigmoid(-2) = 0.119203 and sigmoid(-2 + 1) = 0.268941; shares 0.462635 and 0.537365.
    parameters["attention.weight"] = [[3.0, -4.0, 2.0]]
    found = logits(case, "gamlp", parameters, hops=1, depth=1, attention="jk")
    assert found == pytest.approx([0.517937 + 0.482063 / 2, 0.537365 / 2], abs=2e-6)


def test_gamlp_starts_in_the_range_of_rectifiers_and_has_a_slope_for_each_hidden_layer() -> None:
    settings = registry.declaration("backbone", "gamlp").settings(hidden=8, depth=3)
    backbone = registry.module("backbone", "gamlp").Backbone(settings, features=40, outputs=4)
    start = backbone.initial(torch.Generator().manual_seed(0))
    for layer, (rows, columns) in enumerate([(40, 8), (8, 8), (8, 4)]):
        bound = (12 / (rows + columns)) ** 0.5
        assert 0.8 * bound < start[f"{layer}.weight"].abs().max() <= bound
        assert start[f"{layer}.bias"].count_nonzero() == 0
    assert {key: float(value) for key, value in start.items() if "slope" in key} == {"0.slope": 0.25, "1.slope": 0.25}


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("neighbours", [None, 3])
def test_sage_of_an_edge_and_a_lonely_node(tmp_path: Path, sparse: bool, neighbours: int | None) -> None:
    case = one_client(tmp_path, [(0, 1)], [1.0, 2.0, 5.0], sparse=sparse)
    parameters = {"0.neighbours.weight": [[10.0]], "0.own.weight": [[1.0]], "0.bias": [0.5]}
    found = logits(case, "sage", parameters, depth=1, neighbours=neighbours)
    assert found == pytest.approx([1 + 20 + 0.5, 2 + 10 + 0.5, 5 + 0.5], abs=1e-5)


@pytest.mark.parametrize("sparse", [True, False])
def test_gat_of_an_edge_and_a_lonely_node(tmp_path: Path, sparse: bool) -> None:
    case = one_client(tmp_path, [(0, 1)], [1.0, -1.0, 5.0], sparse=sparse)
    parameters = {"0.weight": [[1.0]], "0.source": [1.0], "0.target": [0.0], "0.bias": [0.5]}
    # Scores 1 and LeakyReLU(-1) = -0.2, so that node 0 counts 1 / (1 + exp(-1.2)) = 0.768525.
    found = logits(case, "gat", parameters, depth=1)
    assert found == pytest.approx([0.5 + 0.768525 - 0.231475] * 2 + [5.5], abs=2e-6)
    parameters["0.target"] = [-3.0]
    # Node 0: LeakyReLU(1 - 3) = -0.4 and LeakyReLU(-1 - 3) = -0.8; node 1: 4 and 2, node 0 counts 1 / (1 + exp(-2)).
    found = logits(case, "gat", parameters, depth=1)
    assert found == pytest.approx([0.5 + 2 * 0.598688 - 1, 0.5 + 2 * 0.880797 - 1, 5.5], abs=2e-6)


@pytest.mark.parametrize("name", registry.names("backbone"))
def test_clients_in_any_batch_see_what_they_see_alone(tmp_path: Path, name: str) -> None:
    """Batches of some clients, of some targets, and of filled features give the logits of the whole."""
    case = tiny_case(tmp_path)
    federation = case.federation(name)
    backbone = backbone_of(federation, name)
    stream = torch.Generator().manual_seed(0)
    parameters = {
        key: torch.randn(3, *value.shape, generator=stream) for key, value in backbone.initial(stream).items()
    }

    def of(clients: list[int], filled: bool = False, **chosen: Any) -> tuple[np.ndarray, torch.Tensor]:
        source = replace(case, filled=filled).federation(name)
        batch = backbone.batch(source, np.array(clients), **chosen)
        own = {key: value[clients] for key, value in parameters.items()}
        return batch.targets.numpy(), backbone.forward(own, batch, no_dropout).logits

    def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6 * max(10.0, float(whole.abs().max())))

    rows, whole = of([0, 1, 2])
    assert rows.tolist() == list(range(30))
    assert_near(of([0, 1, 2], filled=True)[1], whole)
    for clients in ([0], [1], [2], [0, 2], [1, 2]):
        rows, part = of(clients)
        assert rows.tolist() == [row for c in clients for row in range(case.ptr[c], case.ptr[c + 1])]
        assert_near(part, whole[rows])
    for clients, wanted in (([0, 1, 2], [3, 14, 15, 29]), ([0, 2], [0, 1, 12, 25]), ([1, 2], [16])):
        for filled in (False, True):
            rows, part = of(clients, filled, targets=np.array(wanted))
            assert rows.tolist() == wanted
            assert_near(part, whole[wanted])
