"""Another local step than one along the gradient: first-order MAML, two passes a step, against plain clients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from federations import Case
from laws import make_five, run
from oracle import average
from peers import SEED, Peer, classes, peers_of, start_of

from fglbench.engine.local import Losses, gradients_of
from fglbench.engine.rounds import draw_clients
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule
from fglbench.methods import base, fedavg
from fglbench.methods.common.phases import Phase

INNER = 0.5  # rate of the step ahead


def maml(losses: Losses, parameters: Parameters) -> Parameters:
    """The gradient after one step ahead (Finn et al., ICML 2017, section 5.2: first order)."""
    gradients = gradients_of(losses, parameters)
    ahead = {name: (own - INNER * gradients[name]).detach().requires_grad_() for name, own in parameters.items()}
    return gradients_of(losses, ahead)


class Ahead(fedavg.Method):
    def phases(self, schedule: Schedule) -> Sequence[Phase]:
        return [Phase("train", schedule.rounds, local_step=maml)]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


def gradient(peer: Peer) -> tuple[torch.Tensor, list[torch.Tensor]]:
    loss = classes(peer)
    return loss.detach(), list(torch.autograd.grad(loss, list(peer.weights.values())))


def step_ahead(peer: Peer, optimiser: torch.optim.Optimizer) -> float:
    """One step of a client; its loss before it."""
    held = peer.read()
    loss, first = gradient(peer)
    peer.write({name: held[name] - INNER * own for name, own in zip(held, first, strict=True)})
    _, second = gradient(peer)
    peer.write(held)
    for tensor, own in zip(peer.weights.values(), second, strict=True):
        tensor.grad = own
    optimiser.step()
    return float(loss)


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("optimiser", "lr"), [("adam", 0.01), ("sgd", 0.3)])
def test_first_order_maml(five: Case, optimiser: str, lr: float, participation: float, chunk: int | None) -> None:
    federation = five.federation("mlp")
    schedule = {"optimiser": optimiser, "lr": lr, "participation": participation, "rounds": 3}
    result = run(federation, Ahead, "mlp", chunk=chunk, **schedule)
    kind: Any = torch.optim.Adam if optimiser == "adam" else torch.optim.SGD
    peers, losses = peers_of(five, start_of(federation)), np.full((3, 5), np.nan)
    optimisers = [kind(peer.weights.values(), lr=lr, weight_decay=5e-4) for peer in peers]
    for number in range(3):
        active = [i for i in draw_clients(SEED, number, 5, participation) if i != 3]
        for i in active:
            for _ in range(2):
                losses[number, i] = step_ahead(peers[i], optimisers[i])
        mean = average([peers[i].read() for i in active], [peers[i].size() for i in active], list(peers[0].weights))
        for peer in peers:
            peer.write(mean)
    for name, stack in result.parameters["last"].items():
        expected = torch.stack([peer.weights[name].detach() for peer in peers])
        torch.testing.assert_close(stack.detach(), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(result.history["train_loss"], losses, rtol=0, atol=1e-5)
    plain = run(federation, "fedavg", "mlp", chunk=chunk, **schedule).parameters["last"]
    assert max(float((plain[name] - own).abs().max()) for name, own in result.parameters["last"].items()) > 1e-3


def test_gradients_are_modified_after_the_last_pass(five: Case) -> None:
    """Those of the first layer are set to zero: it stays, whatever the step ahead was."""

    class Frozen(Ahead):
        def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
            gradients["0.weight"].zero_()

    result = run(five.federation("mlp"), Frozen, "mlp", weight_decay=0.0).parameters["last"]
    start = start_of(five.federation("mlp"))
    torch.testing.assert_close(result["0.weight"], start["0.weight"].expand(5, -1, -1), rtol=0, atol=1e-6)
    assert not torch.allclose(result["1.weight"][0], start["1.weight"], atol=1e-3)
