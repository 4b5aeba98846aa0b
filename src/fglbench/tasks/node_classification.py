"""Node classification: the class of every node, trained on labelled nodes by cross-entropy and scored by accuracy."""

from typing import TYPE_CHECKING

import numpy as np

from fglbench.evaluation.client_means import ClientMeans
from fglbench.evaluation.metrics import scores
from fglbench.evaluation.ranking import ranking_scores
from fglbench.settings import ComponentSettings
from fglbench.tasks.base import Targets
from fglbench.tasks.common.nodes import ROLES, NodeObjective, NodeTask

if TYPE_CHECKING:
    from torch import Tensor

    from fglbench.federation.batch import Batch
    from fglbench.federation.federation import Federation
    from fglbench.federation.step import Output, Step

VERSION = 1
METRICS = {
    "accuracy": "higher",
    "f1_micro": "higher",
    "f1_macro": "higher",
    "auc": "higher",
    "ap": "higher",
    "loss": "lower",
}
OF_LOGITS = ("auc", "ap", "loss")


class Settings(ComponentSettings):
    pass


class CrossEntropy(NodeObjective):
    """The mean cross-entropy over a client's training nodes."""

    def loss(self, step: "Step") -> "Tensor":
        from torch.nn.functional import cross_entropy

        losses = cross_entropy(step.output.logits, step.batch.labels, reduction="none")
        return (step.batch.client_mean @ losses.unsqueeze(1)).squeeze(1)


class Task(NodeTask):
    predicts_classes = True
    sums = "correct"

    def outputs(self, federation: "Federation") -> int:
        return federation.classes

    def objective(self, federation: "Federation") -> CrossEntropy:
        return CrossEntropy(federation)

    def predict(self, output: "Output", batch: "Batch", federation: "Federation") -> "Tensor":
        """Return the class with the largest logit.

        Args:
            output: logits [outputs, classes].
            batch: not used.
            federation: not used.

        Returns:
            [outputs] int32 class ids.
        """
        return output.logits.argmax(1).int()

    def round_scores(self, predictions: np.ndarray, federation: "Federation", role: str) -> dict[str, np.ndarray]:
        """Count the correctly classified nodes of each client.

        Args:
            predictions: [N] int32 class ids.
            federation: the client graphs that are scored.
            role: "val" or "test".

        Returns:
            `<role>_correct` [C] int64; if clients share nodes, also `<role>_node_mean`, the accuracy in which every
            node counts once.
        """
        scored, share = federation.role == ROLES[role], federation.share
        correct = scored & (predictions == federation.labels)
        kept = {f"{role}_correct": np.bincount(federation.client_of[correct], minlength=federation.num_clients)}
        if share is not None:
            kept[f"{role}_node_mean"] = share[correct].sum() / share[scored].sum() if scored.any() else np.array(np.nan)
        return kept

    def scores(
        self, predicted: np.ndarray, logits: np.ndarray | None, targets: Targets, tested: np.ndarray
    ) -> dict[str, ClientMeans]:
        """Compute accuracy and F1, and from stored logits also the ranking metrics.

        Args:
            predicted: [T] class ids.
            logits: [T, classes] float32; None if logits are not stored.
            targets: of the split.
            tested: [T] bool, the nodes to score.

        Returns:
            For each metric an entry as `evaluation.client_means.means` makes it.
        """
        context = targets.truth, targets.ptr, tested, targets.share
        ranked = {} if logits is None else ranking_scores(logits, *context)
        return scores(predicted, *context) | ranked
