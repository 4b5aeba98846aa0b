"""What every kind of batch has."""

from typing import Protocol

import numpy as np
from torch import Tensor

from fglbench.federation.operators import SparseOperator


class Batch(Protocol):
    """What one forward pass computes on: some targets of some clients, and what these read.

    There are two kinds. A *propagation* reads neighbours by sparse operators (`federation.View`); *samples* give every
    target a few rows of its own (`samples.SampleBatch`). How a model reads a batch depends on the kind; losses and
    scores need no more than what is here.
    """

    @property
    def clients(self) -> np.ndarray:
        """[S] int64 ascending client ids of the federation."""

    @property
    def targets(self) -> Tensor:
        """[T] int64 positions in the federation, grouped by client."""

    @property
    def target_ptr(self) -> list[int]:
        """[S + 1] boundaries of the targets by client."""

    @property
    def labels(self) -> Tensor:
        """[T] int64."""

    @property
    def client_mean(self) -> SparseOperator:
        """[S, T] operator that averages targets per client."""
