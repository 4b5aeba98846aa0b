"""How long and how clients train."""

from dataclasses import dataclass

import numpy as np

from fglbench.settings import Field, Section


class LocalPrivacy(Section):
    """Local differential privacy of what clients upload (FedGT, section E.8)."""

    clip: float = Field(gt=0, description="delta: each entry of a client's update is clipped to [-delta, delta].")
    noise: float = Field(gt=0, description="lambda: scale of the Laplace noise added to each entry.")

    @property
    def budget(self) -> float:
        """epsilon of one upload."""
        return 2 * self.clip / self.noise


@dataclass(frozen=True)
class Schedule:
    """How long and how clients train; the defaults of the fields stand in `config.schema.Training`.

    Attributes:
        rounds: communication rounds.
        local_epochs: passes over its training nodes that a client makes in a round.
        lr, weight_decay, optimiser, optimiser_state: of the local optimiser; the state is kept over rounds or reset.
        participation: fraction of clients drawn for a round, at least one.
        evaluate: score the parameters "aggregated" (after the server's step) or "trained" (before it).
        selection_mean: client mean of the validation score that selects the round, as `protocol.mean` says.
        batch_size: training targets of a client in a local step; None for all of them.
        ldp: local differential privacy of uploaded parameters; None for none.
        tolerance: change of a client's loss below which it has converged and leaves; None: none leaves.
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
    ldp: LocalPrivacy | None = None
    tolerance: float | None = None

    def steps(self, nodes: np.ndarray) -> np.ndarray:
        """[...] int64: the local steps in a round of clients with so many training nodes, K of the papers."""
        batches = 1 if self.batch_size is None else -(-nodes // self.batch_size)
        return np.full(nodes.shape, self.local_epochs) * batches
