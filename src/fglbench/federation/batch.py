"""What one forward pass computes on, whatever the model reads."""

from typing import Protocol

import numpy as np
from torch import Tensor

from fglbench.federation.operators import SparseOperator


class Batch(Protocol):
    """Some clients' targets, and what their outputs depend on, ready to multiply stacked parameters [S, ...].

    There are three kinds: `PropagationBatch`, whose rows pass messages along the edges; `SampleBatch`, in which every
    target reads rows of its own; and `ModuleBatch`, whole graphs for a module that knows nothing of clients. A backbone
    says which one it computes on.

    Attributes:
        clients: [S] int64 client ids of the federation, ascending.
        targets: [T] int64 positions of the output rows in the federation, client by client.
        target_ptr: [S + 1] their boundaries by client.
        labels: [T] int64 of the targets.
        client_mean: [S, T] operator that averages target rows per client.
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
        """Of a model's hidden rows those of the targets: [rows of its level, width] -> [T, width]."""
