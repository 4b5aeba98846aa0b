"""What local steps compute on: all training targets of the clients at once, or their batches together.

Every client draws from streams of its own, so that chunks and other clients change nothing.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
import torch

from fglbench.backbones.base import Backbone
from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.seeding import numpy_stream
from fglbench.tasks.base import Objective


class Batches:
    """The batches of local epochs.

    With batches, every client shuffles its training targets in every epoch, and the b-th batches of all clients make
    one step; clients with fewer batches sit out the last ones. A client's last batch may be smaller.

    Args:
        backbone: what is trained, which says what its batches hold.
        batch_size: training targets of a client in a step; None for all of them.
        seed: of the cell.
        clients: of the federation.
        device: where batches live.
    """

    def __init__(self, backbone: Backbone, batch_size: int | None, seed: int, clients: int, device: torch.device | str):
        self._backbone = backbone
        self._batch_size = batch_size
        self._device = device
        self._last: Batch | None = None
        each = range(clients)
        self._orders = [numpy_stream(seed, "batches", client) for client in each] if batch_size else []
        self._sampling = [numpy_stream(seed, "sampling", client) for client in each] if backbone.neighbours else []

    def use(self, federation: Federation, objective: Objective) -> None:
        """Goes on with other graphs of the same clients, or other targets."""
        self._federation, self._objective, self._last = federation, objective, None

    def build(self, clients: np.ndarray) -> None:
        """Makes the batch of some clients ahead of the first round, where it is one that stays."""
        if not self._batch_size and not self._backbone.neighbours:
            self._whole(clients)

    def epoch(self, clients: np.ndarray) -> Iterator[Batch]:
        """The batches of one local epoch, a step each.

        Args:
            clients: ascending ids, each with training targets.
        """
        if self._batch_size is None:
            yield self._whole(clients)
            return
        batches = [self._shuffled(client) for client in clients]
        for number in range(max(map(len, batches))):
            present = [number < len(own) for own in batches]
            targets = np.concatenate([own[number] for own in batches if number < len(own)])
            yield self._batch(clients[present], targets)

    def _whole(self, clients: np.ndarray) -> Batch:
        """All training targets. One that stays is kept: it serves all epochs, and all rounds of the same clients."""
        if self._last is None or self._backbone.neighbours or not np.array_equal(self._last.clients, clients):
            self._last = None  # its memory serves the next one
            self._last = self._batch(clients, np.concatenate([self._targets(client) for client in clients]))
        return self._last

    def _batch(self, clients: np.ndarray, targets: np.ndarray) -> Batch:
        draw = self._draw if self._backbone.neighbours else None
        return self._backbone.batch(self._federation, clients, targets, draw_neighbours=draw, device=self._device)

    def _targets(self, client: int) -> np.ndarray:
        targets, bounds = self._objective.targets, self._federation.ptr[client : client + 2]
        return targets[slice(*np.searchsorted(targets, bounds))]

    def _shuffled(self, client: int) -> list[np.ndarray]:
        """A client's batches, each with its rows in ascending order."""
        order = self._orders[client].permutation(self._targets(client))
        size = self._batch_size or len(order)
        return [np.sort(order[first : first + size]) for first in range(0, len(order), size)]

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
