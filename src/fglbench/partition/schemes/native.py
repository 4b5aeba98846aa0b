"""The clients that the dataset itself defines.

Their number is fixed by the dataset, and they are the same for every seed.
"""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment, parts_of
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    """This scheme has no settings."""


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Assign every node to its client in the dataset.

    Args:
        graph: a canonical graph.
        clients: number of clients.
        rng: not used.
        settings: none.

    Returns:
        The assignment.

    Raises:
        PartitionError: the dataset defines no clients, or another number of clients.
    """
    if graph.clients is None:
        raise PartitionError("the dataset does not come split into clients; use another scheme.")
    count = int(graph.clients.max()) + 1
    if clients != count:
        raise PartitionError(f"the dataset comes split into {count} clients; request {count}.")
    return Assignment(parts_of(graph.clients, clients))
