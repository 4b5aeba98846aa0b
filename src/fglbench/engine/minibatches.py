"""Which training targets the steps of a local epoch have.

Every client shuffles from a stream of its own, so that chunks and other clients change nothing.
"""

from collections.abc import Iterator

import numpy as np

from fglbench.seeding import numpy_stream


class Minibatches:
    """The targets of local epochs.

    With batches, every client shuffles its training targets in every epoch, and the b-th batches of all clients make
    one step; clients with fewer batches sit out the last ones. A client's last batch may be smaller.

    Args:
        batch_size: training targets of a client in a step; None for all of them.
        seed: of the cell.
        clients: of the federation.
    """

    def __init__(self, batch_size: int | None, seed: int, clients: int):
        self._batch_size = batch_size
        self._orders = [numpy_stream(seed, "batches", client) for client in range(clients)] if batch_size else []
        self._targets: list[np.ndarray] = []

    def use(self, targets: np.ndarray, ptr: np.ndarray) -> None:
        """Goes on with ascending targets [T] of graphs with boundaries [C + 1]."""
        self._targets = np.split(targets, np.searchsorted(targets, ptr[1:-1]))

    def of(self, clients: np.ndarray) -> np.ndarray:
        """All targets of some clients, ascending."""
        return np.concatenate([self._targets[client] for client in clients])

    def epoch(self, clients: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The steps of one local epoch: the clients of each, and its targets, ascending.

        Args:
            clients: ascending ids, each with targets.
        """
        if self._batch_size is None:
            yield clients, self.of(clients)
            return
        batches = [self._shuffled(client, self._batch_size) for client in clients]
        for number in range(max(map(len, batches))):
            present = [number < len(own) for own in batches]
            yield clients[present], np.concatenate([own[number] for own in batches if number < len(own)])

    def _shuffled(self, client: int, size: int) -> list[np.ndarray]:
        """A client's batches, each in ascending order."""
        order = self._orders[client].permutation(self._targets[client])
        return [np.sort(order[first : first + size]) for first in range(0, len(order), size)]
