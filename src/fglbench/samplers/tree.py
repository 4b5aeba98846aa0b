"""Ego-graphs of a fixed shape, drawn as GraphSAGE does (Hamilton et al., NeurIPS 2017): neighbours of neighbours.

Every node of a level draws `fanout` of its neighbours, uniformly and with replacement; a node without neighbours draws
itself. The levels follow each other in breadth-first order, the target first. The children of the j-th node of a level
have the positions j * fanout to (j + 1) * fanout - 1 of the next level. A position therefore means the same in every
tree, and a model reads levels and children by shape:

    root, first, second = gathered.split(level_sizes(fanouts), dim=1)    # [T, k, width] -> [T, nodes of level, width]
    mean = second.unflatten(1, (first.shape[1], -1)).mean(2)             # of the children: [T, nodes of first, width]

Defaults:
    fanouts [6,6]: FedEgo's public code.
    redraw epoch: differs; FedEgo's paper draws once, GraphSAGE's paper in every batch.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from fglbench.samplers import base
from fglbench.settings import Field, SamplerSettings

VERSION = 1
_TARGETS_AT_ONCE = 2**14  # so that their numbers stay in the cache of the CPU


class Settings(SamplerSettings):
    fanouts: list[Annotated[int, Field(ge=1)]] = Field(
        [6, 6], min_length=1, description="Neighbours that each node of a level draws, from the target outwards."
    )


class Sampler(base.Sampler):
    def __init__(self, settings: Any, adjacency: sp.csr_matrix):
        super().__init__(settings, adjacency)
        self.size = sum(level_sizes(settings.fanouts))
        self._neighbours = base.Neighbours(adjacency)

    def draw(self, targets: np.ndarray, ptr: Sequence[int], streams: Sequence[np.random.Generator]) -> np.ndarray:
        variates = base.variates(streams, ptr, self.size - 1)
        trees = np.empty((len(targets), self.size), dtype=np.int64)
        trees[:, 0] = targets
        for first in range(0, len(targets), _TARGETS_AT_ONCE):
            part = slice(first, first + _TARGETS_AT_ONCE)
            self._grow(trees[part], variates[part])
        return trees

    def _grow(self, trees: np.ndarray, variates: np.ndarray) -> None:
        """Fill all levels below the targets."""
        level, column = trees[:, :1], 1
        for fanout in self.settings.fanouts:
            width = level.shape[1] * fanout
            draws = variates[:, column - 1 : column - 1 + width].reshape(*level.shape, fanout)
            level = self._neighbours.pick(level[:, :, None], draws).reshape(-1, width)
            trees[:, column : column + width] = level
            column += width


def level_sizes(fanouts: Sequence[int]) -> list[int]:
    """Compute the number of nodes of each level of a tree.

    Args:
        fanouts: neighbours that each node of a level draws, from the target outwards.

    Returns:
        One number per level, the target's first: [1, 6, 36] for fanouts [6, 6].
    """
    return [math.prod(fanouts[:level]) for level in range(len(fanouts) + 1)]
