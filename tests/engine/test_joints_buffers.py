"""Buffers: state of a backbone that no gradient trains and training passes alone update, against plain clients."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import TASK, TRAIN, Case, method_of, schedule_of
from laws import HIDDEN, make_five
from oracle import average
from peers import SEED, Peer, Weights, adams, assert_weights, peers_of, start_of
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy

from fglbench.backbones import mlp
from fglbench.backbones.base import Dropout
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.engine.rounds import draw_clients
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.federation.step import Output
from fglbench.methods import base, fedavg
from fglbench.records.run import Machine, Outcome
from fglbench.seeding import numpy_stream
from fglbench.settings import ComponentSettings
from fglbench.stages.run_folder import write_run

BYTES = 4 * (6 * HIDDEN + HIDDEN + HIDDEN * 3 + 3)  # of a client's parameters


class Centred(mlp.Backbone):
    """A perceptron whose hidden columns are centred: in training by the batch's mean, else by a running one."""

    def buffers(self, generator: torch.Generator) -> Parameters:
        return {"0.mean": torch.zeros(HIDDEN)}

    def forward(self, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        h = batch.bias(batch.input_linear(parameters["0.weight"]), parameters["0.bias"], level=0)
        mean = batch.client_mean @ h if dropout.training else parameters["0.mean"]
        centred = h - mean.repeat_interleave(torch.tensor(batch.target_ptr).diff(), dim=0)
        output = self.perceptron(centred, parameters, batch, dropout)
        moved = {"0.mean": torch.lerp(parameters["0.mean"], mean.detach(), 0.1)} if dropout.training else {}
        return replace(output, buffers=moved)


def plain(weights: Weights, x: Tensor, running: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logits [n, classes], and the mean of the hidden columns of these nodes."""
    h = x @ weights["0.weight"] + weights["0.bias"]
    mean = h.mean(0)
    hidden = (h - (mean if running is None else running)).relu()
    return hidden @ weights["1.weight"] + weights["1.bias"], mean.detach()


class Averaged(fedavg.Method):
    """Buffers are averaged as the parameters are; `logits` is what the last uploads' models say."""

    personal: ClassVar[set[str]] = set()
    logits: Tensor

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {base.SHARED: [name for name in names if name not in self.personal]}

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        type(self).logits = round.logits()
        return {}

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        assert not self.personal & (round.parameters.keys() | round.received.keys())
        return super().aggregate(round)


class Personal(Averaged):
    """They stay with their client."""

    personal: ClassVar[set[str]] = {"0.mean"}


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


def run(case: Case, method: Any, chunk: int | None = None, **schedule: Any) -> Result:
    federation = case.federation("mlp")
    backbone = Centred(mlp.Settings(hidden=HIDDEN, dropout=0.0), 6, 3)
    made = method(ComponentSettings(), backbone, federation)
    return train(federation, made, TASK, schedule_of(**schedule), SEED, chunk_clients=chunk)


def steps(peer: Peer, order: np.random.Generator, size: int | None) -> list[np.ndarray]:
    """The training nodes of the steps of two epochs."""
    nodes, found = np.flatnonzero(peer.role == TRAIN), []
    for _ in range(2):
        shuffled = order.permutation(nodes) if size else nodes
        found += np.split(shuffled, range(size or len(nodes), len(nodes), size or len(nodes)))
    return found


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("method", [Averaged, Personal])
def test_a_running_mean_is_that_of_plain_clients(
    five: Case, method: type[Averaged], participation: float, batch_size: int | None, chunk: int | None
) -> None:
    result = run(five, method, chunk, participation=participation, batch_size=batch_size)
    peers, orders = (
        peers_of(five, start_of(five.federation("mlp"))),
        [numpy_stream(SEED, "batches", i) for i in range(5)],
    )
    optimisers = adams(peers)
    for peer in peers:
        peer.weights["0.mean"] = torch.zeros(HIDDEN)
    trainings = 0
    for number in range(3):
        active = [int(i) for i in draw_clients(SEED, number, 5, participation) if i != 3]
        trainings += len(active)
        for i in active:
            for rows in steps(peers[i], orders[i], batch_size):
                optimisers[i].zero_grad()
                logits, mean = plain(peers[i].weights, peers[i].x[rows], None)
                cross_entropy(logits, peers[i].labels[rows]).backward()
                optimisers[i].step()
                peers[i].weights["0.mean"] = 0.9 * peers[i].weights["0.mean"] + 0.1 * mean
        uploaded = [plain(peer.weights, peer.x, peer.weights["0.mean"])[0].detach() for peer in peers]
        names = [name for name in peers[0].weights if name not in method.personal]
        mean_weights = average([peers[i].read() for i in active], [peers[i].size() for i in active], names)
        for peer in peers:
            peer.write(mean_weights)
    assert_weights(result.parameters["last"], peers)
    torch.testing.assert_close(method.logits, torch.cat(uploaded), rtol=0, atol=1e-5)
    expected = torch.cat([plain(peer.weights, peer.x, peer.weights["0.mean"])[0] for peer in peers])
    np.testing.assert_array_equal(result.predictions["last"], expected.argmax(1).numpy())
    assert peers[0].weights["0.mean"].abs().max() > 0.01
    each = BYTES + (0 if method.personal else 4 * HIDDEN)
    assert (result.history["bytes_up"][-1], result.history["bytes_down"][-1]) == (trainings * each, trainings * each)


@pytest.mark.parametrize(("method", "stored"), [(Averaged, 1), (Personal, 5)])
def test_buffers_are_in_the_checkpoint(five: Case, tmp_path: Path, method: type[Averaged], stored: int) -> None:
    result = run(five, method)
    specs = {"method": {"training": {}}}
    write_run(tmp_path / "seed0", specs, 0, "cell", result, Outcome(state="ok"), Machine(), None, 0.0)
    kept = load_file(tmp_path / "seed0" / "checkpoint.safetensors")
    for name, reading in (("selected", "val"), ("last", "last")):
        mean = kept[f"{name}/0.mean"]
        assert mean.shape == (stored, HIDDEN)
        assert torch.equal(mean, result.parameters[reading]["0.mean"][:stored])
    assert set(kept) == {f"{kept}/{name}" for kept in ("selected", "last") for name in result.parameters["last"]}


@pytest.mark.parametrize(
    ("name", "own"),
    [("fedprox", {}), ("scaffold", {}), ("feddc", {}), ("feddc", {"variant": "paper"}), ("moon", {"mu": 1.0})],
)
def test_methods_that_move_parameters_average_buffers(five: Case, name: str, own: dict[str, Any]) -> None:
    """Without the drifts and variates of what a gradient trains."""
    federation, rounds = five.federation("mlp"), []
    sizes = torch.from_numpy(federation.count(TRAIN)).float()

    def made(settings: Any, backbone: Any, federation: Any) -> base.Method:
        method = method_of(federation, backbone, name, **own)
        update = method.server_update

        def watched(round: base.Round, mixed: Parameters) -> None:
            update(round, mixed)
            weights = torch.where(round.weights > 0, sizes, 0)
            mean = torch.einsum("c,cw->w", weights / weights.sum(), round.parameters["0.mean"])
            torch.testing.assert_close(mixed["0.mean"], mean.expand(5, -1), rtol=0, atol=1e-6)
            rounds.append(round.number)

        method.server_update = watched  # type: ignore[method-assign]
        return method

    result = run(five, made, participation=0.6, rounds=4)
    assert rounds == [0, 1, 2, 3]
    assert result.parameters["last"]["0.mean"].abs().max() > 0.01
