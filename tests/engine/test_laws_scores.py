"""Laws of the engine: divergence, and what is scored, selected and counted."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import (
    TASK,
    TEST,
    TRAIN,
    VAL,
    Case,
)
from laws import logits_of, parameter_bytes, run

from fglbench.engine.local import Trained
from fglbench.engine.record import Recorder
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.methods import base, fedavg


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
