"""All nodes at one client: the federation of a centralised method."""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    """This scheme has no settings."""


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Assign every node to the only client.

    Args:
        graph: a canonical graph.
        clients: 1.
        rng: not used.
        settings: none.

    Returns:
        The assignment.

    Raises:
        PartitionError: more than one client is requested.
    """
    if clients != 1:
        raise PartitionError("the scheme 'whole' has exactly 1 client; use another scheme for more.")
    return Assignment([np.arange(graph.num_nodes, dtype=np.int64)])
