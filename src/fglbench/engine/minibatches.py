"""Training targets of the steps of a local epoch.

Every client shuffles with a random stream of its own, so neither chunks nor other clients change its minibatches.
"""

from collections.abc import Iterator

import numpy as np

from fglbench.seeding import numpy_stream


class Minibatches:
    """Training targets of the steps of local epochs.

    With a batch size, every client shuffles its training targets in every epoch. The b-th batches of all clients form
    one step. Clients with fewer batches skip the last steps. A client's last batch may be smaller.

    Args:
        batch_size: training targets of a client in a step; None for all of them.
        seed: seed of the cell.
        clients: number of clients of the federation.
    """

    def __init__(self, batch_size: int | None, seed: int, clients: int):
        self._batch_size = batch_size
        self._orders = [numpy_stream(seed, "batches", client) for client in range(clients)] if batch_size else []
        self._targets: list[np.ndarray] = []

    def use(self, targets: np.ndarray, ptr: np.ndarray) -> None:
        """Switch to other targets.

        Args:
            targets: [T] int64 ascending positions in the federation.
            ptr: [C + 1] row boundaries of the federation by client.
        """
        self._targets = np.split(targets, np.searchsorted(targets, ptr[1:-1]))

    def of(self, clients: np.ndarray) -> np.ndarray:
        """Return all targets of some clients.

        Args:
            clients: [S] int64 ascending ids.

        Returns:
            [T] int64 positions in the federation, ascending.
        """
        return np.concatenate([self._targets[client] for client in clients])

    def epoch(self, clients: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Iterate over the steps of one local epoch.

        Args:
            clients: [S] int64 ascending ids, each with targets.

        Yields:
            The ids of the clients in a step, and the positions of their targets; both int64 and ascending.
        """
        if self._batch_size is None:
            yield clients, self.of(clients)
            return
        batches = [self._shuffled(client, self._batch_size) for client in clients]
        for number in range(max(map(len, batches))):
            present = [number < len(parts) for parts in batches]
            yield clients[present], np.concatenate([parts[number] for parts in batches if number < len(parts)])

    def _shuffled(self, client: int, size: int) -> list[np.ndarray]:
        """Split a client's shuffled targets into batches, each in ascending order."""
        order = self._orders[client].permutation(self._targets[client])
        return [np.sort(order[first : first + size]) for first in range(0, len(order), size)]
