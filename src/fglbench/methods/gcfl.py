"""GCFL (Xie et al., NeurIPS 2021): clusters of clients that split when their updates disagree; FedAvg inside each.

A cluster splits when its mean update is small, ||sum_j (n_j / n) dtheta_j|| < eps1 (eq. 4), while some client's is not,
max_j ||dtheta_j|| > eps2 (eq. 5), dtheta_j a client's change in a round (eq. 6). It splits along the minimum cut (Stoer
and Wagner) of the graph of its clients, whose weights are the cosine similarities of their updates plus 1. Each cluster
adds its mean update to its parameters (eq. 7).

Equations are numbered as in the submitted version. Its eq. 4 and 7 have the clients' plain sums; here clients count by
training nodes, as in FedAvg.

The thresholds are lengths in parameter space, which belong to the paper's model, learning rate and local epochs. Where
they are never met, GCFL equals FedAvg. `relative` takes them as parts of the longest update of the first round
instead, so that they carry over to other models.

As in the public code there is no split in the first rounds (`first_round`) and none of two clients, and a client that
sits out counts with its last update; there the mean update is unweighted. A client that has never trained stays with
the part that has more training nodes.

Defaults:
    eps1 0.01: the public code's.
    eps2 0.1: the public code's.
    relative false: the paper's.
    first_round 20: the public code's.
"""

from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from fglbench.federation.parameters import Parameters, where
from fglbench.methods import base
from fglbench.runtime.modes import full_precision
from fglbench.settings import ComponentSettings, Field

VERSION = 1


class Settings(ComponentSettings):
    eps1: float = Field(0.01, ge=0, description="A cluster may split when its mean update is shorter than this.")
    eps2: float = Field(0.1, ge=0, description="And the longest update of a client is longer than this.")
    relative: bool = Field(False, description="Both are parts of the longest update of the first round, not lengths.")
    first_round: int = Field(20, ge=0, description="Round of the first possible split, from 0.")


class Method(base.Method):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.cluster = np.zeros(self.federation.num_clients, dtype=np.int64)
        self._trained = np.zeros(self.federation.num_clients, dtype=bool)
        self._unit = 0.0  # of the thresholds, after the first round
        self._updates: Parameters = {}  # dtheta_j of the last time each client trained, [C, ...]

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        """One block of sample weights per cluster; a cluster of which nobody trained keeps what it has."""
        self._trained[round.clients] = True
        self._remember_updates(round)
        if round.number >= self.settings.first_round or not self._unit:
            products = self._products()
            self._unit = self._unit or (_longest(products) if self.settings.relative else 1.0)
            if round.number >= self.settings.first_round:
                self._split_clusters(products, round.counts)
        if not self.cluster.any():
            return {base.SHARED: round.weights / round.weights.sum()}
        cluster = torch.from_numpy(self.cluster).to(round.weights.device)
        block = (cluster[:, None] == cluster) * round.weights
        idle = block.sum(1) == 0
        block = torch.where(idle[:, None], torch.eye(len(block), device=block.device), block)
        return {base.SHARED: block / block.sum(1, keepdim=True)}

    def _remember_updates(self, round: base.Round) -> None:
        updates = {name: uploaded - round.received[name] for name, uploaded in round.parameters.items()}
        self._updates = where(round.weights > 0, updates, self._updates or updates)

    def _products(self) -> np.ndarray:
        """[C, C] inner products of the clients' last updates."""
        with full_precision():
            products = [
                flat @ flat.T for flat in (update.reshape(len(update), -1) for update in self._updates.values())
            ]
        return torch.stack(products).sum(0).cpu().double().numpy()

    def _split_clusters(self, products: np.ndarray, counts: np.ndarray) -> None:
        for number in range(self.cluster.max() + 1):
            members = np.flatnonzero((self.cluster == number) & self._trained)
            own = products[np.ix_(members, members)]
            if len(members) > 2 and self._disagree(own, counts[members]) and self.ready(members):
                first, second = minimum_cut(self.similarities(own, members))
                smaller = min(first, second, key=lambda part: (counts[members[part]].sum(), -part[0]))
                self.cluster[members[smaller]] = self.cluster.max() + 1
                self.was_split(members)

    def _disagree(self, products: np.ndarray, sizes: np.ndarray) -> bool:
        shares = sizes / sizes.sum()
        mean = float(np.sqrt(max(shares @ products @ shares, 0.0)))
        return mean < self.settings.eps1 * self._unit and _longest(products) > self.settings.eps2 * self._unit

    def ready(self, members: np.ndarray) -> bool:
        """Whether enough is known of a cluster's members to split it."""
        return True

    def similarities(self, products: np.ndarray, members: np.ndarray) -> np.ndarray:
        """[m, m], not negative, from the inner products [m, m] of the members' updates."""
        lengths = np.sqrt(products.diagonal())
        return products / np.maximum(np.outer(lengths, lengths), 1e-12) + 1

    def was_split(self, members: np.ndarray) -> None:
        """After the split of what was the cluster of these members."""


def _longest(products: np.ndarray) -> float:
    return float(np.sqrt(products.diagonal().max()))


def minimum_cut(similarities: np.ndarray) -> tuple[list[int], list[int]]:
    """The two parts of the minimum cut of a complete graph with weights [m, m]."""
    graph = nx.Graph()
    graph.add_weighted_edges_from(
        (i, j, max(similarities[i, j], 0.0)) for i, j in combinations(range(len(similarities)), 2)
    )
    _, (first, second) = nx.stoer_wagner(graph)
    return sorted(first), sorted(second)
