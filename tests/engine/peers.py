"""What the tests of the joints share: a perceptron trained by one client after another, with torch's own optimisers.

It is written on plain tensors and shares no code with the engine but the names and shapes of parameters.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from federations import TRAIN, VAL, Case, backbone_of
from laws import HIDDEN
from oracle import average
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from fglbench.federation.federation import Federation
from fglbench.federation.step import Step
from fglbench.seeding import torch_stream
from fglbench.tasks.base import Objective

SEED = 3  # of `laws.run`
CLASSES = 3
Weights = dict[str, Tensor]


@dataclass
class Peer:
    """One client: x [n, features] dense, labels [n], role [n] and its weights, leaves under autograd."""

    x: Tensor
    labels: Tensor
    role: Tensor
    weights: Weights

    def size(self, role: int = TRAIN) -> int:
        return int((self.role == role).sum())

    def read(self) -> Weights:
        """Copies of the weights."""
        return {name: tensor.detach().clone() for name, tensor in self.weights.items()}

    def write(self, weights: Mapping[str, Tensor]) -> None:
        """Sets some of the weights in place, so that an optimiser that holds them keeps its state."""
        with torch.no_grad():
            for name, tensor in weights.items():
                self.weights[name].copy_(tensor)


Loss = Callable[[Peer], Tensor]


def start_of(
    federation: Federation, name: str = "mlp", hidden: int = HIDDEN, stream: str = "initialisation"
) -> Weights:
    """Where a backbone of two layers starts."""
    backbone = backbone_of(federation, name, hidden=hidden, dropout=0.0, depth=2)
    return backbone.initial(torch_stream(SEED, stream))


def peers_of(case: Case, start: Weights) -> list[Peer]:
    """The clients of a case, all from the same weights."""
    features = case.graph.features
    x = torch.from_numpy(features if isinstance(features, np.ndarray) else features.toarray())
    return [
        Peer(
            x=x[own],
            labels=torch.from_numpy(case.graph.labels[own]),
            role=torch.from_numpy(role),
            weights={name: tensor.clone().requires_grad_() for name, tensor in start.items()},
        )
        for own, role in zip(np.split(case.nodes, case.ptr[1:-1]), np.split(case.role, case.ptr[1:-1]), strict=True)
    ]


def perceptron(weights: Weights, x: Tensor) -> Tensor:
    hidden = (x @ weights["0.weight"] + weights["0.bias"]).relu()
    return hidden @ weights["1.weight"] + weights["1.bias"]


def classes(peer: Peer) -> Tensor:
    """The mean cross-entropy of its training nodes."""
    rows = peer.role == TRAIN
    return cross_entropy(perceptron(peer.weights, peer.x)[rows], peer.labels[rows])


def squares(peer: Peer) -> Tensor:
    """The mean squared distance of the logits to the one-hot labels, over its validation nodes."""
    rows = peer.role == VAL
    wanted = one_hot(peer.labels[rows], CLASSES)
    return (perceptron(peer.weights, peer.x)[rows] - wanted).square().sum(1).mean()


class Squares(Objective):
    """`squares` in the engine."""

    def __init__(self, federation: Federation):
        self.targets, self.counts = np.flatnonzero(federation.role == VAL), federation.count(VAL)

    def loss(self, step: Step) -> Tensor:
        wanted = torch.eye(CLASSES, device=step.batch.labels.device)[step.batch.labels]
        each = (step.output.logits - wanted).square().sum(1, keepdim=True)
        return (step.batch.client_mean @ each).squeeze(1)


def adams(peers: Sequence[Peer], lr: float = 0.01, weight_decay: float = 5e-4) -> list[torch.optim.Optimizer]:
    """An optimiser each, with the configuration's defaults."""
    return [torch.optim.Adam(peer.weights.values(), lr=lr, weight_decay=weight_decay) for peer in peers]


def train(peer: Peer, optimiser: torch.optim.Optimizer, epochs: int, loss: Loss) -> float:
    """Steps on all targets; returns the loss before the last one."""
    found = torch.zeros(())
    for _ in range(epochs):
        optimiser.zero_grad()
        found = loss(peer)
        found.backward()
        optimiser.step()
    return float(found.detach())


def federated_round(
    peers: Sequence[Peer],
    optimisers: Sequence[torch.optim.Optimizer],
    active: Collection[int],
    epochs: int = 2,
    loss: Loss = classes,
    role: int = TRAIN,
) -> np.ndarray:
    """FedAvg over those active, weighted by their nodes of that role; all receive. Returns losses [C]."""
    losses = np.full(len(peers), np.nan)
    for i in active:
        losses[i] = train(peers[i], optimisers[i], epochs, loss)
    uploads, sizes = [peers[i].read() for i in active], [peers[i].size(role) for i in active]
    mean = average(uploads, sizes, list(peers[0].weights))
    for peer in peers:
        peer.write(mean)
    return losses


def assert_weights(found: Mapping[str, Tensor], peers: Sequence[Peer], tolerance: float = 1e-5) -> None:
    """Stacked parameters [C, ...] are the peers'."""
    assert set(found) == set(peers[0].weights)
    for name, stack in found.items():
        expected = torch.stack([peer.weights[name].detach() for peer in peers])
        torch.testing.assert_close(stack.detach(), expected, rtol=0, atol=tolerance)
