"""Feature reconstruction: a model reconstructs the features of every node, as autoencoders do.

The local loss is the mean squared error over a client's training nodes. The score of a node is
R2 = 1 - ||x - x'||^2 / ||x||^2, which is 1 for a perfect reconstruction and 0 for the output x' = 0. A node whose
features are all zero has the score 0.
"""

from typing import TYPE_CHECKING

import numpy as np

from fglbench.evaluation.client_means import ClientMeans, means
from fglbench.settings import ComponentSettings
from fglbench.tasks.base import Targets
from fglbench.tasks.common.nodes import ROLES, NodeObjective, NodeTask

if TYPE_CHECKING:
    from torch import Tensor

    from fglbench.federation.batch import Batch
    from fglbench.federation.federation import Federation
    from fglbench.federation.step import Output, Step

VERSION = 1
METRICS = {"r2": "higher"}


class Settings(ComponentSettings):
    pass


class SquaredError(NodeObjective):
    """The mean squared error over a client's training nodes."""

    def __init__(self, federation: "Federation"):
        super().__init__(federation)
        self._federation = federation

    def loss(self, step: "Step") -> "Tensor":
        errors = (step.output.logits - features_of(step.batch, self._federation)).square().mean(1, keepdim=True)
        return (step.batch.client_mean @ errors).squeeze(1)


class Task(NodeTask):
    sums = "r2"

    def outputs(self, federation: "Federation") -> int:
        return federation.num_features

    def objective(self, federation: "Federation") -> SquaredError:
        return SquaredError(federation)

    def predict(self, output: "Output", batch: "Batch", federation: "Federation") -> "Tensor":
        """Compute the R2 of each node; storing the reconstructed features would take gigabytes.

        Args:
            output: reconstructed features [outputs, num_features].
            batch: of the forward pass.
            federation: the client graphs that are scored.

        Returns:
            [outputs] float32.
        """
        x = features_of(batch, federation)
        size = x.square().sum(1)
        return (1 - (output.logits - x).square().sum(1) / size).where(size > 0, 0.0)

    def round_scores(self, predictions: np.ndarray, federation: "Federation", role: str) -> dict[str, np.ndarray]:
        """Compute the sum of R2 over the nodes of each client.

        Args:
            predictions: [N] float32 R2 of each node.
            federation: the client graphs that are scored.
            role: "val" or "test".

        Returns:
            `<role>_r2` [C] float64; if clients share nodes, also `<role>_node_mean`, in which every node counts once.
        """
        rows = federation.role == ROLES[role]
        scores = predictions[rows].astype(np.float64)
        kept = {f"{role}_r2": np.bincount(federation.client_of[rows], scores, minlength=federation.num_clients)}
        if federation.share is not None:
            kept[f"{role}_node_mean"] = np.array(node_mean(scores, federation.share[rows]), dtype=np.float64)
        return kept

    def scores(
        self, predicted: np.ndarray, logits: np.ndarray | None, targets: Targets, tested: np.ndarray
    ) -> dict[str, ClientMeans]:
        ptr = targets.ptr
        of_client = zip(np.split(predicted, ptr[1:-1]), np.split(tested, ptr[1:-1]), strict=True)
        each = [float(r2[chosen].mean()) if chosen.any() else None for r2, chosen in of_client]
        pooled = float(predicted[tested].mean()) if tested.any() else None
        r2_means = means(pooled, each, int(tested.sum()))
        if targets.share is not None:
            r2_means["node_mean"] = node_mean(predicted[tested], targets.share[tested])
        return {"r2": r2_means}


def node_mean(values: np.ndarray, share: np.ndarray) -> float | None:
    """Compute the mean in which every node counts once.

    Args:
        values: [n] values of rows.
        share: [n] float64, 1 / the number of clients that hold the row's node.

    Returns:
        The mean; None without rows.
    """
    return float(np.average(values, weights=share)) if len(values) else None


def features_of(batch: "Batch", federation: "Federation") -> "Tensor":
    """Return the features of a batch's targets.

    Args:
        batch: of the federation.
        federation: the client graphs.

    Returns:
        [targets, num_features] float32 on the device of the batch.
    """
    from fglbench.federation.features import dense_rows

    return dense_rows(federation.features[batch.targets.cpu().numpy()], batch.targets.device)
