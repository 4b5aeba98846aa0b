"""Interface of the batches that a forward pass computes on."""

from typing import Protocol

import numpy as np
from torch import Tensor

from fglbench.federation.operators import SparseOperator


class Batch(Protocol):
    """Targets of some clients and the rows that their outputs depend on, ready to multiply stacked parameters [S, ...].

    There are three kinds. In a `PropagationBatch`, rows pass messages along the edges. In a `SampleBatch`, every target
    reads rows of its own. A `ModuleBatch` holds whole graphs for a PyTorch module, which runs on one client at a time.
    Each backbone computes on one of these kinds.

    Attributes:
        clients: [S] int64 client ids of the federation, ascending.
        targets: [T] int64 positions of the output rows in the federation, grouped by client.
        target_ptr: [S + 1] boundaries of the targets by client.
        labels: [T] int64 labels of the targets.
        client_mean: [S, T] operator that averages the rows of each client's targets.
    """

    @property
    def clients(self) -> np.ndarray: ...

    @property
    def targets(self) -> Tensor: ...

    @property
    def target_ptr(self) -> list[int]: ...

    @property
    def labels(self) -> Tensor: ...

    @property
    def client_mean(self) -> SparseOperator: ...

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        """Select the rows of the targets from a hidden representation.

        Args:
            x: [rows of the level, width] float32.
            level: level of the batch that the rows of `x` belong to.

        Returns:
            [T, width] float32.
        """
