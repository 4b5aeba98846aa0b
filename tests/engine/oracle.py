"""The oracle: the plain way to simulate a federation, one client after another, with PyG's own layers.

Dense features, a model and a `torch.optim.Adam` per client, aggregation in plain Python. It shares no code with the
stacked engine; both start from the same initial weights and masks, so that without dropout they must agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from plain_models import MODELS, Model, Weights
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.utils import subgraph

from fglbench.datasets.base import Graph
from fglbench.seeding import derive

TRAIN, VAL, TEST = 1, 2, 3


@dataclass(frozen=True)
class Client:
    """One client's graph: x [n, features] dense, edges [2, e] in its own node ids, labels [n], role [n]."""

    x: Tensor
    edges: Tensor
    labels: Tensor
    role: Tensor


@dataclass(frozen=True)
class Plan:
    """What is trained and how; the fields mean what they mean in the engine's settings.

    `settings` are all of the backbone's, defaults included.
    `participants` gives the clients drawn in each round; None draws all of them in every round.
    """

    backbone: str
    settings: Mapping[str, Any]
    method: str = "fedavg"
    mu: float = 0.0
    rounds: int = 3
    local_epochs: int = 2
    lr: float = 0.01
    weight_decay: float = 5e-4
    optimiser_state: str = "kept"
    participants: Sequence[Iterable[int]] | None = None


@dataclass
class Trace:
    """What the loop leaves behind.

    Attributes:
        weights: per client, after the last round's aggregation.
        logits: per client [n, classes], under those weights.
        losses: [rounds, C], of the last local epoch; nan where a client sat out.
        correct: for "val" and "test", [rounds, C] nodes classified right after each round's aggregation.
    """

    weights: list[Weights] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    losses: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    correct: dict[str, np.ndarray] = field(default_factory=dict)


def clients_of(graph: Graph, nodes: np.ndarray, ptr: np.ndarray, role: np.ndarray) -> list[Client]:
    """Cuts every client's induced subgraph out of the whole graph with PyG's `subgraph`."""
    features = graph.features if isinstance(graph.features, np.ndarray) else graph.features.toarray()
    edges = torch.from_numpy(graph.edges)
    clients = []
    for start, stop in pairwise(ptr):
        own = torch.from_numpy(nodes[start:stop])
        own_edges, _ = subgraph(own, edges, relabel_nodes=True, num_nodes=graph.num_nodes)
        clients.append(
            Client(
                x=torch.from_numpy(features)[own],
                edges=own_edges,
                labels=torch.from_numpy(graph.labels)[own],
                role=torch.from_numpy(role[start:stop]),
            )
        )
    return clients


def shared_names(plan: Plan, names: Sequence[str]) -> list[str]:
    """The parameters that a method averages."""
    if plan.method in ("global", "local"):
        return []
    if plan.method == "fedper":
        return [name for name in names if not name.startswith(f"{plan.settings['depth'] - 1}.")]
    return list(names)


def average(weights: Sequence[Weights], sizes: Sequence[int], names: Sequence[str]) -> Weights:
    """The mean of the clients' weights, weighted by their training nodes."""
    total = sum(sizes)
    return {
        name: sum((own[name] * (size / total) for own, size in zip(weights, sizes, strict=True)), start=torch.zeros(()))
        for name in names
    }


def local_training(model: Model, optimiser: torch.optim.Optimizer, client: Client, plan: Plan) -> float:
    """A client's local epochs; returns the last one's cross-entropy."""
    received = {name: tensor.detach().clone() for name, tensor in model.named().items()} if plan.mu else {}
    train = client.role == TRAIN
    model.train()
    loss = torch.zeros(())
    for _ in range(plan.local_epochs):
        optimiser.zero_grad()
        loss = cross_entropy(model(client.x, client.edges)[train], client.labels[train])
        objective = loss
        for name, tensor in model.named().items() if plan.mu else ():
            objective = objective + plan.mu / 2 * (tensor - received[name]).square().sum()
        objective.backward()
        optimiser.step()
    return float(loss.detach())


def run(clients: Sequence[Client], classes: int, initial: Mapping[str, Tensor], plan: Plan, seed: int = 0) -> Trace:
    """Trains with evaluation after every round."""
    loop = Loop(clients, classes, initial, plan, seed)
    trace = Trace(
        losses=np.full((plan.rounds, len(clients)), np.nan),
        correct={name: np.zeros((plan.rounds, len(clients)), dtype=np.int64) for name in ("val", "test")},
    )
    for number in range(plan.rounds):
        trace.losses[number] = loop.round(number)
        trace.logits = loop.logits()
        for position, (client, logits) in enumerate(zip(clients, trace.logits, strict=True)):
            right = logits.argmax(1) == client.labels
            trace.correct["val"][number, position] = int((right & (client.role == VAL)).sum())
            trace.correct["test"][number, position] = int((right & (client.role == TEST)).sum())
    trace.weights = [model.read() for model in loop.models]
    return trace


class Loop:
    """The rounds of the plain loop, one call each."""

    def __init__(
        self, clients: Sequence[Client], classes: int, initial: Mapping[str, Tensor], plan: Plan, seed: int = 0
    ):
        self.clients = clients
        self.plan = plan
        torch.manual_seed(derive(seed, "oracle"))  # of the layers' own draws, overwritten below, and of dropout
        self.models: list[Model] = [
            MODELS[plan.backbone](plan.settings, clients[0].x.shape[1], classes) for _ in clients
        ]
        for model in self.models:
            model.write(initial)
        self._optimisers = [self._optimiser(model) for model in self.models]
        self._sizes = [int((client.role == TRAIN).sum()) for client in clients]

    def _optimiser(self, model: Model) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), lr=self.plan.lr, weight_decay=self.plan.weight_decay)

    def round(self, number: int) -> np.ndarray:
        """Trains the round's clients, one after another, and averages; returns their losses [C]."""
        drawn = range(len(self.clients)) if self.plan.participants is None else self.plan.participants[number]
        active = [client for client in drawn if self._sizes[client]]
        losses = np.full(len(self.clients), np.nan)
        for client in active:
            if self.plan.optimiser_state == "reset":
                self._optimisers[client] = self._optimiser(self.models[client])
            losses[client] = local_training(
                self.models[client], self._optimisers[client], self.clients[client], self.plan
            )
        names = shared_names(self.plan, list(self.models[0].named()))
        if names and active:
            uploads = [self.models[client].read() for client in active]
            mean = average(uploads, [self._sizes[client] for client in active], names)
            for model in self.models:
                model.write({**model.read(), **mean})
        return losses

    @torch.no_grad()
    def logits(self) -> list[Tensor]:
        """Every client's logits [n, classes] on its own graph."""
        found = []
        for model, client in zip(self.models, self.clients, strict=True):
            model.eval()
            found.append(model(client.x, client.edges))
        return found
