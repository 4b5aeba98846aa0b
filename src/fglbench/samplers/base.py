"""The contract of a sampler: which rows a target reads instead of all its neighbours.

A file of this folder declares `VERSION`, `class Settings(SamplerSettings)` and `class Sampler(base.Sampler)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp


class Sampler(ABC):
    """Draws the same number of rows for every target.

    Args:
        settings: the resolved settings; `redraw` says how often training asks for a draw.
        adjacency: [N, N] CSR, the client graphs as one block-diagonal graph; its values are not used.

    Attributes:
        size: k, the rows that a target reads, itself included.
    """

    size: int

    def __init__(self, settings: Any, adjacency: sp.csr_matrix):
        self.settings = settings
        self.adjacency = adjacency

    @abstractmethod
    def draw(self, targets: np.ndarray, ptr: Sequence[int], streams: Sequence[np.random.Generator]) -> np.ndarray:
        """The rows that each target reads.

        What a client's targets read comes from that client's stream and graph alone, so that chunks and other clients
        change nothing; see `variates`.

        Args:
            targets: [T] int64 rows of the adjacency, grouped by client.
            ptr: [S + 1] boundaries of the targets by client.
            streams: one per client, in the order of `ptr`.

        Returns:
            [T, size] int64 rows of the adjacency, all of the target's client; the target itself stands first.
        """


def variates(streams: Sequence[np.random.Generator], ptr: Sequence[int], width: int) -> np.ndarray:
    """[ptr[-1], width] float64, uniform in [0, 1); rows ptr[s]:ptr[s + 1] come from stream s."""
    drawn = np.empty((ptr[-1], width))
    for stream, start, stop in zip(streams, ptr, ptr[1:], strict=False):
        stream.random(out=drawn[start:stop])
    return drawn


class Neighbours:
    """Neighbours by number; a node without neighbours is its own.

    Args:
        adjacency: [N, N] CSR; its values are not used.
    """

    def __init__(self, adjacency: sp.csr_matrix):
        alone = np.diff(adjacency.indptr) == 0
        looped = adjacency + sp.diags(alone.astype(np.float32)) if alone.any() else adjacency
        self._indices, self._indptr = looped.indices, looped.indptr
        self._degree = np.diff(looped.indptr)

    def pick(self, nodes: np.ndarray, variates: np.ndarray) -> np.ndarray:
        """A neighbour for each variate in [0, 1): [...] int and [...] float64 that broadcast -> their common shape."""
        number = (variates * self._degree[nodes]).astype(self._indptr.dtype)
        number += self._indptr[nodes]
        return self._indices[number]
