"""GCFL+ (Xie et al., NeurIPS 2021): GCFL whose clusters split by the clients' sequences of gradient norms.

Every client sends the norm of its last local gradient. The graph of the minimum cut has the edge weights max d - d_ij.
Here d_ij is the dynamic time warping distance (eq. 8) between the last `window` norms of clients i and j. With
`standardise` each sequence is first divided by its standard deviation. After a split the sequences of the cluster's
clients start again.

Deviation from the text: the paper uses the norms of updates, which it calls gradients (eq. 6); here they are gradient
norms, as in the public code. Deviation from the public code: there a split clears the sequences of all clients, and a
split waits until the sequences of all clients are long enough.

Defaults:
    eps1 0.01: the public code's.
    eps2 0.1: the public code's.
    relative false: the paper's.
    first_round 20: the public code's.
    window 10: the public code's.
    standardise false: the public code's.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.parameters import Parameters, rows_of
from fglbench.methods import base, gcfl
from fglbench.settings import ComponentSettings, Field

VERSION = 1


class Settings(ComponentSettings):
    eps1: float = Field(0.01, ge=0, description="A cluster may split when its mean update is shorter than this.")
    eps2: float = Field(0.1, ge=0, description="And the longest update of a client is longer than this.")
    relative: bool = Field(False, description="Both are parts of the longest update of the first round, not lengths.")
    first_round: int = Field(20, ge=0, description="Round of the first possible split, from 0.")
    window: int = Field(10, ge=2, le=100, description="Gradient norms compared, of the last rounds of each client.")
    standardise: bool = Field(False, description="Divide each sequence by its standard deviation.")


class Method(gcfl.Method):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._norms = torch.zeros(self.federation.num_clients)  # moved to the device of the gradients in the first step
        self._sequences: list[list[float]] = [[] for _ in self._norms]

    def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
        squares = [gradients[name].square().reshape(len(gradients[name]), -1).sum(1) for name in self.shared(gradients)]
        norms = torch.stack(squares).sum(0).sqrt()
        self._norms = self._norms.to(norms.device)
        self._norms[rows_of(step.clients, norms.device)] = norms

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        return {"gradient_norm": self._norms[rows_of(round.clients, self._norms.device)]}

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        for client, norm in zip(round.clients, round.uploads["gradient_norm"].tolist(), strict=True):
            self._sequences[client].append(norm)
        return super().aggregate(round)

    def ready(self, members: np.ndarray) -> bool:
        return all(len(self._sequences[client]) >= self.settings.window for client in members)

    def similarities(self, products: np.ndarray, members: np.ndarray) -> np.ndarray:
        sequences = np.array([self._sequences[client][-self.settings.window :] for client in members])
        if self.settings.standardise:
            deviations = sequences.std(axis=1, keepdims=True)
            sequences = sequences / np.where(deviations > 0, deviations, 1)
        distances = warping_distances(sequences)
        return distances.max() - distances

    def was_split(self, members: np.ndarray) -> None:
        for client in members:
            self._sequences[client].clear()


def warping_distances(sequences: np.ndarray) -> np.ndarray:
    """Return the dynamic time warping distances between all pairs of sequences.

    Args:
        sequences: [m, T], one sequence of T values for each client.

    Returns:
        [m, m] float64, square root of the least sum of squared differences over all alignments of two sequences.
    """
    clients, steps = sequences.shape
    last = np.full((clients, clients, steps + 1), np.inf)  # least costs, by step of the second sequence
    last[:, :, 0] = 0.0
    for i in range(steps):
        now = np.full_like(last, np.inf)
        for j in range(steps):
            before = np.minimum(np.minimum(last[:, :, j], last[:, :, j + 1]), now[:, :, j])
            now[:, :, j + 1] = (sequences[:, None, i] - sequences[None, :, j]) ** 2 + before
        last = now
    return np.sqrt(last[:, :, -1])
