"""Strategies as plain loops over clients, one small class each, with the oracle's models and torch's own optimisers.

Each is written from its paper's algorithm, client by client, and shares no code with the package's methods.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from oracle import TRAIN, Client, Plan, average
from plain_models import MODELS, Model, Weights
from scipy.special import softmax, xlogy
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from fglbench.seeding import numpy_stream


@dataclass
class Trained:
    """A client after its local training."""

    received: Weights
    weights: Weights
    size: int


class Strategy:
    """FedAvg; a strategy overrides what it does otherwise.

    Attributes:
        steps: local steps of each client in a round, K of the papers; `run` sets them.
    """

    steps: Sequence[int] = ()

    def begin(self, client: int, data: Client, model: Model) -> None:
        """Before the client's local training."""

    def end(self, client: int, data: Client, model: Model) -> None:
        """After the client's local training."""

    def logits(self, client: int, data: Client, model: Model) -> Tensor:
        """What the client's model says of all its nodes."""
        return model(data.x, data.edges)

    def extra(self, client: int, data: Client, model: Model, rows: np.ndarray) -> Tensor | float:
        """A further term of the local loss on these training nodes."""
        return 0.0

    def correct(self, client: int, model: Model) -> None:
        """Changes the gradients in place."""

    def server(self, trained: dict[int, Trained], held: list[Weights], sizes: list[int]) -> list[Weights]:
        """What every client holds after the round."""
        mean = average([t.weights for t in trained.values()], [t.size for t in trained.values()], list(held[0]))
        return [mean for _ in held]


def run(
    clients: Sequence[Client],
    classes: int,
    initial: Weights,
    plan: Plan,
    strategy: Strategy,
    optimiser: str = "adam",
    batch_size: int | None = None,
    seed: int = 0,
) -> list[Weights]:
    """Trains under the plan; returns every client's weights after the last round.

    With a batch size the clients shuffle their training nodes in every epoch from the streams of the seed.
    """
    models: list[Model] = [MODELS[plan.backbone](plan.settings, clients[0].x.shape[1], classes) for _ in clients]
    for model in models:
        model.write(initial)
    kind = torch.optim.Adam if optimiser == "adam" else torch.optim.SGD
    optimisers = [kind(model.parameters(), lr=plan.lr, weight_decay=plan.weight_decay) for model in models]
    sizes = [int((client.role == TRAIN).sum()) for client in clients]
    strategy.steps = [plan.local_epochs * -(-size // (batch_size or max(sizes))) for size in sizes]
    streams = [numpy_stream(seed, "batches", client) for client in range(len(clients))]
    for number in range(plan.rounds):
        drawn = range(len(clients)) if plan.participants is None else plan.participants[number]
        trained: dict[int, Trained] = {}
        for i in drawn:
            if not sizes[i]:
                continue
            received = models[i].read()
            strategy.begin(i, clients[i], models[i])
            for rows in batches(clients[i], plan.local_epochs, batch_size, streams[i]):
                optimisers[i].zero_grad()
                logits = strategy.logits(i, clients[i], models[i])
                loss = cross_entropy(logits[rows], clients[i].labels[rows])
                loss = loss + strategy.extra(i, clients[i], models[i], rows)
                loss.backward()
                strategy.correct(i, models[i])
                optimisers[i].step()
            strategy.end(i, clients[i], models[i])
            trained[i] = Trained(received, models[i].read(), sizes[i])
        for model, weights in zip(models, strategy.server(trained, [m.read() for m in models], sizes), strict=True):
            model.write(weights)
    return [model.read() for model in models]


def batches(client: Client, epochs: int, size: int | None, stream: np.random.Generator) -> Iterator[np.ndarray]:
    """The training nodes of every local step."""
    nodes = np.flatnonzero(client.role == TRAIN)
    for _ in range(epochs):
        order = nodes if size is None else stream.permutation(nodes)
        for first in range(0, len(order), size or len(order)):
            yield order[first : first + (size or len(order))]


def gradients(model: Model) -> Weights:
    """The gradients as the engine has them, matrices [in, out]; no copies."""
    return {name: (p.grad.T if p.dim() == 2 else p.grad) for name, p in model.named().items()}  # type: ignore[union-attr]


class FedProx(Strategy):
    """Li et al.: mu / 2 times the squared distance to the received parameters."""

    def __init__(self, mu: float):
        self.mu = mu
        self.received: Weights = {}

    def begin(self, client: int, data: Client, model: Model) -> None:
        self.received = {name: tensor.detach().clone() for name, tensor in model.named().items()}

    def extra(self, client: int, data: Client, model: Model, rows: np.ndarray) -> Tensor:
        moved = [(tensor - self.received[name]).square().sum() for name, tensor in model.named().items()]
        return self.mu / 2 * torch.stack(moved).sum()


class Scaffold(Strategy):
    """Karimireddy et al., algorithm 1; by SGD with option II as printed, else with the mean gradient.

    Args:
        plan: of the run.
        weighted: means over clients by training nodes, else equal.
        quotient: (theta - theta_i) / (K lr), which is right for SGD alone.
    """

    def __init__(self, plan: Plan, weighted: bool, quotient: bool):
        self.plan, self.weighted, self.quotient = plan, weighted, quotient
        self.own: dict[int, Weights] = {}
        self.common: Weights = {}
        self.seen: dict[int, list[Weights]] = {}

    def correct(self, client: int, model: Model) -> None:
        weights = model.read()
        step = {name: g + self.plan.weight_decay * weights[name] for name, g in gradients(model).items()}
        self.seen.setdefault(client, []).append({name: tensor.clone() for name, tensor in step.items()})
        for name, gradient in gradients(model).items():
            gradient += self.zero(self.common, name, gradient) - self.zero(self.own.get(client, {}), name, gradient)

    @staticmethod
    def zero(state: Weights, name: str, like: Tensor) -> Tensor:
        return state[name] if name in state else torch.zeros_like(like)

    def server(self, trained: dict[int, Trained], held: list[Weights], sizes: list[int]) -> list[Weights]:
        counted = sizes if self.weighted else [int(size > 0) for size in sizes]
        names = list(held[0])
        changes: dict[int, Weights] = {}
        for i, t in trained.items():
            changes[i] = {}
            for name in names:
                before = self.zero(self.own.get(i, {}), name, t.weights[name])
                if self.quotient:
                    moved = (t.received[name] - t.weights[name]) / (self.steps[i] * self.plan.lr)
                    new = before - self.zero(self.common, name, before) + moved
                else:
                    new = sum((g[name] for g in self.seen[i]), start=torch.zeros(())) / len(self.seen[i])
                changes[i][name] = new - before
        for i, change in changes.items():
            own = self.own.setdefault(i, {})
            for name in names:
                own[name] = self.zero(own, name, change[name]) + change[name]
                share = counted[i] / sum(counted)
                self.common[name] = self.zero(self.common, name, change[name]) + share * change[name]
        self.seen = {}
        mean = average([t.weights for t in trained.values()], [counted[i] for i in trained], names)
        return [mean for _ in held]


def representation(model: Model, client: Client) -> Tensor:
    """What the model's last layer reads, without dropout in the tests that compare."""
    read: list[Tensor] = []
    watching = model.layers[-1].register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    model(client.x, client.edges)
    watching.remove()
    return read[0]


class Moon(Strategy):
    """Li, He, Song, algorithm 1 with the loss of equation 3 as printed."""

    def __init__(self, mu: float, temperature: float, initial: Weights):
        self.mu, self.temperature, self.initial = mu, temperature, initial
        self.last: dict[int, Weights] = {}
        self.frozen: tuple[Tensor, Tensor] = (torch.zeros(()), torch.zeros(()))

    def begin(self, client: int, data: Client, model: Model) -> None:
        received = model.read()
        with torch.no_grad():
            of_global = representation(model, data)
            model.write(self.last.get(client, self.initial))
            self.frozen = of_global, representation(model, data)
            model.write(received)

    def extra(self, client: int, data: Client, model: Model, rows: np.ndarray) -> Tensor:
        z = representation(model, data)[rows]
        to_global, to_last = ((cosine_similarity(z, other[rows]) / self.temperature).exp() for other in self.frozen)
        return self.mu * -(to_global / (to_global + to_last)).log().mean()

    def server(self, trained: dict[int, Trained], held: list[Weights], sizes: list[int]) -> list[Weights]:
        self.last |= {i: t.weights for i, t in trained.items()}
        return super().server(trained, held, sizes)


class FedDC(Strategy):
    """Gao et al., algorithm 1: the loss with its two further terms, differentiated by torch.

    Args:
        plan: of the run.
        alpha: weight of the penalty.
        quotient: d_i is the client's last update; else minus the mean gradient, times K lr.
        openfgl: no mean update in the second term, and drifts that are a round late.

    Where K differs by client, d / (K lr) is the mean of all clients' d_j / (K_j lr).
    """

    def __init__(self, plan: Plan, alpha: float, quotient: bool, openfgl: bool = False):
        self.plan, self.alpha, self.quotient, self.openfgl = plan, alpha, quotient, openfgl
        self.drift: dict[int, Weights] = {}
        self.update: dict[int, Weights] = {}
        self.mean_turn: Weights = {}  # d / (K lr)
        self.received: Weights = {}
        self.seen: dict[int, list[Weights]] = {}

    def begin(self, client: int, data: Client, model: Model) -> None:
        self.received = {name: tensor.detach().clone() for name, tensor in model.named().items()}

    def length(self, client: int) -> float:
        return self.plan.lr * self.steps[client]

    def extra(self, client: int, data: Client, model: Model, rows: np.ndarray) -> Tensor:
        loss = torch.zeros(())
        for name, theta in model.named().items():
            drift = self.stored(self.drift.get(client, {}), name, theta)
            loss = loss + self.alpha / 2 * (theta + drift - self.received[name]).square().sum()
            turn = self.stored(self.update.get(client, {}), name, theta) / self.length(client)
            if not self.openfgl:
                turn = turn - self.stored(self.mean_turn, name, theta)
            loss = loss + (theta * turn).sum()
        return loss

    @staticmethod
    def stored(state: Weights, name: str, like: Tensor) -> Tensor:
        """As torch stores it, [out, in]."""
        return (state[name].T if like.dim() == 2 else state[name]) if name in state else torch.zeros_like(like)

    def correct(self, client: int, model: Model) -> None:
        weights = model.read()
        step = {name: g + self.plan.weight_decay * weights[name] for name, g in gradients(model).items()}
        self.seen.setdefault(client, []).append(step)

    def server(self, trained: dict[int, Trained], held: list[Weights], sizes: list[int]) -> list[Weights]:
        corrected = []
        for i, t in trained.items():
            moved = {name: t.weights[name] - t.received[name] for name in t.weights}
            before = self.drift.get(i, {name: torch.zeros_like(tensor) for name, tensor in moved.items()})
            added = self.update.get(i, {}) if self.openfgl else moved
            self.drift[i] = {name: before[name] + added.get(name, 0.0) for name in moved}
            corrected.append({name: t.weights[name] + self.drift[i][name] for name in moved})
            if self.quotient:
                self.update[i] = moved
            else:
                self.update[i] = {
                    name: -self.length(i) * torch.stack([step[name] for step in self.seen[i]]).mean(0) for name in moved
                }
        self.mean_turn = {
            name: sum(
                (own[name] / self.length(i) * sizes[i] / sum(sizes) for i, own in self.update.items()),
                start=torch.zeros(()),
            )
            for name in held[0]
        }
        self.seen = {}
        mean = average(corrected, [t.size for t in trained.values()], list(held[0]))
        return [mean for _ in held]


def warp(one: Sequence[float], other: Sequence[float]) -> float:
    """The dynamic time warping distance by its recursive definition."""

    def least(i: int, j: int) -> float:
        if i < 0 and j < 0:
            return 0.0
        if i < 0 or j < 0:
            return float("inf")
        return (one[i] - other[j]) ** 2 + min(least(i - 1, j), least(i, j - 1), least(i - 1, j - 1))

    return least(len(one) - 1, len(other) - 1) ** 0.5


def cheapest_cut(clients: Sequence[int], weight: Callable[[int, int], float]) -> tuple[set[int], set[int]]:
    """The minimum cut by trying all of them."""
    parts = [set(part) for size in range(1, len(clients)) for part in combinations(clients, size)]
    first = min(parts, key=lambda part: sum(weight(i, j) for i in part for j in clients if j not in part))
    return first, set(clients) - first


class GCFL(Strategy):
    """Xie et al.: clusters as sets, split one by one, each averaged by itself.

    Args:
        eps1, eps2: lengths, or if `relative` parts of the longest update of the first round.
        first_round: of a split.
        window: of gradient norms for GCFL+; None for GCFL.
        relative: see eps1.
        standardise: divide sequences of norms by their deviation.
    """

    def __init__(
        self,
        plan: Plan,
        eps1: float,
        eps2: float,
        first_round: int,
        window: int | None = None,
        relative: bool = False,
        standardise: bool = False,
    ):
        self.plan, self.eps1, self.eps2, self.first_round, self.window = plan, eps1, eps2, first_round, window
        self.standardise = standardise
        self.clusters: list[set[int]] = []
        self.updates: dict[int, Tensor] = {}
        self.norms: dict[int, list[float]] = {}
        self.last_norm: dict[int, float] = {}
        self.unit = 0.0 if relative else 1.0
        self.number = -1

    def correct(self, client: int, model: Model) -> None:
        flat = torch.cat([gradient.flatten() for gradient in gradients(model).values()])
        self.last_norm[client] = float(flat.norm())

    def server(self, trained: dict[int, Trained], held: list[Weights], sizes: list[int]) -> list[Weights]:
        self.number += 1
        self.clusters = self.clusters or [set(range(len(held)))]
        for i, t in trained.items():
            self.updates[i] = torch.cat([(t.weights[name] - t.received[name]).flatten() for name in t.weights])
            self.norms.setdefault(i, []).append(self.last_norm[i])
        self.unit = self.unit or max(float(update.norm()) for update in self.updates.values())
        if self.number >= self.first_round:
            self.clusters = [part for cluster in self.clusters for part in self.parts(cluster, sizes)]
        after = list(held)
        for cluster in self.clusters:
            active = [i for i in cluster if i in trained]
            if active:
                weights = [trained[i].weights for i in active]
                mean = average(weights, [sizes[i] for i in active], list(held[0]))
                after = [mean if i in cluster else weights for i, weights in enumerate(after)]
        return after

    def parts(self, cluster: set[int], sizes: list[int]) -> list[set[int]]:
        known = sorted(i for i in cluster if i in self.updates)
        total = sum(sizes[i] for i in known)
        mean = sum((self.updates[i] * sizes[i] / total for i in known), start=torch.zeros(()))
        longest = max((float(self.updates[i].norm()) for i in known), default=0.0)
        if len(known) <= 2 or float(mean.norm()) >= self.eps1 * self.unit or longest <= self.eps2 * self.unit:
            return [cluster]
        if self.window is not None and any(len(self.norms[i]) < self.window for i in known):
            return [cluster]
        one, other = cheapest_cut(known, self.weights(known))
        if self.window is not None:
            for i in known:
                self.norms[i] = []
        larger = max(one, other, key=lambda part: (sum(sizes[i] for i in part), -min(part)))
        larger |= cluster - set(known)
        return [one, other]

    def weights(self, known: list[int]) -> Callable[[int, int], float]:
        if self.window is None:
            return lambda i, j: float(torch.cosine_similarity(self.updates[i], self.updates[j], dim=0)) + 1
        recent = {i: np.array(self.norms[i][-self.window :]) for i in known}
        scaled = {i: list(norms / norms.std() if self.standardise else norms) for i, norms in recent.items()}
        farthest = max(warp(scaled[i], scaled[j]) for i, j in combinations(known, 2))
        return lambda i, j: farthest - warp(scaled[i], scaled[j])


class FedGTA(Strategy):
    """Li et al., algorithms 1 and 2, on dense matrices of one client at a time; `public`: as the authors' code has it.

    `compared` and `accepted` count pairs of different clients.
    """

    def __init__(
        self,
        k: int = 5,
        alpha: float = 0.5,
        order: int = 6,
        moments: str = "hybrid",
        epsilon: float = 0.5,
        no_moments: bool = False,
        no_confidence: bool = False,
        variant: str = "paper",
    ):
        self.public = variant == "public"
        self.k, self.alpha, self.order, self.kind, self.epsilon = k, alpha, order, moments, epsilon
        self.no_moments, self.no_confidence = no_moments, no_confidence
        self.moments: dict[int, np.ndarray] = {}
        self.confidence: dict[int, float] = {}
        self.ever: set[int] = set()
        self.compared = self.accepted = 0

    def end(self, client: int, data: Client, model: Model) -> None:
        with torch.no_grad():
            soft = model(data.x, data.edges).softmax(1).numpy()
        adjacency = np.zeros((len(soft), len(soft)))
        adjacency[data.edges[0], data.edges[1]] = 1
        adjacency += np.eye(len(soft))
        degrees = adjacency.sum(1)
        spread = adjacency / np.sqrt(degrees)[:, None] / np.sqrt(degrees)
        if self.public:
            self.end_public(client, soft, data, spread, degrees - 1)
            return
        steps = [soft]
        for _ in range(self.k):
            steps.append(self.alpha * soft + (1 - self.alpha) * spread @ steps[-1])
        entropy = -steps[-1] * np.log(steps[-1])
        self.confidence[client] = float((degrees[:, None] * (np.exp(-1) - entropy)).sum())
        found = []
        for step in steps[1:]:
            for power in range(1, self.order + 1):
                if self.kind != "central":
                    found.append((step**power).mean(0))
                if self.kind != "raw":
                    found.append(((step - step.mean(1, keepdims=True)) ** power).mean(0))
        self.moments[client] = np.concatenate(found)

    def end_public(self, client: int, soft: np.ndarray, data: Client, spread: np.ndarray, degrees: np.ndarray) -> None:
        training = (data.role == TRAIN).numpy()
        known = np.eye(soft.shape[1])[data.labels.numpy()] * training[:, None]
        first = np.where(training[:, None], known, soft)
        last = first
        for _ in range(self.k):
            last = self.alpha * first + (1 - self.alpha) * spread @ last + known
        warm, cold = (softmax(last / heat, axis=1) for heat in (20, 1))
        warm[training] = cold[training] = known[training]
        self.confidence[client] = float((degrees[:, None] * (np.exp(-1) + xlogy(warm, warm))).sum())
        base = cold if self.kind == "raw" else cold - cold.mean(0)
        self.moments[client] = np.concatenate([(base**power).mean(0) for power in range(1, self.order + 1)])

    def server(self, trained: dict[int, Trained], held: list[Weights], sizes: list[int]) -> list[Weights]:
        self.ever |= set(trained)
        after = []
        for i, own in enumerate(held):
            if i in self.ever and i not in trained:
                after.append(own)
                continue
            chosen = [j for j in trained if i not in trained or i == j or self.alike(i, j)]
            weights = [float(sizes[j]) if self.no_confidence else self.confidence[j] for j in chosen]
            total = sum(weights)
            if total == 0:
                after.append(own)
                continue
            parts = [(trained[j].weights, weight / total) for j, weight in zip(chosen, weights, strict=True)]
            after.append({name: sum((w[name] * p for w, p in parts), start=torch.zeros(())) for name in own})
        return after

    def alike(self, i: int, j: int) -> bool:
        if self.no_moments:
            return True
        one, other = self.moments[i], self.moments[j]
        cosine = one @ other / np.sqrt((one @ one) * (other @ other))
        near = bool(cosine > self.epsilon if self.public else cosine >= self.epsilon)
        self.compared += 1
        self.accepted += near
        return near


class FedGL(Strategy):
    """Chen et al. under FedAvg: a GCN of two layers on dense matrices of one client at a time.

    Args:
        nodes: the global ids of every client's nodes.
        label_weight, confidence, edge_weight: as the method's settings; a node is joined to all that have a positive
            cosine, since which of several equally near ones are the nearest is left to rounding.
    """

    def __init__(self, nodes: Sequence[Sequence[int]], label_weight: float, confidence: float, edge_weight: float):
        self.nodes, self.label_weight, self.confidence = nodes, label_weight, confidence
        self.edge_weight = edge_weight
        self.labels = [torch.full((len(own),), -1) for own in nodes]
        self.joined = [torch.zeros(len(own), len(own)) for own in nodes]
        self.roles: dict[int, Tensor] = {}
        self.sent: dict[int, tuple[Tensor, Tensor]] = {}  # predictions and embeddings of who trained in this round

    def operator(self, client: int, data: Client) -> Tensor:
        """Symmetrically normalised, [n, n]."""
        weights = torch.eye(len(data.x)) + self.edge_weight * self.joined[client]
        weights[data.edges[0], data.edges[1]] += 1.0
        scale = weights.sum(1) ** -0.5
        return scale[:, None] * weights * scale

    def hidden(self, client: int, data: Client, model: Any) -> Tensor:
        first = model.layers[0]
        return (self.operator(client, data) @ data.x @ first.lin.weight.T + first.bias).relu()

    def logits(self, client: int, data: Client, model: Any) -> Tensor:
        second = model.layers[1]
        return self.operator(client, data) @ self.hidden(client, data, model) @ second.lin.weight.T + second.bias

    def extra(self, client: int, data: Client, model: Model, rows: np.ndarray) -> Tensor | float:
        labels = self.labels[client]
        if (labels < 0).all():
            return 0.0
        logits = self.logits(client, data, model)
        return self.label_weight * cross_entropy(logits[labels >= 0], labels[labels >= 0])

    def end(self, client: int, data: Client, model: Model) -> None:
        with torch.no_grad():
            predictions = self.logits(client, data, model).softmax(1)
            self.sent[client], self.roles[client] = (predictions, self.hidden(client, data, model)), data.role

    def server(self, trained: dict[int, Trained], held: list[Weights], sizes: list[int]) -> list[Weights]:
        for i in trained:
            predictions, embeddings = (
                torch.stack([self.mean_of_holders(node, part, sizes) for node in self.nodes[i]]) for part in (0, 1)
            )
            best, found = predictions.max(1)
            self.labels[i] = torch.where((best >= self.confidence) & (self.roles[i] != TRAIN), found, -1)
            self.joined[i] = self.pseudo_graph(embeddings)
        self.sent = {}
        return super().server(trained, held, sizes)

    def mean_of_holders(self, node: int, part: int, sizes: list[int]) -> Tensor:
        rows = [
            (sizes[j], sent[part][row])
            for j, sent in self.sent.items()
            for row, other in enumerate(self.nodes[j])
            if other == node
        ]
        return sum((size * row for size, row in rows), start=torch.zeros(())) / sum(size for size, _ in rows)

    @staticmethod
    def pseudo_graph(embeddings: Tensor) -> Tensor:
        near = cosine_similarity(embeddings[:, None], embeddings, dim=2) > 0
        return (near & ~torch.eye(len(embeddings), dtype=torch.bool)).float()
