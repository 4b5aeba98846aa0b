"""What local steps compute on: all training targets of the clients at once, or their batches together.

Every client draws from streams of its own, so that chunks and other clients change nothing.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import scipy.sparse as sp
import torch

from fglbench.backbones.base import Backbone
from fglbench.engine.minibatches import Minibatches
from fglbench.engine.samples import Samples
from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.seeding import numpy_stream
from fglbench.tasks.base import Objective


class Batches(Protocol):
    """The batches of local epochs, of either kind."""

    def use(self, federation: Federation, objective: Objective) -> None:
        """Goes on with other graphs of the same clients, or other targets."""

    def build(self, clients: np.ndarray) -> None:
        """Makes the batch of some clients ahead of the first round, where it is one that stays."""

    def epoch(self, clients: np.ndarray) -> Iterator[Batch]:
        """The batches of one local epoch, a step each.

        Args:
            clients: ascending ids, each with training targets.
        """


def batches_of(
    backbone: Backbone, batch_size: int | None, seed: int, clients: int, device: torch.device | str
) -> Batches:
    """Those of the kind that a backbone computes on.

    Args:
        backbone: what is trained.
        batch_size: training targets of a client in a step; None for all of them.
        seed: of the cell.
        clients: of the federation.
        device: where batches live.
    """
    if backbone.sampler is not None:
        return Samples(backbone.sampler, batch_size, seed, clients, device)
    return Propagations(backbone, batch_size, seed, clients, device)


class Propagations:
    """Batches of propagation; see `Minibatches` for their targets, and `batches_of` for the arguments."""

    def __init__(self, backbone: Backbone, batch_size: int | None, seed: int, clients: int, device: torch.device | str):
        self._backbone = backbone
        self._device = device
        self._minibatches = Minibatches(batch_size, seed, clients)
        self._stays = not batch_size and not backbone.neighbours
        self._last: Batch | None = None
        self._sampling = [
            numpy_stream(seed, "sampling", client) for client in range(clients if backbone.neighbours else 0)
        ]

    def use(self, federation: Federation, objective: Objective) -> None:
        self._minibatches.use(objective.targets, federation.ptr)
        self._federation, self._last = federation, None

    def build(self, clients: np.ndarray) -> None:
        if self._stays:
            list(self.epoch(clients))

    def epoch(self, clients: np.ndarray) -> Iterator[Batch]:
        """As `Batches`; a batch that stays serves all epochs, and all rounds of the same clients."""
        if self._last is not None and np.array_equal(self._last.clients, clients):
            yield self._last
            return
        self._last = None  # its memory serves the next one
        draw = self._draw if self._backbone.neighbours else None
        for present, targets in self._minibatches.epoch(clients):
            batch = self._backbone.batch(self._federation, present, targets, draw_neighbours=draw, device=self._device)
            if self._stays:
                self._last = batch
            yield batch

    def _draw(self, operator: sp.csr_matrix, clients: np.ndarray, ptr: list[int]) -> sp.csr_matrix:
        edges = np.diff(operator.indptr[ptr])
        keys = [self._sampling[client].random(number) for client, number in zip(clients, edges, strict=True)]
        return sampled_mean(operator, self._backbone.neighbours or operator.nnz, np.concatenate(keys))


def sampled_mean(operator: sp.csr_matrix, neighbours: int, keys: np.ndarray) -> sp.csr_matrix:
    """The mean over those `neighbours` entries of every row that have the smallest keys, or all where there are fewer.

    Args:
        operator: [rows, columns] CSR; its values are not used.
        neighbours: entries kept in a row, at least 1.
        keys: [entries] random numbers.
    """
    sizes = np.diff(operator.indptr)
    row = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((keys, row))
    rank = np.arange(len(order)) - np.repeat(operator.indptr[:-1], sizes)
    kept = np.sort(order[rank < neighbours])
    taken = np.minimum(sizes, neighbours)
    values = np.repeat(1.0 / np.maximum(taken, 1), taken).astype(np.float32)
    indptr = np.concatenate([[0], np.cumsum(taken)])
    return sp.csr_matrix((values, operator.indices[kept], indptr), shape=operator.shape)
