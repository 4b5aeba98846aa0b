"""Strategies as plain loops over clients, one small class each, with the oracle's models and torch's own optimisers.

Each is written from its paper's algorithm, client by client, and shares no code with the package's methods.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from oracle import TRAIN, Client, Plan, average
from plain_models import MODELS, Model, Weights
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy


@dataclass
class Trained:
    """A client after its local training."""

    received: Weights
    weights: Weights
    size: int


class Strategy:
    """FedAvg; a strategy overrides what it does otherwise."""

    def begin(self, client: int, data: Client, model: Model) -> None:
        """Before the client's local training."""

    def extra(self, client: int, data: Client, model: Model) -> Tensor | float:
        """A further term of the local loss."""
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
) -> list[Weights]:
    """Trains under the plan; returns every client's weights after the last round."""
    models: list[Model] = [MODELS[plan.backbone](plan.settings, clients[0].x.shape[1], classes) for _ in clients]
    for model in models:
        model.write(initial)
    kind = torch.optim.Adam if optimiser == "adam" else torch.optim.SGD
    optimisers = [kind(model.parameters(), lr=plan.lr, weight_decay=plan.weight_decay) for model in models]
    sizes = [int((client.role == TRAIN).sum()) for client in clients]
    for number in range(plan.rounds):
        drawn = range(len(clients)) if plan.participants is None else plan.participants[number]
        trained: dict[int, Trained] = {}
        for i in drawn:
            if not sizes[i]:
                continue
            received = models[i].read()
            train = clients[i].role == TRAIN
            strategy.begin(i, clients[i], models[i])
            for _ in range(plan.local_epochs):
                optimisers[i].zero_grad()
                logits = models[i](clients[i].x, clients[i].edges)
                loss = cross_entropy(logits[train], clients[i].labels[train]) + strategy.extra(i, clients[i], models[i])
                loss.backward()
                strategy.correct(i, models[i])
                optimisers[i].step()
            trained[i] = Trained(received, models[i].read(), sizes[i])
        for model, weights in zip(models, strategy.server(trained, [m.read() for m in models], sizes), strict=True):
            model.write(weights)
    return [model.read() for model in models]


def gradients(model: Model) -> Weights:
    """The gradients as the engine has them, matrices [in, out]; no copies."""
    return {name: (p.grad.T if p.dim() == 2 else p.grad) for name, p in model.named().items()}  # type: ignore[union-attr]


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
                    moved = (t.received[name] - t.weights[name]) / (self.plan.local_epochs * self.plan.lr)
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
    """What a two-layer GCN has before its second layer, for the training nodes."""
    return model.layers[0](client.x, client.edges).relu()[client.role == TRAIN]


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

    def extra(self, client: int, data: Client, model: Model) -> Tensor:
        z = representation(model, data)
        to_global, to_last = ((cosine_similarity(z, other) / self.temperature).exp() for other in self.frozen)
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
    """

    def __init__(self, plan: Plan, alpha: float, quotient: bool):
        self.plan, self.alpha, self.quotient = plan, alpha, quotient
        self.drift: dict[int, Weights] = {}
        self.update: dict[int, Weights] = {}
        self.mean_update: Weights = {}
        self.received: Weights = {}
        self.seen: dict[int, list[Weights]] = {}

    def begin(self, client: int, data: Client, model: Model) -> None:
        self.received = {name: tensor.detach().clone() for name, tensor in model.named().items()}

    def extra(self, client: int, data: Client, model: Model) -> Tensor:
        loss = torch.zeros(())
        for name, theta in model.named().items():
            drift = self.stored(self.drift.get(client, {}), name, theta)
            loss = loss + self.alpha / 2 * (theta + drift - self.received[name]).square().sum()
            turn = self.stored(self.update.get(client, {}), name, theta) - self.stored(self.mean_update, name, theta)
            loss = loss + (theta * turn).sum() / (self.plan.lr * self.plan.local_epochs)
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
            self.drift[i] = {name: before[name] + moved[name] for name in moved}
            corrected.append({name: t.weights[name] + self.drift[i][name] for name in moved})
            if self.quotient:
                self.update[i] = moved
            else:
                length = self.plan.lr * self.plan.local_epochs
                self.update[i] = {
                    name: -length * torch.stack([step[name] for step in self.seen[i]]).mean(0) for name in moved
                }
        everyone = [self.update.get(i) for i in range(len(held))]
        self.mean_update = {
            name: sum(
                (own[name] * size / sum(sizes) for own, size in zip(everyone, sizes, strict=True) if own),
                start=torch.zeros(()),
            )
            for name in held[0]
        }
        self.seen = {}
        mean = average(corrected, [t.size for t in trained.values()], list(held[0]))
        return [mean for _ in held]
