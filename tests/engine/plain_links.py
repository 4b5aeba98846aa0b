"""Link prediction the plain way: one client after another, with PyG's layers and PyG's reconstruction loss.

It shares no code with the stacked engine but the streams of negatives and noise, which both must draw alike.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from torch_geometric.nn import GAE, GCNConv, InnerProductDecoder

from fglbench.federation.federation import Federation
from fglbench.seeding import derive

Weights = dict[str, Tensor]
Draw = Callable[[int, int, int], np.ndarray]
"""Gives the negatives [E, 2] of a round, a local epoch and a client."""


@dataclass(frozen=True)
class Client:
    """One client's graph of training: x [n, features], edges [2, 2E] in both directions, and links [E, 2] to learn."""

    x: Tensor
    edges: Tensor
    links: np.ndarray


def clients_of(federation: Federation) -> list[Client]:
    features = federation.features if isinstance(federation.features, np.ndarray) else federation.features.toarray()
    found = []
    for start, stop in pairwise(federation.ptr.tolist()):
        block = federation.adjacency[start:stop, start:stop].tocoo()
        edges = np.stack([block.row, block.col]).astype(np.int64)
        order = edges[:, edges[0] < edges[1]].T
        links = order[np.lexsort((order[:, 1], order[:, 0]))]
        found.append(Client(torch.from_numpy(features[start:stop]), torch.from_numpy(edges), links))
    return found


class Encoder(torch.nn.Module):
    """Two convolutions of PyG; with `variational` a third one gives log sigma."""

    def __init__(self, features: int, hidden: int, variational: bool):
        super().__init__()
        self.layers = torch.nn.ModuleDict({"0": GCNConv(features, hidden), "mean": GCNConv(hidden, hidden)})
        if variational:
            self.layers["log_sigma"] = GCNConv(hidden, hidden)

    def named(self) -> Weights:
        found = {}
        for name, layer in self.layers.items():
            found |= {f"{name}.weight": layer.lin.weight, f"{name}.bias": layer.bias}
        return found

    def read(self) -> Weights:
        return {
            name: (own.T if own.dim() == 2 else own).detach().clone(memory_format=torch.contiguous_format)
            for name, own in self.named().items()
        }

    def write(self, weights: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, own in self.named().items():
                own.copy_(weights[name].T if own.dim() == 2 else weights[name])

    def forward(self, x: Tensor, edges: Tensor) -> list[Tensor]:
        h = self.layers["0"](x, edges).relu()
        return [layer(h, edges) for name, layer in self.layers.items() if name != "0"]


@dataclass
class Plan:
    """What is trained and how."""

    hidden: int
    variational: bool = False
    kl: float = 1.0
    rounds: int = 3
    local_epochs: int = 2
    lr: float = 0.01
    weight_decay: float = 5e-4
    contrast: float = 0.0
    temperature: float = 0.5
    queue: int = 1
    phi: float = 0.5
    drop: float | None = None
    adjustments: int = 3


@dataclass
class Trace:
    weights: list[Weights] = field(default_factory=list)
    losses: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    adjusted: int = 0


def contrast_of(z: Tensor, received: Tensor, earlier: Sequence[Tensor], temperature: float) -> Tensor:
    """Equation 10 as it is printed, the mean over nodes."""
    near = (cosine_similarity(z, received) / temperature).exp()
    far = sum((cosine_similarity(z, own) / temperature).exp() for own in earlier)
    return -(near / (near + far)).log().mean()


def run(
    clients: Sequence[Client],
    initial: Mapping[str, Tensor],
    plan: Plan,
    draw: Draw,
    score: Callable[[int, Tensor], float] = lambda client, z: float("nan"),
    seed: int = 0,
) -> Trace:
    """FedAvg over clients weighted by their links, or with a contrast and fine-tuning FedVGAE, eq. 10 to 12.

    Args:
        draw: the negatives.
        score: the validation score of a client, of its embeddings.
    """
    features = clients[0].x.shape[1]
    models = [Encoder(features, plan.hidden, plan.variational) for _ in clients]
    for model in models:
        model.write(initial)
    settings: dict[str, Any] = {"lr": plan.lr, "weight_decay": plan.weight_decay}
    optimisers = [torch.optim.Adam(model.parameters(), **settings) for model in models]
    noise = [torch.Generator().manual_seed(derive(seed, "dropout", client)) for client in range(len(clients))]
    earlier: list[list[Weights]] = [[] for _ in clients]
    trace = Trace(losses=np.full((plan.rounds, len(clients)), np.nan))
    recon = GAE(torch.nn.Identity(), InnerProductDecoder())
    helper = Encoder(features, plan.hidden, plan.variational)

    def mean_of(client: Client, weights: Weights) -> Tensor:
        helper.write(weights)
        with torch.no_grad():
            return helper(client.x, client.edges)[0]

    of_server = [model.read() for model in models]
    for number in range(plan.rounds):
        trained: dict[int, Weights] = {}
        for c, (client, model, optimiser) in enumerate(zip(clients, models, optimisers, strict=True)):
            if not len(client.links):
                continue
            received = mean_of(client, of_server[c])
            away = [mean_of(client, own) for own in earlier[c]]
            for epoch in range(plan.local_epochs):
                optimiser.zero_grad()
                mean, *more = model(client.x, client.edges)
                z, divergence = mean, torch.zeros(())
                if plan.variational:
                    log_sigma = more[0].clamp(max=10)
                    z = mean + log_sigma.exp() * torch.empty_like(mean).normal_(generator=noise[c])
                    each = (1 + 2 * log_sigma - mean**2 - log_sigma.exp() ** 2).sum(1)
                    divergence = -0.5 * each.mean() / len(mean)  # PyG's kl_loss, as its example weighs it
                positive, negative = (torch.from_numpy(own.T.copy()) for own in (client.links, draw(number, epoch, c)))
                loss = recon.recon_loss(z, positive, negative)
                trace.losses[number, c] = float(loss.detach())
                total = loss + plan.kl * divergence
                if plan.contrast and away:
                    total = total + plan.contrast * contrast_of(z, received, away, plan.temperature)
                total.backward()
                optimiser.step()
            trained[c] = model.read()
            earlier[c] = [trained[c], *earlier[c]][: plan.queue]
        sizes = {c: len(clients[c].links) for c in trained}
        mean_weights = {
            name: sum(trained[c][name] * (sizes[c] / sum(sizes.values())) for c in trained) for name in initial
        }
        for c, model in enumerate(models):
            now: Weights = dict(mean_weights)  # type: ignore[arg-type]
            of_server[c] = now
            if plan.drop is not None and c in trained:
                least = score(c, mean_of(clients[c], trained[c])) - plan.drop
                for _ in range(plan.adjustments):
                    if not score(c, mean_of(clients[c], now)) < least:
                        break
                    now = {name: plan.phi * trained[c][name] + (1 - plan.phi) * now[name] for name in now}
                    trace.adjusted += 1
            model.write(now)
    trace.weights = [model.read() for model in models]
    return trace
