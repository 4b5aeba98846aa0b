"""How long and how clients train."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Schedule:
    """How long and how clients train; the defaults of the fields stand in `config.schema.Training`.

    Attributes:
        rounds: communication rounds.
        local_epochs: passes over its training nodes that a client makes in a round.
        lr, weight_decay, optimiser, optimiser_state: of the local optimiser; the state is kept over rounds or reset.
        participation: fraction of clients drawn for a round, at least one.
        evaluate: score the parameters "aggregated" (after the server's step) or "trained" (before it).
        selection_mean: client mean of the validation accuracy that selects the round, "pooled", "macro" or "nodes".
        batch_size: training nodes of a client in a local step; None for all of them.
    """

    rounds: int
    local_epochs: int
    lr: float
    weight_decay: float
    optimiser: str
    optimiser_state: str
    participation: float
    evaluate: str
    selection_mean: str
    batch_size: int | None = None

    def steps(self, nodes: np.ndarray) -> np.ndarray:
        """[...] int64: the local steps in a round of clients with so many training nodes, K of the papers."""
        batches = 1 if self.batch_size is None else -(-nodes // self.batch_size)
        return np.full(nodes.shape, self.local_epochs) * batches
