"""Nodes assigned at random, with client sizes that differ by at most one."""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.partition.base import Assignment
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    """This scheme has no settings."""


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Cut a random order of the nodes into parts whose sizes differ by at most one.

    Args:
        graph: a canonical graph.
        clients: number of clients.
        rng: draws the order.
        settings: none.

    Returns:
        The assignment.
    """
    order = rng.permutation(graph.num_nodes).astype(np.int64)
    return Assignment([np.sort(part) for part in np.array_split(order, clients)])
