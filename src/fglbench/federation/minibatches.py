"""Which training nodes the steps of a local epoch have as targets.

Every client shuffles from a stream of its own, so that chunks and other clients change nothing.
"""

from collections.abc import Iterator

import numpy as np

from fglbench.federation.federation import TRAIN, Federation
from fglbench.seeding import numpy_stream


class Minibatches:
    """The targets of local epochs.

    With batches, every client shuffles its training nodes in every epoch, and the b-th batches of all clients make one
    step; clients with fewer batches sit out the last ones. A client's last batch may be smaller.

    Args:
        federation: whose training nodes.
        batch_size: training nodes of a client in a step; None for all of them.
        seed: of the cell.
    """

    def __init__(self, federation: Federation, batch_size: int | None, seed: int):
        self._federation = federation
        self._batch_size = batch_size
        clients = range(federation.num_clients)
        self._orders = [numpy_stream(seed, "batches", client) for client in clients] if batch_size else []

    def use(self, federation: Federation) -> None:
        """Goes on with other graphs of the same clients and training nodes."""
        self._federation = federation

    def epoch(self, clients: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The steps of one local epoch: the clients of each, and its targets as ascending positions.

        Args:
            clients: ascending ids, each with training nodes.
        """
        if self._batch_size is None:
            yield clients, np.concatenate([training_nodes(self._federation, client) for client in clients])
            return
        batches = [self._shuffled(client, self._batch_size) for client in clients]
        for number in range(max(map(len, batches))):
            present = [number < len(own) for own in batches]
            yield clients[present], np.concatenate([own[number] for own in batches if number < len(own)])

    def _shuffled(self, client: int, size: int) -> list[np.ndarray]:
        """A client's batches, each in ascending order."""
        order = self._orders[client].permutation(training_nodes(self._federation, client))
        return [np.sort(order[first : first + size]) for first in range(0, len(order), size)]


def training_nodes(federation: Federation, client: int) -> np.ndarray:
    """Ascending positions of a client's training nodes in the federation."""
    start, stop = federation.ptr[client : client + 2]
    return start + np.flatnonzero(federation.role[start:stop] == TRAIN)
