"""Feature reconstruction: a model gives back the features of every node, as autoencoders do.

Local loss: the mean squared error over a client's training nodes. Score of a node: R2 = 1 - ||x - x'||^2 / ||x||^2,
which is 1 where its features come back as they are and 0 for a model that says nothing. A node without features has
none.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from fglbench.evaluation.metrics import means
from fglbench.settings import ComponentSettings
from fglbench.tasks import base
from fglbench.tasks.base import Arrays, Targets

if TYPE_CHECKING:
    from torch import Tensor

    from fglbench.backbones.base import Output
    from fglbench.federation.batch import Batch
    from fglbench.federation.federation import Federation
    from fglbench.methods.base import Step

VERSION = 1
METRICS = {"r2": "higher"}
_ROLES = {"val": 2, "test": 3}


class Settings(ComponentSettings):
    pass


class SquaredError(base.Objective):
    """The mean squared error over a client's training nodes."""

    def __init__(self, federation: "Federation"):
        self.targets = np.flatnonzero(federation.role == 1)
        self.counts = federation.count(1)
        self._federation = federation

    def loss(self, step: "Step") -> "Tensor":
        errors = (step.output.logits - features_of(step.batch, self._federation)).square().mean(1, keepdim=True)
        return (step.batch.client_mean @ errors).squeeze(1)


class Task(base.Task):
    def outputs(self, federation: "Federation") -> int:
        return federation.num_features

    def objective(self, federation: "Federation") -> SquaredError:
        return SquaredError(federation)

    def predict(self, output: "Output", batch: "Batch", federation: "Federation") -> "Tensor":
        """[outputs] float32 R2 of each node; the features themselves would be gigabytes."""
        x = features_of(batch, federation)
        return 1 - (output.logits - x).square().sum(1) / x.square().sum(1)

    def round_scores(self, predictions: np.ndarray, federation: "Federation", role: str) -> dict[str, np.ndarray]:
        """`<role>_r2` [C]: sums over the nodes."""
        rows = (federation.role == _ROLES[role]) & np.isfinite(predictions)
        weights, clients = predictions[rows].astype(np.float64), federation.client_of[rows]
        return {f"{role}_r2": np.bincount(clients, weights, minlength=federation.num_clients)}

    def client_scores(self, kept: Arrays, role: str, sizes: np.ndarray) -> np.ndarray:
        return base.each_of(kept[f"{role}_r2"], sizes)

    def score(self, kept: Arrays, role: str, sizes: np.ndarray, mean: str) -> np.ndarray:
        """R2."""
        return base.mean_of(kept[f"{role}_r2"], sizes, mean)

    def targets(self, split: Arrays, labels: np.ndarray) -> Targets:
        return Targets(labels[split["nodes"]], split["ptr"], split["role"])

    def scores(
        self, predicted: np.ndarray, logits: np.ndarray | None, targets: Targets, tested: np.ndarray
    ) -> dict[str, dict[str, Any]]:
        ptr = targets.ptr
        scored = tested & np.isfinite(predicted)
        of_client = zip(np.split(predicted, ptr[1:-1]), np.split(scored, ptr[1:-1]), strict=True)
        each = [float(own[chosen].mean()) if chosen.any() else None for own, chosen in of_client]
        pooled = float(predicted[scored].mean()) if scored.any() else None
        return {"r2": means(pooled, each, int(scored.sum()))}


def features_of(batch: "Batch", federation: "Federation") -> "Tensor":
    """[targets, num_features] features of a batch's targets."""
    import torch

    rows = federation.features[batch.targets.cpu().numpy()]
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    return torch.from_numpy(dense).to(batch.targets.device)
