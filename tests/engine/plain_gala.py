"""Fed-GALA and Fed-GALAp the plain way: one client after another, with PyG's layers and PyG's reconstruction loss.

It shares no code with the engine but the streams of negatives, which both must draw alike.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from plain_models import MODELS, Model, Weights
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GAE, InnerProductDecoder

from fglbench.federation.federation import Federation

TRAIN = 1


@dataclass
class Client:
    """x [n, features], edges a set of pairs u < v in its own ids, labels, training mask and global ids of the nodes."""

    x: Tensor
    edges: set[tuple[int, int]]
    labels: Tensor
    train: Tensor
    nodes: np.ndarray

    @property
    def both(self) -> Tensor:
        pairs = sorted(self.edges | {(v, u) for u, v in self.edges})
        return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T


def clients_of(federation: Federation) -> list[Client]:
    assert federation.nodes is not None
    x = federation.features if isinstance(federation.features, np.ndarray) else federation.features.toarray()
    found = []
    for start, stop in pairwise(federation.ptr.tolist()):
        rows, columns = federation.adjacency[start:stop, start:stop].nonzero()
        edges = {(int(u), int(v)) for u, v in zip(rows, columns, strict=True) if u < v}
        labels, train = federation.labels[start:stop], federation.role[start:stop] == TRAIN
        own = torch.from_numpy(x[start:stop]), edges, torch.from_numpy(labels), torch.from_numpy(train)
        found.append(Client(*own, federation.nodes[start:stop]))
    return found


@dataclass
class Plan:
    """What is trained and how."""

    settings: dict[str, float]
    classes: int
    rounds: int
    local_epochs: int = 2
    lr: float = 0.01
    weight_decay: float = 5e-4
    alpha: float = 0.006
    link_share: float = 0.5
    augment: str = "anchors"
    mu: float = 0.0
    mu_step: float = 0.1


@dataclass
class Trace:
    weights: list[Weights] = field(default_factory=list)
    phases: list[list[list[int]]] = field(
        default_factory=list
    )  # of each phase, of each round, the clients that trained
    chosen: list[set[tuple[int, int]]] = field(default_factory=list)


def run(clients: list[Client], initial: Weights, plan: Plan, draw: Callable[[int, int, int], np.ndarray]) -> Trace:
    """Args: draw, gives the negatives [E, 2] of a round, a local epoch and a client."""
    models: list[Model] = [MODELS["gcn"](plan.settings, clients[0].x.shape[1], plan.classes) for _ in clients]
    for model in models:
        model.write(initial)
    labelled = [int(client.train.sum()) for client in clients]
    products = [count * len(client.nodes) for count, client in zip(labelled, clients, strict=True)]
    recon = GAE(torch.nn.Identity(), InnerProductDecoder())
    trace, mu = Trace(), plan.mu
    for phase in (1, 3):
        falls, last_mean = 0, np.nan
        optimisers = [torch.optim.Adam(m.parameters(), lr=plan.lr, weight_decay=plan.weight_decay) for m in models]
        takes_part = [c for c in range(len(clients)) if labelled[c] or (phase == 1 and clients[c].edges)]
        left: dict[int, Weights] = {}
        before = dict.fromkeys(takes_part, np.nan)
        rounds: list[list[int]] = []
        trace.phases.append(rounds)
        used = len(trace.phases[0]) if phase == 3 else 0
        server: Weights = {}
        for number in range(plan.rounds - used):
            active = [c for c in takes_part if c not in left]
            if not active:
                break
            losses: dict[int, float] = {}
            for c in active:
                client, model = clients[c], models[c]
                received = model.read()
                for epoch in range(plan.local_epochs):
                    optimisers[c].zero_grad()
                    z = model(client.x, client.both)
                    of_nodes = cross_entropy(z[client.train], client.labels[client.train]) if labelled[c] else 0.0
                    loss = torch.as_tensor(of_nodes)
                    if phase == 1:
                        links = torch.tensor(sorted(client.edges)).T
                        negatives = torch.from_numpy(draw(number, epoch, c).T.copy())
                        of_links = recon.recon_loss(z, links, negatives) if client.edges else 0.0
                        loss = (1 - plan.link_share) * of_nodes + plan.link_share * of_links
                    losses[c] = float(loss.detach())
                    near = sum(
                        (own - (received[name].T if own.dim() == 2 else received[name])).square().sum()
                        for name, own in model.named().items()
                    )
                    (loss + mu / 2 * near).backward()
                    optimisers[c].step()
            rounds.append(active)
            trained = {c: model.read() for c, model in enumerate(models)}
            counted = [c for c in {*active, *left} if products[c]]
            total = sum(products[c] for c in counted)
            server = {name: sum(trained[c][name] * (products[c] / total) for c in counted) for name in initial}
            for c, model in enumerate(models):
                if c not in left:
                    model.write(server)
            if plan.mu:
                sizes = [labelled[c] + (len(clients[c].edges) if phase == 1 else 0) for c in active]
                mean = np.average([losses[c] for c in active], weights=sizes)
                falls = falls + 1 if mean < last_mean else 0
                if mean > last_mean:
                    mu += plan.mu_step
                elif falls == 5:
                    mu, falls = max(0.0, mu - plan.mu_step), 0
                last_mean = mean
            for c in active:
                if phase == 1 and abs(losses[c] - before[c]) < plan.alpha:
                    left[c] = trained[c]
                    models[c].write(trained[c])
                before[c] = losses[c]
        if phase == 1:
            trace.chosen = augment(clients, models, plan.augment)
            for c in left:
                models[c].write(server)
    trace.weights = [model.read() for model in models]
    return trace


@torch.no_grad()
def augment(clients: list[Client], models: list[Model], how: str) -> list[set[tuple[int, int]]]:
    """Joins every anchor to one node, in place; gives the new edges of each client."""
    if how == "none":
        return [set() for _ in clients]
    embeddings = [model(client.x, client.both) for client, model in zip(clients, models, strict=True)]
    holders: dict[int, list[Tensor]] = {}
    for client, z in zip(clients, embeddings, strict=True):
        for node, own in zip(client.nodes.tolist(), z, strict=True):
            holders.setdefault(node, []).append(own)
    added = []
    for client, z in zip(clients, embeddings, strict=True):
        new: set[tuple[int, int]] = set()
        for position, node in enumerate(client.nodes.tolist()):
            if len(holders[node]) < 2:
                continue
            wanted = torch.stack(holders[node]).mean(0) if how == "anchors" else z[position]
            known = {v for edge in client.edges | new if position in edge for v in edge} | {position}
            free = [other for other in range(len(client.nodes)) if other not in known]
            if free:
                best = max(free, key=lambda other: float(wanted @ z[other]))
                new.add((min(position, best), max(position, best)))
        client.edges |= new
        added.append(new)
    return added
