"""Laws of the engine: what the hooks of a method see and change."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from federations import (
    TASK,
    Case,
    backbone_of,
    method_of,
    schedule_of,
)
from laws import HIDDEN, logits_of, parameter_bytes, run

from fglbench import registry
from fglbench.engine.loop import train
from fglbench.federation.parameters import Parameters
from fglbench.methods import base, fedavg


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
