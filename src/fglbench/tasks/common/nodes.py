"""Base classes for tasks whose targets are nodes with a role and whose score is a mean over nodes."""

from typing import TYPE_CHECKING

import numpy as np

from fglbench.evaluation.client_means import shares
from fglbench.partition.ratios import TEST, TRAIN, VAL
from fglbench.tasks import base
from fglbench.tasks.base import Arrays, Targets

if TYPE_CHECKING:
    from fglbench.federation.federation import Federation

ROLES = {"val": VAL, "test": TEST}


class NodeObjective(base.Objective):
    """Base class of losses over the training nodes of each client."""

    def __init__(self, federation: "Federation"):
        self.targets = np.flatnonzero(federation.role == TRAIN)
        self.counts = federation.count(TRAIN)


class NodeTask(base.Task):
    """Base class of tasks whose history keeps the sum of the score over each client's nodes.

    If clients share nodes, the history also keeps `<role>_node_mean`, in which every node counts once.

    Attributes:
        sums: suffix of the array `<role>_<sums>` [C] that holds these sums.
    """

    sums: str

    def score(self, kept: Arrays, role: str, sizes: np.ndarray, mean: str) -> np.ndarray:
        if mean == "nodes" and f"{role}_node_mean" in kept:
            return kept[f"{role}_node_mean"]
        return base.mean_of(kept[f"{role}_{self.sums}"], sizes, mean)

    def client_scores(self, kept: Arrays, role: str, sizes: np.ndarray) -> np.ndarray:
        return base.each_of(kept[f"{role}_{self.sums}"], sizes)

    def targets(self, split: Arrays, labels: np.ndarray) -> Targets:
        return Targets(labels[split["nodes"]], split["ptr"], split["role"], shares(split["nodes"]))
