"""The contract of a sampler, which draws the rows that a target reads instead of all its neighbours.

A file of this folder declares `VERSION`, `class Settings(SamplerSettings)` and `class Sampler(base.Sampler)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp


class Sampler(ABC):
    """Base class of the samplers; a sampler draws the same number of rows for every target.

    Args:
        settings: the resolved settings; `redraw` says how often training draws.
        adjacency: [N, N] CSR, the client graphs as one block-diagonal graph; its values are not used.

    Attributes:
        size: k, the number of rows that a target reads, including itself.
    """

    size: int

    def __init__(self, settings: Any, adjacency: sp.csr_matrix):
        self.settings = settings
        self.adjacency = adjacency

    @abstractmethod
    def draw(self, targets: np.ndarray, ptr: Sequence[int], streams: Sequence[np.random.Generator]) -> np.ndarray:
        """Draw the rows that each target reads.

        The result for a client must depend only on its own stream and graph, so that neither chunks nor other clients
        change it; `variates` draws numbers in this way.

        Args:
            targets: [T] int64 rows of the adjacency, grouped by client.
            ptr: [S + 1] boundaries of the targets by client.
            streams: one per client, in the order of `ptr`.

        Returns:
            [T, size] int64 rows of the adjacency, all of the target's client; the target itself is the first one.
        """


def variates(streams: Sequence[np.random.Generator], ptr: Sequence[int], width: int) -> np.ndarray:
    """Draw uniform numbers for all clients, each client's from its own stream.

    Args:
        streams: one per client.
        ptr: [S + 1] row boundaries; rows ptr[s]:ptr[s + 1] are drawn from stream s.
        width: numbers per row.

    Returns:
        [ptr[-1], width] float64, uniform in [0, 1).
    """
    drawn = np.empty((ptr[-1], width))
    for stream, start, stop in zip(streams, ptr, ptr[1:], strict=False):
        stream.random(out=drawn[start:stop])
    return drawn


class Neighbours:
    """The neighbours of every node, for lookup by a uniform number; a node without neighbours is its own neighbour.

    Args:
        adjacency: [N, N] CSR; its values are not used.
    """

    def __init__(self, adjacency: sp.csr_matrix):
        isolated = np.diff(adjacency.indptr) == 0
        looped = adjacency + sp.diags(isolated.astype(np.float32)) if isolated.any() else adjacency
        self._indices, self._indptr = looped.indices, looped.indptr
        self._degree = np.diff(looped.indptr)

    def pick(self, nodes: np.ndarray, variates: np.ndarray) -> np.ndarray:
        """Pick one neighbour for each uniform number.

        Args:
            nodes: [...] integer rows of the adjacency.
            variates: [...] float64 in [0, 1); its shape broadcasts with that of `nodes`.

        Returns:
            [...] integer rows of the adjacency, in the common shape.
        """
        number = (variates * self._degree[nodes]).astype(self._indptr.dtype)
        number += self._indptr[nodes]
        return self._indices[number]
