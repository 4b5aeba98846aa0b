"""Batches of local steps: all training targets of the clients at once, or their minibatches together.

Every client draws from random streams of its own, so neither chunks nor other clients change its batches.
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
    """Batches of local epochs, for backbones that propagate or that read samples."""

    def use(self, federation: Federation, objective: Objective) -> None:
        """Switch to other graphs of the same clients, or to other targets.

        Args:
            federation: the client graphs to train on.
            objective: its `targets` are the training targets.
        """

    def build(self, clients: np.ndarray) -> None:
        """Build the batch of some clients before the first round, if all rounds use the same batch.

        Args:
            clients: [S] int64 ascending ids, each with training targets.
        """

    def epoch(self, clients: np.ndarray) -> Iterator[Batch]:
        """Iterate over the batches of one local epoch.

        Args:
            clients: [S] int64 ascending ids, each with training targets.

        Yields:
            One batch for each local step.
        """


def batches_of(
    backbone: Backbone, batch_size: int | None, seed: int, clients: int, device: torch.device | str
) -> Batches:
    """Return the kind of batches that a backbone computes on.

    Args:
        backbone: the model to train.
        batch_size: training targets of a client in a step; None for all of them.
        seed: seed of the cell.
        clients: number of clients of the federation.
        device: device of the batches.

    Returns:
        `Samples` if the backbone has a sampler, otherwise `Propagations`.
    """
    if backbone.sampler is not None:
        return Samples(backbone.sampler, batch_size, seed, clients, device)
    return Propagations(backbone, batch_size, seed, clients, device)


class Propagations:
    """Batches of propagation.

    `Minibatches` chooses their targets. The arguments are those of `batches_of`.
    """

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
        """Switch to other graphs of the same clients, or to other targets.

        Args:
            federation: the client graphs to train on.
            objective: its `targets` are the training targets.
        """
        self._minibatches.use(objective.targets, federation.ptr)
        self._federation, self._last = federation, None

    def build(self, clients: np.ndarray) -> None:
        """Build the batch of some clients before the first round, if all rounds use the same batch.

        Args:
            clients: [S] int64 ascending ids, each with training targets.
        """
        if self._stays:
            list(self.epoch(clients))

    def epoch(self, clients: np.ndarray) -> Iterator[Batch]:
        """Iterate over the batches of one local epoch.

        Without minibatches and drawn neighbours, one batch serves all epochs, and all rounds with the same clients.

        Args:
            clients: [S] int64 ascending ids, each with training targets.

        Yields:
            One batch for each local step.
        """
        if self._last is not None and np.array_equal(self._last.clients, clients):
            yield self._last
            return
        self._last = None  # frees its memory for the next batch
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
    """Return an operator that averages the entries with the smallest keys in each row.

    Args:
        operator: [rows, columns] CSR; its values are not used.
        neighbours: largest number of entries kept in a row, at least 1; rows with fewer entries keep all of them.
        keys: [entries] float64 random numbers, in the order of the operator's entries.

    Returns:
        [rows, columns] float32 CSR; rows without entries stay empty.
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
