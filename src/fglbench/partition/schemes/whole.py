"""All nodes to one client: the federation of a centralised method."""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    """It has none."""


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Gives every node to the one client.

    Raises:
        PartitionError: more than one client is asked.
    """
    if clients != 1:
        raise PartitionError("the whole graph goes to 1 client; take another scheme for more.")
    return Assignment([np.arange(graph.num_nodes, dtype=np.int64)])
