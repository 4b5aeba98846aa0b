"""Nodes dealt at random, as evenly as their number allows."""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.partition.base import Assignment
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    """It has none."""


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Cuts a random order of the nodes into parts whose sizes differ by at most one."""
    order = rng.permutation(graph.num_nodes).astype(np.int64)
    return Assignment([np.sort(part) for part in np.array_split(order, clients)])
