"""Laws of the engine: chunks, the order of clients, one client, forms of the features, receptive fields."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import (
    TASK,
    TRAIN,
    Case,
    backbone_of,
    case_of,
    made_of,
)
from laws import HIDDEN, assert_close, assert_same, make_five, run

from fglbench import registry
from fglbench.engine.record import Result
from fglbench.federation.operators import no_dropout
from fglbench.seeding import torch_stream


@pytest.mark.parametrize("backbone", registry.names("backbone"))
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_chunks_change_no_number(five: Case, backbone: str, participation: float, dropout: float) -> None:
    federation = five.federation(backbone)

    def chunked(chunk: int | None) -> Result:
        return run(federation, "fedprox", backbone, dropout=dropout, chunk=chunk, participation=participation, rounds=4)

    together = chunked(None)
    for chunk in (1, 3, 5, 100):
        assert_close(chunked(chunk), together, 1e-5)


# Pairs without an edge are drawn by client id: all clients settle in their second round, and then get links.
NOTHING_DRAWN = {name: {"link_share": 0.0, "alpha": 1e3} for name in ("fedgala", "fedgalap")}


@pytest.mark.parametrize(
    "method",
    [name for name in registry.names("method") if name not in ("global", "fedsage+")],  # hides nodes by client id
)
def test_the_order_of_clients_changes_nothing(five: Case, tmp_path: Path, method: str) -> None:
    order = [3, 0, 4, 2, 1]
    straight, permuted = (
        run(case.federation(), method, own=NOTHING_DRAWN.get(method, {})) for case in (five, make_five(tmp_path, order))
    )
    for name, tensor in straight.parameters["last"].items():
        torch.testing.assert_close(permuted.parameters["last"][name], tensor[order], rtol=0, atol=1e-5)
    for name in ("val_correct", "test_correct"):
        np.testing.assert_array_equal(permuted.history[name], straight.history[name][:, order])
    np.testing.assert_allclose(
        permuted.history["train_loss"], straight.history["train_loss"][:, order], rtol=0, atol=1e-5
    )


def test_fedprox_with_mu_zero_is_fedavg_exactly(five: Case) -> None:
    federation = five.federation()
    assert_same(run(federation, "fedprox", own={"mu": 0.0}, dropout=0.5), run(federation, "fedavg", dropout=0.5))
    drawn_in = run(federation, "fedprox", own={"mu": 100.0}).parameters["last"]["0.weight"]
    assert not torch.equal(drawn_in, run(federation, "fedavg").parameters["last"]["0.weight"])


def test_fedper_with_mu_holds_its_base_layers_alone(five: Case) -> None:
    federation = five.federation()
    plain = run(federation, "fedper", dropout=0.5)
    assert_same(run(federation, "fedper", own={"mu": 0.0}, dropout=0.5), plain)
    one, other = (run(federation, "fedper", own={"mu": mu}, rounds=1).parameters["last"] for mu in (0.0, 100.0))
    start = backbone_of(federation, "gcn", hidden=HIDDEN).initial(torch_stream(3, "initialisation"))
    far, near = ((own["0.weight"][0] - start["0.weight"]).norm() for own in (one, other))
    assert near < 0.9 * far
    assert not torch.equal(other["1.weight"][0], other["1.weight"][1])


@pytest.mark.parametrize(
    "method", ["local", "fedavg", "fedprox", "fedper", "scaffold", "moon", "gcfl", "gcfl+", "fedgta"]
)
def test_one_client_is_global(five: Case, tmp_path: Path, method: str) -> None:
    role = np.zeros(40, dtype=np.int8)
    role[five.nodes] = five.role
    federation = case_of(five.graph, [np.arange(40)], role, tmp_path).federation()
    own = {"mu": 0.0} if method in ("fedprox", "moon") else {}
    federated, central = run(federation, method, dropout=0.5, own=own), run(federation, "global", dropout=0.5)
    assert not central.history["bytes_up"].any()
    for name in ("bytes_up", "bytes_down"):
        federated.history[name] = central.history[name]
    assert_same(federated, central)


DEPTHS = [
    ("mlp", 2),
    ("gcn", 1),
    ("gcn", 2),
    ("gcn", 3),
    ("sgc", 1),
    ("sgc", 2),
    ("s2gc", 1),
    ("gbp", 2),
    ("sign", 2),
    ("gamlp", 2),
    ("sage", 1),
    ("sage", 2),
    ("sage", 3),
    ("gat", 1),
    ("gat", 3),
]


@pytest.mark.parametrize(("backbone", "depth"), DEPTHS[1:-2])
def test_features_sparse_or_dense_propagated_before_or_while_training(
    five: Case, tmp_path: Path, backbone: str, depth: int
) -> None:
    lazy = five.federation(backbone, depth=depth)
    propagated = make_five(tmp_path, [0, 1, 2, 3, 4], sparse=False).federation(backbone, depth=depth)
    filled = replace(five, filled=True).federation(backbone, depth=depth)
    assert sp.issparse(made_of(lazy).features[0])
    assert made_of(lazy).hops == 0
    for other in (propagated, filled):
        assert isinstance(made_of(other).features[0], np.ndarray)
        assert made_of(other).hops == backbone_of(other, backbone, depth=depth).hops > 0
    dense = replace(lazy, x=sp.csr_matrix(lazy.features).toarray(), precomputed={})
    reference = run(lazy, "fedavg", backbone, depth=depth, dropout=0.5)
    for other in (propagated, filled, dense):
        assert_close(run(other, "fedavg", backbone, depth=depth, dropout=0.5), reference, 1e-5)


@pytest.mark.parametrize(("backbone_name", "depth"), DEPTHS)
def test_the_receptive_field_gives_the_logits_and_gradients_of_the_whole_graph(
    five: Case, backbone_name: str, depth: int
) -> None:
    federation = five.federation(backbone_name, depth=depth)
    backbone = backbone_of(federation, backbone_name, hidden=HIDDEN, depth=depth)
    stream = torch.Generator().manual_seed(0)
    parameters = {
        name: torch.randn(5, *tensor.shape, generator=stream).requires_grad_()
        for name, tensor in backbone.initial(stream).items()
    }
    found = []
    for targets in (TASK.objective(federation).targets, None):
        batch = backbone.batch(federation, np.arange(5), targets)
        logits = backbone.forward(parameters, batch, no_dropout).logits
        rows = torch.from_numpy(federation.role[batch.targets.numpy()] == TRAIN)
        weight = torch.randn(int(rows.sum()), federation.classes, generator=torch.Generator().manual_seed(1))
        gradients = torch.autograd.grad((logits[rows] * weight).sum(), list(parameters.values()))
        found.append((logits[rows], gradients, len(batch.targets)))
    (field, field_gradients, computed), (full, full_gradients, total) = found
    assert computed == (federation.role == TRAIN).sum() < total == 40
    torch.testing.assert_close(field, full)
    for one, other in zip(field_gradients, full_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
