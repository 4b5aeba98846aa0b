"""What must hold for the engine whatever the method: invariances, limits, accounts, hooks, reproducibility."""

import hashlib
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import (
    NONE,
    TASK,
    TEST,
    TRAIN,
    VAL,
    Case,
    backbone_of,
    case_of,
    made_of,
    method_of,
    random_graph,
    schedule_of,
    tiny_case,
)

from fglbench import registry
from fglbench.datasets.base import Graph
from fglbench.engine.local import Trained
from fglbench.engine.loop import train
from fglbench.engine.record import Recorder, Result
from fglbench.engine.rounds import draw_clients
from fglbench.federation.chunks import clients_at_once
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import Parameters
from fglbench.methods import base, fedavg
from fglbench.seeding import torch_stream
from fglbench.settings import ComponentSettings

HIDDEN = 8


def make_five(folder: Path, order: list[int], *, sparse: bool = True) -> Case:
    """40 nodes in 5 clients of 12, 10, 9, 8 and 1 nodes, in a given order.

    The third client has no edge, the fourth no training node.
    """
    graph = random_graph(40, 6, 3, 160, seed=5, sparse=sparse)
    owner = np.repeat(np.arange(5), [12, 10, 9, 8, 1])
    edges = graph.edges[:, (owner[graph.edges] != 2).any(axis=0)]
    graph = Graph(edges, graph.features, graph.labels, graph.classes, cleaning=graph.cleaning)
    role = np.resize([TRAIN, VAL, TEST, TRAIN, TEST, NONE], 40).astype(np.int8)
    role[(owner == 3) & (role == TRAIN)] = TEST
    role[39] = TRAIN
    return case_of(graph, [np.flatnonzero(owner == client) for client in order], role, folder)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return tiny_case(tmp_path_factory.mktemp("tiny"))


def run(
    federation: Federation,
    method: str | type[base.Method] = "fedavg",
    backbone_name: str = "gcn",
    *,
    dropout: float = 0.0,
    depth: int = 2,
    chunk: int | None = None,
    seed: int = 3,
    own: dict[str, Any] | None = None,
    **schedule: Any,
) -> Result:
    """Trains; `method` is a registered name or a class written here."""
    known = registry.declaration("backbone", backbone_name).settings.model_fields
    layers = {"depth": depth} if "depth" in known else {}
    backbone = backbone_of(federation, backbone_name, hidden=HIDDEN, dropout=dropout, **layers)
    if isinstance(method, str):
        made = method_of(federation, backbone, method, **(own or {}))
    else:
        settings = getattr(sys.modules[method.__module__], "Settings", ComponentSettings)
        made = method(settings(), backbone, federation)
    return train(federation, made, TASK, schedule_of(**schedule), seed, chunk_clients=chunk)


def assert_close(one: Result, other: Result, tolerance: float) -> None:
    assert one.state == other.state == "ok"
    for kept, parameters in one.parameters.items():
        for name, tensor in parameters.items():
            torch.testing.assert_close(tensor, other.parameters[kept][name], rtol=0, atol=tolerance)
    np.testing.assert_allclose(one.history["train_loss"], other.history["train_loss"], rtol=0, atol=tolerance)
    for name in ("val_correct", "test_correct", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(one.history[name], other.history[name])
    for reading, predicted in one.predictions.items():
        np.testing.assert_array_equal(predicted, other.predictions[reading])
    assert one.rounds == other.rounds


def assert_same(one: Result, other: Result) -> None:
    assert_close(one, other, 0.0)


# ---- invariances


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
    dense = replace(lazy, x=sp.csr_matrix(lazy.features).toarray(), made={})
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


# ---- participation


class Recording(fedavg.Method):
    """FedAvg that remembers what its hooks saw."""

    seen: ClassVar[list[tuple[list[int], torch.Tensor]]] = []

    def aggregate(self, round: base.Round) -> dict[str, torch.Tensor]:
        weights = super().aggregate(round)
        self.seen.append((round.clients.tolist(), weights[base.SHARED]))
        return weights


def test_partial_participation_leaves_weights_normalised_over_those_who_trained(five: Case) -> None:
    Recording.seen.clear()
    run(five.federation(), Recording, participation=0.5, rounds=8)
    seen = Recording.seen
    assert len({tuple(clients) for clients, _ in seen}) > 1
    for clients, row in seen:
        assert 1 <= len(clients) <= 2
        assert 3 not in clients  # no training node
        assert abs(row.sum() - 1) < 1e-6
        assert row.nonzero().flatten().tolist() == clients
    sizes = five.federation().count(TRAIN)
    clients, row = next((clients, row) for clients, row in seen if len(clients) == 2)
    torch.testing.assert_close(row[clients], torch.tensor(sizes[clients] / sizes[clients].sum()).float())


def test_clients_that_sit_out_keep_receiving_the_mixed_model(five: Case) -> None:
    last = run(five.federation(), "fedavg", participation=0.2, rounds=3).parameters["last"]
    for tensor in last.values():
        assert (tensor == tensor[:1]).all()


def test_clients_that_sit_out_keep_their_own_model_under_local(five: Case) -> None:
    result = run(five.federation(), "local", participation=0.2, rounds=1, seed=3)
    (drawn,) = draw_clients(3, 0, 5, 0.2)
    assert drawn != 3  # the client without training nodes
    weight = result.parameters["last"]["0.weight"]
    moved = [not torch.equal(weight[client], weight[3]) for client in range(5)]
    assert moved == [client == drawn for client in range(5)]


@pytest.mark.parametrize(("participation", "count"), [(1e-9, 1), (0.1, 1), (0.3, 3), (0.5, 5), (1.0, 10)])
def test_the_draw_takes_the_fraction_and_at_least_one(participation: float, count: int) -> None:
    drawn = [draw_clients(0, number, 10, participation) for number in range(50)]
    assert {len(clients) for clients in drawn} == {count}
    assert all((np.diff(clients) > 0).all() for clients in drawn)
    assert set(np.concatenate(drawn).tolist()) == set(range(10))  # over rounds everybody is drawn
    assert np.array_equal(drawn[7], draw_clients(0, 7, 10, participation))  # from its own stream, whatever came before


def test_all_methods_draw_the_same_clients(five: Case) -> None:
    sat_out = {
        method: np.isnan(run(five.federation(), method, participation=0.4, rounds=6).history["train_loss"]).tolist()
        for method in ("local", "fedavg", "fedprox", "fedper")
    }
    assert len({str(pattern) for pattern in sat_out.values()}) == 1


# ---- clients that have little


def test_a_client_without_training_nodes_receives_and_is_scored(five: Case) -> None:
    federation = five.federation()
    result = run(federation)
    assert np.isnan(result.history["train_loss"][:, 3]).all()
    assert np.isfinite(np.delete(result.history["train_loss"], 3, axis=1)).all()
    assert federation.count(TEST)[3] > 0
    logits = logits_of(federation, result)[five.ptr[3] : five.ptr[4]]
    np.testing.assert_array_equal(result.predictions["last"][five.ptr[3] : five.ptr[4]], logits.argmax(1))


def test_a_federation_in_which_nobody_can_train_keeps_its_initial_weights(five: Case) -> None:
    federation = five.federation()
    result = run(replace(federation, role=np.where(federation.role == TRAIN, NONE, federation.role)))
    assert result.state == "ok"
    assert result.history["bytes_up"].tolist() == [0, 0, 0]
    weight = result.parameters["last"]["0.weight"]
    assert (weight == weight[:1]).all()


def test_clients_without_edges_or_with_a_single_node_train_on_their_features_alone(five: Case) -> None:
    federation = five.federation()
    alone = np.isin(federation.client_of, [2, 4])
    assert made_of(federation).operator[alone].nnz == alone.sum()
    assert np.diff(federation.ptr)[4] == 1
    losses = run(federation, "local", rounds=5).history["train_loss"]
    assert (losses[-1, [2, 4]] < losses[0, [2, 4]]).all()
    unconnected = federation.with_edges(sp.csr_matrix((40, 40), dtype=np.float32))
    without = run(unconnected, "local", rounds=5).history["train_loss"]
    np.testing.assert_allclose(without[:, [2, 4]], losses[:, [2, 4]], rtol=0, atol=1e-6)
    assert (without[:, [0, 1]] != losses[:, [0, 1]]).all()


def test_nobody_has_validation_nodes_so_the_last_round_is_selected(five: Case) -> None:
    federation = five.federation()
    result = run(replace(federation, role=np.where(federation.role == VAL, NONE, federation.role)))
    assert result.rounds["val"] == 2
    np.testing.assert_array_equal(result.predictions["val"], result.predictions["last"])


def logits_of(federation: Federation, result: Result, backbone_name: str = "gcn") -> torch.Tensor:
    backbone = backbone_of(federation, backbone_name, hidden=HIDDEN)
    batch = backbone.batch(federation, np.arange(federation.num_clients))
    with torch.no_grad():
        return backbone.forward(result.parameters["last"], batch, no_dropout).logits


# ---- divergence


@pytest.mark.parametrize("evaluate", ["aggregated", "trained"])
def test_divergence_ends_the_run_with_its_round_and_without_nan(five: Case, evaluate: str) -> None:
    calm = run(five.federation(), "fedavg", optimiser="sgd", lr=0.1, rounds=6, evaluate=evaluate)
    assert (calm.state, calm.diverged_round) == ("ok", None)
    wild = run(five.federation(), "fedavg", optimiser="sgd", lr=1e4, rounds=50, evaluate=evaluate)
    assert wild.state == "diverged"
    assert wild.diverged_round == len(wild.history["round"]) < 50
    assert not wild.predictions and not wild.parameters and not wild.rounds
    assert np.isfinite(wild.history["train_loss"][:, [0, 1, 2, 4]]).all()
    assert np.isfinite(wild.history["train_seconds"]).all()


@pytest.mark.parametrize("client", [0, 4])
def test_one_client_with_a_nan_loss_is_enough(five: Case, client: int) -> None:
    class Breaks(fedavg.Method):
        def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
            if step.round == 2 and client in step.clients:
                gradients["0.weight"][step.clients.tolist().index(client)] = np.nan

    for method in (Breaks, type("LocalBreaks", (Breaks,), {"aggregate": lambda self, round: {}})):
        for chunk in (None, 2):
            result = run(five.federation(), method, rounds=5, chunk=chunk)
            assert (result.state, result.diverged_round) == ("diverged", 2)
            assert len(result.history["round"]) == 2


# ---- what is scored, selected, counted


def test_trained_parameters_are_those_before_the_average(five: Case) -> None:
    federation = five.federation()
    trained = run(federation, evaluate="trained", rounds=1).parameters["last"]
    aggregated = run(federation, evaluate="aggregated", rounds=1).parameters["last"]
    weights = torch.tensor(federation.count(TRAIN) / federation.count(TRAIN).sum(), dtype=torch.float32)
    for name in trained:
        assert not (trained[name] == trained[name][:1]).all()
        assert (aggregated[name] == aggregated[name][:1]).all()
        mean = torch.einsum("c,c...->...", weights, trained[name])
        torch.testing.assert_close(aggregated[name][0], mean, rtol=0, atol=1e-6)


@pytest.mark.parametrize("evaluate", ["aggregated", "trained"])
@pytest.mark.parametrize("method", ["local", "fedavg", "fedper"])
def test_kept_parameters_give_the_kept_predictions(five: Case, method: str, evaluate: str) -> None:
    federation = five.federation()
    result = run(federation, method, evaluate=evaluate, rounds=6)
    np.testing.assert_array_equal(logits_of(federation, result).argmax(1), result.predictions["last"])
    selected = replace(result, parameters={"last": result.parameters["val"]})
    np.testing.assert_array_equal(logits_of(federation, selected).argmax(1), result.predictions["val"])


def parameter_bytes(features: int, classes: int) -> tuple[int, int]:
    """Bytes of the first and of the last layer of a two-layer GCN with 8 hidden units."""
    return 4 * (features * HIDDEN + HIDDEN), 4 * (HIDDEN * classes + classes)


def test_bytes_of_full_participation(tiny: Case) -> None:
    first, last = parameter_bytes(7, 3)
    assert (first, last) == (256, 108)
    expected = {"local": 0, "fedavg": 3 * (256 + 108), "fedprox": 3 * (256 + 108), "fedper": 3 * 256}
    for method, each in expected.items():
        history = run(tiny.federation(), method).history
        assert history["bytes_up"].tolist() == [each, 2 * each, 3 * each]
        assert history["bytes_down"].tolist() == [each, 2 * each, 3 * each]


def test_bytes_are_counted_for_the_clients_that_train(five: Case) -> None:
    each = sum(parameter_bytes(6, 3))
    history = run(five.federation(), participation=0.5, rounds=6).history
    trained = (~np.isnan(history["train_loss"])).sum(axis=1)
    assert set(trained.tolist()) == {1, 2}  # a drawn client without training nodes sends nothing
    assert history["bytes_up"].tolist() == (each * trained.cumsum()).tolist()


def recorded(
    scores: list[list[int]], mean: str = "pooled", nodes: np.ndarray | None = None
) -> tuple[Recorder, Federation]:
    """A recorder fed with rounds in which each of two clients has so many of its validation nodes right."""
    federation = Federation(
        ptr=np.array([0, 4, 6]),
        labels=np.ones(6, dtype=np.int64),
        role=np.full(6, VAL, dtype=np.int8),
        classes=2,
        adjacency=sp.csr_matrix((6, 6), dtype=np.float32),
        x=np.ones((6, 1), dtype=np.float32),
        nodes=nodes,
    )
    recorder, losses = Recorder(federation, TASK, mean), np.zeros(2, dtype=np.float32)
    recorder.begin("train")
    for first, second in scores:
        predicted = np.zeros(6, dtype=np.int32)
        predicted[:first] = predicted[4 : 4 + second] = 1
        recorder.add(predicted, {}, Trained(losses, losses, 0))
    recorder.end()
    return recorder, federation


def test_the_earliest_of_equal_rounds_is_selected() -> None:
    result = recorded([[1, 1], [3, 0], [2, 1], [0, 2], [1, 1]])[0].finished()
    assert result.rounds == {"val": 1, "last": 4, "test": 4}  # nobody has test nodes
    assert result.predictions["val"].tolist() == [1, 1, 1, 0, 0, 0]


def test_the_mean_that_selects_is_the_protocols() -> None:
    scores = [[3, 0], [0, 2], [3, 0]]  # pooled 3/6 and 2/6, macro 3/8 and 1/2
    assert recorded(scores, "pooled")[0].finished().rounds["val"] == 0
    assert recorded(scores, "macro")[0].finished().rounds["val"] == 1
    assert recorded(scores, "nodes", np.arange(6))[0].finished().rounds["val"] == 0


def test_a_node_that_clients_share_selects_once() -> None:
    """The nodes 0 and 1 are at both clients; right at one of them, such a node is half right."""
    shared = np.array([0, 1, 2, 3, 0, 1])
    scores = [[2, 1], [4, 0], [3, 1]]  # of 4 nodes 1.5, 3 and 2.5; pooled 3, 4 and 4 of 6
    recorder, federation = recorded(scores, "nodes", shared)
    assert recorder.validation == 2.5 / 4
    result = recorder.finished()
    assert result.rounds["val"] == 1
    assert result.history["val_correct"].tolist() == scores
    curve = TASK.score(result.history, "val", federation.count(VAL), "nodes")
    assert curve.tolist() == [1.5 / 4, 3 / 4, 2.5 / 4]
    assert recorded([[3, 1], [4, 0]], "pooled", shared)[0].finished().rounds["val"] == 0
    assert recorded([[3, 1], [4, 0]], "nodes", shared)[0].finished().rounds["val"] == 1


def test_history_counts_what_predictions_say(five: Case) -> None:
    federation = five.federation()
    result = run(federation, rounds=5)
    for name, role in (("val", VAL), ("test", TEST)):
        right = (federation.role == role) & (result.predictions["last"] == federation.labels)
        expected = [right[a:b].sum() for a, b in zip(federation.ptr, federation.ptr[1:], strict=False)]
        assert result.history[f"{name}_correct"][-1].tolist() == expected
    assert result.history["round"].tolist() == [0, 1, 2, 3, 4]
    assert (np.diff(result.history["train_seconds"]) > 0).all()


# ---- hooks


@pytest.mark.parametrize("name", [name for name in registry.names("method") if name != "global"])
def test_rows_of_the_mixing_matrix_sum_to_one(five: Case, name: str) -> None:
    federation = five.federation()
    backbone = backbone_of(federation, "gcn", hidden=HIDDEN)
    method = method_of(federation, backbone, name)
    rows: list[torch.Tensor] = []
    original = method.aggregate

    def spy(round: base.Round) -> Mapping[str, torch.Tensor]:
        weights = original(round)
        rows.extend([own.sum(-1) for own in weights.values()] or [torch.ones(1)])
        return weights

    method.aggregate = spy  # type: ignore[method-assign]
    train(federation, method, TASK, schedule_of(participation=0.5, rounds=4), 0)
    assert len(rows) > 0
    for sums in rows:
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("chunk", [None, 1])
def test_hook_loss_adds_a_term_per_client(five: Case, chunk: int | None) -> None:
    class Pulled(base.Method):
        """Pulls the second client's weights, and nobody else's, strongly to zero."""

        def loss(self, step: base.Step) -> torch.Tensor:
            assert step.output.logits.shape == (len(step.batch.targets), 3)
            pull = torch.from_numpy(step.clients == 1).float() * 100.0
            return pull * step.parameters["0.weight"].square().flatten(1).sum(1)

    federation = five.federation()
    pulled = run(federation, Pulled, chunk=chunk, rounds=40).parameters["last"]["0.weight"]
    plain = run(federation, "local", chunk=chunk, rounds=40).parameters["last"]["0.weight"]
    torch.testing.assert_close(pulled[[0, 2, 3, 4]], plain[[0, 2, 3, 4]], rtol=0, atol=1e-5)
    assert pulled[1].abs().max() < 0.1 < plain[1].abs().max()


def test_hook_loss_sees_received_and_current_parameters(five: Case) -> None:
    distances: list[float] = []

    class Watches(fedavg.Method):
        def loss(self, step: base.Step) -> None:
            moved = (step.parameters["0.weight"] - step.received["0.weight"]).abs().max()
            distances.append(float(moved.detach()))
            assert not step.received["0.weight"].requires_grad

    run(five.federation(), Watches, local_epochs=3, rounds=2)
    assert [distance == 0 for distance in distances] == [True, False, False, True, False, False]


def test_hook_modify_gradients_changes_gradients_in_place(five: Case) -> None:
    class Frozen(base.Method):
        def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
            assert all(gradients[name].shape == tensor.shape for name, tensor in step.parameters.items())
            for name in ("0.weight", "0.bias"):
                gradients[name].zero_()

    result = run(five.federation(), Frozen, weight_decay=0.0).parameters["last"]
    weight = result["0.weight"]
    assert (weight == weight[:1]).all()
    assert not (result["1.weight"] == result["1.weight"][:1]).all()


def test_hook_upload_is_counted_and_given_to_aggregate(five: Case) -> None:
    class Sends(fedavg.Method):
        def upload(self, round: base.ClientRound) -> dict[str, torch.Tensor]:
            return {"sketch": torch.zeros(len(round.clients), 5), "size": torch.zeros(len(round.clients), 1).double()}

        def aggregate(self, round: base.Round) -> dict[str, torch.Tensor]:
            assert round.uploads["sketch"].shape == (len(round.clients), 5)
            return super().aggregate(round)

    each = sum(parameter_bytes(6, 3))
    history = run(five.federation(), Sends, rounds=1).history
    assert history["bytes_up"].tolist() == [4 * (each + 5 * 4 + 8)]
    assert history["bytes_down"].tolist() == [4 * each]


def test_hook_download_is_counted_for_the_clients_that_train(five: Case) -> None:
    asked: list[tuple[int, list[int]]] = []

    class Receives(fedavg.Method):
        def download(self, number: int, clients: np.ndarray) -> dict[str, torch.Tensor]:
            asked.append((number, clients.tolist()))
            return {"direction": torch.zeros(1, 7).expand(len(clients), 7)}

    each = sum(parameter_bytes(6, 3))
    history = run(five.federation(), Receives, rounds=2).history
    assert asked == [(0, [0, 1, 2, 4]), (1, [0, 1, 2, 4])]  # the fourth client has no training node
    assert history["bytes_down"].tolist() == [4 * (each + 28), 8 * (each + 28)]
    assert history["bytes_up"].tolist() == [4 * each, 8 * each]


@pytest.mark.parametrize("chunk", [None, 2])
def test_hook_upload_sees_the_logits_of_the_clients_own_models(five: Case, chunk: int | None) -> None:
    seen: list[torch.Tensor] = []

    class Looks(fedavg.Method):
        def upload(self, round: base.ClientRound) -> dict[str, torch.Tensor]:
            seen.append(round.logits())
            return {}

    federation = five.federation()
    result = run(federation, Looks, dropout=0.5, rounds=1, evaluate="trained", chunk=chunk)
    np.testing.assert_allclose(seen[0].numpy(), logits_of(federation, result), rtol=0, atol=1e-6)


def test_hooks_see_the_schedule(five: Case) -> None:
    class Looks(fedavg.Method):
        def loss(self, step: base.Step) -> None:
            assert (step.schedule.lr, step.schedule.local_epochs) == (0.03, 4)

        def server_update(self, round: base.Round, mixed: Parameters) -> None:
            assert (round.schedule.lr, round.schedule.local_epochs) == (0.03, 4)
            rounds.append(round.number)

    rounds: list[int] = []
    run(five.federation(), Looks, lr=0.03, local_epochs=4, rounds=2)
    assert rounds == [0, 1]


class Shift(base.Method):
    """In round r every client receives half of its own and half of its (r + 1)-th neighbour's parameters."""

    def aggregate(self, round: base.Round) -> dict[str, torch.Tensor]:
        own = torch.eye(len(round.weights))
        return {base.SHARED: own / 2 + torch.roll(own, round.number + 1, dims=1) / 2}


def test_mixing_matrices_are_recorded(five: Case) -> None:
    recorded = run(five.federation(), Shift, rounds=3).mixing
    assert recorded["rounds"].tolist() == [0, 1, 2]
    assert recorded["mixing"].dtype == np.float32
    for number, matrix in enumerate(recorded["mixing"]):
        np.testing.assert_array_equal(matrix, np.eye(5) / 2 + np.roll(np.eye(5), number + 1, axis=1) / 2)
    assert run(five.federation(), "fedavg").mixing == {}


def test_of_many_clients_only_the_rounds_of_the_readings_are_recorded(
    five: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fglbench.engine.record.MOST_CLIENTS_IN_EVERY_ROUND", 4)
    result = run(five.federation(), Shift, rounds=12)
    rounds = result.mixing["rounds"].tolist()
    assert rounds == sorted(set(result.rounds.values()))
    assert len(rounds) < 12
    for number, matrix in zip(rounds, result.mixing["mixing"], strict=True):
        np.testing.assert_array_equal(matrix, np.eye(5) / 2 + np.roll(np.eye(5), number + 1, axis=1) / 2)


def test_hook_aggregate_takes_a_matrix(five: Case) -> None:
    ring = torch.roll(torch.eye(5), 1, dims=1) / 2 + torch.eye(5) / 2

    class Ring(base.Method):
        def aggregate(self, round: base.Round) -> dict[str, torch.Tensor]:
            return {base.SHARED: ring}

    federation = five.federation()
    trained = run(federation, "local", rounds=1).parameters["last"]
    mixed = run(federation, Ring, rounds=1).parameters["last"]
    for name in trained:
        neighbour = trained[name][[1, 2, 3, 4, 0]]
        torch.testing.assert_close(mixed[name], (trained[name] + neighbour) / 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("evaluate", ["aggregated", "trained"])
def test_hook_server_update_replaces_what_clients_start_the_next_round_with(five: Case, evaluate: str) -> None:
    starts: list[torch.Tensor] = []

    class Restarts(fedavg.Method):
        def loss(self, step: base.Step) -> None:
            if step.epoch == 0:
                starts.append(step.received["1.bias"].clone())

        def server_update(self, round: base.Round, mixed: Parameters) -> None:
            assert (mixed["0.weight"] == mixed["0.weight"][:1]).all()
            assert not (round.parameters["0.weight"] == round.parameters["0.weight"][:1]).all()
            mixed["1.bias"] = torch.full_like(mixed["1.bias"], 7.0)

    last = run(five.federation(), Restarts, rounds=2, evaluate=evaluate).parameters["last"]["1.bias"]
    assert (starts[0] == 0).all() and (starts[1] == 7).all()
    assert (last == 7).all() == (evaluate == "aggregated")


# ---- memory, reproducibility


def test_chunks_under_a_memory_limit(five: Case) -> None:
    federation = five.federation()
    request = backbone_of(federation, "gcn").propagation
    assert clients_at_once(federation, request, HIDDEN, 1000, None) is None
    assert clients_at_once(federation, request, HIDDEN, 1000, 10_000) == 5
    assert clients_at_once(federation, request, HIDDEN, 10**9, 1) == 1
    assert clients_at_once(federation, request, HIDDEN, 1000, 1) == 5
    assert clients_at_once(federation, request, HIDDEN, 1000, 1, edge_values=10_000) == 1
    assert clients_at_once(federation, request, HIDDEN, 1000, 1, pair_bytes=10**6) == 1
    limits = [clients_at_once(federation, request, 64, 2**20, memory) or 0 for memory in (1, 4, 8, 12, 16, 100)]
    assert limits == sorted(limits) and len(set(limits)) > 2


@pytest.mark.parametrize("name", registry.names("backbone"))
def test_no_layer_is_wider_than_the_memory_limit_counts(tmp_path: Path, name: str) -> None:
    federation = tiny_case(tmp_path, sparse=False).federation(name, hidden=HIDDEN, dropout=0.0)
    backbone = backbone_of(federation, name, hidden=HIDDEN, dropout=0.0)
    one = backbone.initial(torch.Generator().manual_seed(0))
    parameters = {part: tensor.repeat(3, *[1] * tensor.dim()).requires_grad_() for part, tensor in one.items()}
    batch = backbone.batch(federation, np.arange(3))
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = backbone.forward(parameters, batch, no_dropout)
    width = backbone.branches * max(tensor.shape[-1] for tensor in one.values())
    inner = {tensor.data_ptr() for tensor in (*parameters.values(), *batch.features)}
    rows = len(batch.targets)
    widest = [tensor.shape[1] for place, tensor in kept.items() if place not in inner and len(tensor) == rows]
    assert max([output.hidden.shape[1], *widest]) <= width
    assert name not in ("sign", "gamlp") or backbone.branches == backbone.hops + 1


@pytest.mark.parametrize(("sparse", "propagate"), [(True, True), (False, True), (False, False)])
def test_no_input_is_written_to(tmp_path: Path, sparse: bool, propagate: bool) -> None:
    federation = tiny_case(tmp_path, sparse=sparse).federation(propagate=propagate)
    rebuilding = {name for name in registry.names("method") if registry.declaration("method", name).changes_graph}
    methods = set(registry.names("method")) - {"global"} - (rebuilding if made_of(federation).hops else set())
    parts = [federation.labels, federation.ptr, federation.role]
    for matrix in (
        federation.adjacency,
        made_of(federation).operator,
        federation.features,
        *made_of(federation).features,
    ):
        parts += [matrix] if isinstance(matrix, np.ndarray) else [matrix.data, matrix.indices, matrix.indptr]
    before = [part.copy() for part in parts]
    for part in parts:
        part.flags.writeable = False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        for method in methods:
            run(federation, method, dropout=0.5, participation=0.7)
    assert all(np.array_equal(now, then) for now, then in zip(parts, before, strict=True))


_TWICE = """
import hashlib, sys
from pathlib import Path
from federations import tiny_case
from test_laws import run
result = run(tiny_case(Path(sys.argv[1])).federation(), "fedprox", dropout=0.5, participation=0.7, rounds=4)
digest = hashlib.sha256()
for reading in sorted(result.predictions):
    digest.update(result.predictions[reading].tobytes())
for kept in ("val", "last"):
    for name, tensor in sorted(result.parameters[kept].items()):
        digest.update(tensor.detach().contiguous().numpy().tobytes())
print(digest.hexdigest())
"""


def test_two_processes_give_the_same_bits(tmp_path: Path) -> None:
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent), str(here.parent.parent / "src")]
    digests = []
    for number in range(2):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": str(number)}
        done = subprocess.run(
            [sys.executable, "-c", _TWICE, str(tmp_path / str(number))],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(done.stdout.split()[-1])
    assert digests[0] == digests[1]
    assert len(digests[0]) == hashlib.sha256().digest_size * 2


def test_two_equal_clients_differ_in_their_dropout_alone(five: Case) -> None:
    whole = five.federation()
    rows = np.tile(np.arange(five.ptr[1]), 2)
    own = whole.adjacency[rows[: five.ptr[1]]][:, rows[: five.ptr[1]]]
    twins = replace(
        whole,
        ptr=np.array([0, 12, 24]),
        labels=whole.labels[rows],
        role=whole.role[rows],
        adjacency=sp.block_diag([own, own], format="csr"),
        x=whole.features[rows],
        made={},
    )
    for dropout, equal in ((0.0, True), (0.5, False)):
        losses = run(twins, "local", dropout=dropout).history["train_loss"]
        assert np.allclose(losses[:, 0], losses[:, 1], rtol=0, atol=1e-6) == equal


def test_seeds_differ_in_start_and_dropout(five: Case) -> None:
    federation = five.federation()
    one, other = (run(federation, "local", seed=seed, dropout=0.5, rounds=1).parameters["last"] for seed in (1, 2))
    assert not torch.equal(one["0.weight"], other["0.weight"])
    again = run(federation, "local", seed=1, dropout=0.5, rounds=1).parameters["last"]
    assert torch.equal(one["0.weight"], again["0.weight"])
