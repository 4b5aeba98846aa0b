"""The clients that a dataset comes with.

The number of clients is the dataset's own, and no seed changes them.
"""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment, parts_of
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    """It has none."""


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Gives every node to its own client.

    Raises:
        PartitionError: the dataset comes without clients, or with another number of them.
    """
    if graph.clients is None:
        raise PartitionError("the dataset does not come split into clients; take another scheme.")
    there = int(graph.clients.max()) + 1
    if clients != there:
        raise PartitionError(f"the dataset comes split into {there} clients; ask for {there}.")
    return Assignment(parts_of(graph.clients, clients))
