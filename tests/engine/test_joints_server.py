"""Parameters beyond the backbone's: a method's own, which its loss trains, and a model of the server's own."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import TRAIN, Case
from laws import make_five, run
from oracle import average
from peers import CLASSES, SEED, Peer, Weights, adams, assert_weights, classes, peers_of, perceptron, start_of, train
from torch import Tensor

from fglbench.engine.rounds import draw_clients
from fglbench.federation.parameters import Parameters
from fglbench.federation.server import ServerModel
from fglbench.methods import base, fedavg
from fglbench.seeding import torch_stream


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


class Prototypes(fedavg.Method):
    """Every client has a prototype for each class, which draws its training nodes' logits; half the first bias, too."""

    personal: ClassVar[list[str]] = []

    def initial(self, parameters: Parameters, stream: torch.Generator) -> Parameters:
        own = torch.randn(CLASSES, CLASSES, generator=stream)
        return parameters | {"0.bias": parameters["0.bias"] / 2, "prototypes": own}

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {base.SHARED: [name for name in names if name not in self.personal]}

    def loss(self, step: base.Step) -> Tensor:
        client = torch.repeat_interleave(torch.tensor(step.batch.target_ptr).diff())
        near = step.output.logits - step.parameters["prototypes"][client, step.batch.labels]
        return 0.5 * (step.batch.client_mean @ near.square().sum(1, keepdim=True)).squeeze(1)


class OwnPrototypes(Prototypes):
    personal: ClassVar[list[str]] = ["prototypes"]


def prototypes_start(start: Weights) -> Weights:
    own = torch.randn(CLASSES, CLASSES, generator=torch_stream(SEED, "method initialisation"))
    return {**start, "0.bias": start["0.bias"] / 2, "prototypes": own}


def near(peer: Peer) -> Tensor:
    """The term that `Prototypes` adds."""
    rows = peer.role == TRAIN
    distance = perceptron(peer.weights, peer.x)[rows] - peer.weights["prototypes"][peer.labels[rows]]
    return 0.5 * distance.square().sum(1).mean()


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("method", [Prototypes, OwnPrototypes])
def test_a_parameter_of_the_method_is_trained_by_its_loss(
    five: Case, method: type[Prototypes], participation: float, chunk: int | None
) -> None:
    federation = five.federation("mlp")
    result = run(federation, method, "mlp", chunk=chunk, participation=participation, rounds=3)
    peers = peers_of(five, prototypes_start(start_of(federation)))
    optimisers, losses, totals = adams(peers), np.full((3, 5), np.nan), np.full((3, 5), np.nan)
    names = [name for name in peers[0].weights if name not in method.personal]
    for number in range(3):
        active = [i for i in draw_clients(SEED, number, 5, participation) if i != 3]
        for i in active:
            train(peers[i], optimisers[i], 1, lambda peer: classes(peer) + near(peer))
            losses[number, i] = float(classes(peers[i]).detach())
            totals[number, i] = train(peers[i], optimisers[i], 1, lambda peer: classes(peer) + near(peer))
        mean = average([peers[i].read() for i in active], [peers[i].size() for i in active], names)
        for peer in peers:
            peer.write(mean)
    assert_weights(result.parameters["last"], peers)
    np.testing.assert_allclose(result.history["train_loss"], losses, rtol=0, atol=1e-5)
    np.testing.assert_allclose(result.history["total_loss"], totals, rtol=0, atol=1e-5)
    moved = result.parameters["last"]["prototypes"][0] - prototypes_start(start_of(federation))["prototypes"]
    assert moved.abs().max() > 0.01
    each = sum(4 * peers[0].weights[name].numel() for name in names)
    assert result.history["bytes_up"][-1] == each * np.isfinite(losses).sum()


def test_where_nothing_is_added_there_is_one_loss(five: Case) -> None:
    assert "total_loss" not in run(five.federation("mlp"), "fedavg", "mlp").history


@pytest.mark.parametrize("added", [np.nan, np.inf, 2e4])
def test_what_a_method_adds_may_diverge(five: Case, added: float) -> None:
    class Adds(fedavg.Method):
        def loss(self, step: base.Step) -> Tensor:
            late = torch.from_numpy((step.clients == 1) & (step.round == 1)).float()
            return torch.where(late > 0, added, 0.0)

    result = run(five.federation("mlp"), Adds, "mlp")
    assert (result.state, result.diverged_round) == ("diverged", 1)
    assert np.isfinite(result.history["train_loss"][0, [0, 1, 2, 4]]).all()


# ---- the server's model


def quadratic(goal: Tensor, parameters: Weights) -> Tensor:
    return (parameters["w"].flatten() - goal).square().sum() + 3 * parameters["b"].square().sum()


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_servers_model_is_trained_by_torchs_adam(weight_decay: float) -> None:
    stream = torch.Generator().manual_seed(0)
    start = {name: torch.randn(shape, generator=stream) for name, shape in (("w", (2, 3)), ("b", (4,)), ("idle", (2,)))}
    ours = ServerModel(start, 0.05, weight_decay, "cpu")
    theirs = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    adam = torch.optim.Adam(theirs.values(), lr=0.05, weight_decay=weight_decay)
    for _ in range(7):
        goal = torch.randn(6, generator=stream)
        adam.zero_grad()
        loss = quadratic(goal, theirs) + 0 * theirs["idle"].sum()  # a gradient of zero, as of what no loss reads
        loss.backward()
        adam.step()
        assert ours.step(lambda parameters, goal=goal: quadratic(goal, parameters)) == pytest.approx(loss.item())
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours.values()[name], tensor.detach(), rtol=0, atol=1e-6)
        assert ours.parameters[name].shape == (1, *tensor.shape)
    assert not any(tensor.requires_grad for tensor in ours.values().values())


class Distils(fedavg.Method):
    """The server learns a scale for each class of the mean of the uploads' last bias, three steps a round."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._scale = ServerModel({"scale": torch.ones(CLASSES)}, 0.1, 0.0, "cpu")

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        bias = mixed["1.bias"][0]
        for _ in range(3):
            self._scale.step(lambda own: (own["scale"][0] * bias - 1).square().sum())
        mixed["1.bias"] = (self._scale.values()["scale"] * bias).expand_as(mixed["1.bias"])

    def server_parameters(self) -> Parameters:
        return self._scale.values()


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_servers_model_answers_and_is_kept(five: Case, chunk: int | None) -> None:
    federation = five.federation("mlp")
    result = run(federation, Distils, "mlp", chunk=chunk, rounds=3)
    peers, scale = peers_of(five, start_of(federation)), torch.ones(CLASSES, requires_grad=True)
    optimisers, at_server = adams(peers), torch.optim.Adam([scale], lr=0.1)
    for _ in range(3):
        for i in (0, 1, 2, 4):
            train(peers[i], optimisers[i], 2, classes)
        active = [peers[i] for i in (0, 1, 2, 4)]
        mean = average([peer.read() for peer in active], [peer.size() for peer in active], list(peers[0].weights))
        for _ in range(3):
            at_server.zero_grad()
            (scale * mean["1.bias"] - 1).square().sum().backward()
            at_server.step()
        for peer in peers:
            peer.write({**mean, "1.bias": scale.detach() * mean["1.bias"]})
    assert_weights(result.parameters["last"], peers)
    assert set(result.server) == {"scale"}
    torch.testing.assert_close(result.server["scale"], scale.detach(), rtol=0, atol=1e-5)
    assert (result.server["scale"] - 1).abs().min() > 0.1


def test_its_seconds_are_the_servers(five: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on in the server's steps, and once in each client's upload."""
    clock = [0.0]

    class Takes(Distils):
        def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
            clock[0] += 10
            return {}

        def server_update(self, round: base.Round, mixed: Parameters) -> None:
            super().server_update(round, mixed)
            clock[0] += 3

        def client_update(self, round: base.ClientRound, current: Parameters) -> None:
            clock[0] += 100

    monkeypatch.setattr("fglbench.engine.loop.time.perf_counter", lambda: clock[0])
    result = run(five.federation("mlp"), Takes, "mlp", rounds=2)
    assert (result.server_seconds, result.train_seconds) == (6, 226)
