"""GCFL (Xie et al., NeurIPS 2021): clusters of clients that split when their updates disagree; FedAvg inside each.

A cluster splits under two conditions: its mean update is small, ||sum_j (n_j / n) dtheta_j|| < eps1 (eq. 4), and the
update of some client is large, max_j ||dtheta_j|| > eps2 (eq. 5). Here dtheta_j is the change of a client's parameters
in a round (eq. 6). The cluster splits along the minimum cut (Stoer and Wagner) of the complete graph of its clients,
whose edge weights are the cosine similarities of the clients' updates plus 1. Each cluster adds its mean update to its
parameters (eq. 7).

Equations are numbered as in the submitted version. Its eq. 4 and 7 have plain sums over the clients; here clients are
weighted by training nodes, as in FedAvg.

The thresholds are lengths in parameter space, which depend on the paper's model, learning rate and local epochs. If
they are never met, GCFL equals FedAvg. With `relative` they are fractions of the longest update of the first round, so
that they carry over to other models.

As in the public code there is no split before round `first_round`, clusters of two clients do not split, and a client
that does not train in a round counts with its last update. In the public code the mean update is unweighted. A client
that has never trained stays with the part that has more training nodes.

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
        self._unit = 0.0  # length that the thresholds are multiplied by; 0 until the first aggregation
        self._updates: Parameters = {}  # dtheta_j of the last round in which each client trained, [C, ...]

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
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
        # Clients of a cluster in which no client trained keep their parameters.
        idle = block.sum(1) == 0
        block = torch.where(idle[:, None], torch.eye(len(block), device=block.device), block)
        return {base.SHARED: block / block.sum(1, keepdim=True)}

    def _remember_updates(self, round: base.Round) -> None:
        updates = {name: uploaded - round.received[name] for name, uploaded in round.parameters.items()}
        self._updates = where(round.weights > 0, updates, self._updates or updates)

    def _products(self) -> np.ndarray:
        """Return the inner products of the clients' last updates, [C, C] float64."""
        with full_precision():
            products = [
                flat @ flat.T for flat in (update.reshape(len(update), -1) for update in self._updates.values())
            ]
        return torch.stack(products).sum(0).cpu().double().numpy()

    def _split_clusters(self, products: np.ndarray, counts: np.ndarray) -> None:
        for number in range(self.cluster.max() + 1):
            members = np.flatnonzero((self.cluster == number) & self._trained)
            inner = products[np.ix_(members, members)]
            if len(members) > 2 and self._disagree(inner, counts[members]) and self.ready(members):
                first, second = minimum_cut(self.similarities(inner, members))
                smaller = min(first, second, key=lambda part: (counts[members[part]].sum(), -part[0]))
                self.cluster[members[smaller]] = self.cluster.max() + 1
                self.was_split(members)

    def _disagree(self, products: np.ndarray, sizes: np.ndarray) -> bool:
        shares = sizes / sizes.sum()
        mean = float(np.sqrt(max(shares @ products @ shares, 0.0)))
        return mean < self.settings.eps1 * self._unit and _longest(products) > self.settings.eps2 * self._unit

    def ready(self, members: np.ndarray) -> bool:
        """Return whether the server has received enough from the members of a cluster to split it.

        Args:
            members: [m] int64, ids of the cluster's clients that have trained.

        Returns:
            True if the cluster may split.
        """
        return True

    def similarities(self, products: np.ndarray, members: np.ndarray) -> np.ndarray:
        """Return the edge weights of the graph that the minimum cut splits.

        Args:
            products: [m, m] float64, inner products of the members' updates.
            members: [m] int64, ids of the clients.

        Returns:
            [m, m] float64, cosine similarities plus 1.
        """
        lengths = np.sqrt(products.diagonal())
        return products / np.maximum(np.outer(lengths, lengths), 1e-12) + 1

    def was_split(self, members: np.ndarray) -> None:
        """Update the state of a method after the split of a cluster.

        Args:
            members: [m] int64, ids of the clients that were in the cluster and have trained.
        """


def _longest(products: np.ndarray) -> float:
    return float(np.sqrt(products.diagonal().max()))


def minimum_cut(similarities: np.ndarray) -> tuple[list[int], list[int]]:
    """Return the two parts of the minimum cut of a complete graph.

    Args:
        similarities: [m, m] symmetric edge weights; negative ones count as 0.

    Returns:
        The ascending positions of the nodes in the first and in the second part.
    """
    graph = nx.Graph()
    graph.add_weighted_edges_from(
        (i, j, max(similarities[i, j], 0.0)) for i, j in combinations(range(len(similarities)), 2)
    )
    _, (first, second) = nx.stoer_wagner(graph)
    return sorted(first), sorted(second)
