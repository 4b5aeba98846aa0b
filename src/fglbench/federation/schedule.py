"""Training schedule: rounds, participation and local optimiser."""

from dataclasses import dataclass

import numpy as np

from fglbench.settings import Field, Section


class LocalPrivacy(Section):
    """Local differential privacy of what clients upload (FedGT, section E.8)."""

    clip: float = Field(gt=0, description="delta: each entry of a client's update is clipped to [-delta, delta].")
    noise: float = Field(gt=0, description="lambda: scale of the Laplace noise added to each entry.")

    @property
    def budget(self) -> float:
        """Privacy budget epsilon of one upload."""
        return 2 * self.clip / self.noise


@dataclass(frozen=True)
class Schedule:
    """Length of the training, participation and local optimiser.

    The defaults of the fields are in `config.schema.Training`; those of `evaluate` and `selection_mean` are in
    `config.schema.Protocol`.

    Attributes:
        rounds: communication rounds.
        local_epochs: passes of a client over its training targets in a round.
        lr: learning rate of the local optimiser.
        weight_decay: L2 penalty that the local optimiser adds to the gradient.
        optimiser: "adam" or "sgd".
        optimiser_state: "kept" over rounds, or "reset" in every round.
        participation: fraction of clients drawn for a round; at least one client is drawn.
        evaluate: score the parameters "aggregated" (after the server's step) or "trained" (before it).
        selection_mean: client mean of the validation score that selects the round, see `protocol.mean`.
        batch_size: training targets of a client in a local step; None for all of them.
        ldp: local differential privacy of uploaded parameters; None for none.
        tolerance: a client has converged and leaves when its loss changes by less than this; None: no client leaves.
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
        """Return the number of local steps of clients in a round (K in the papers).

        Args:
            nodes: [...] int64 number of training targets of each client.

        Returns:
            [...] int64.
        """
        batches = 1 if self.batch_size is None else -(-nodes // self.batch_size)
        return np.full(nodes.shape, self.local_epochs) * batches
