"""The contract of a task: what is predicted, what local training minimises, and how predictions are scored.

A file of this folder declares `VERSION`, `METRICS` (its scores, each with "higher" or "lower" for what is better; the
first one selects the round, and higher is better there), `class Settings(ComponentSettings)` and `class
Task(base.Task)`. Scores that need stored logits (`protocol.logits`) it lists in `OF_LOGITS`; a task whose targets are
no nodes names them (`TARGETS = "pairs"`), and one that draws roles of its own says so (`OWN_ROLES = True`). Scores are
computed from stored predictions, without torch: a file imports it in the methods that need it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fglbench.partition.ratios import TEST, VAL
from fglbench.partition.split import Counts, SplitSettings, assign_roles, counts_of

if TYPE_CHECKING:
    from torch import Tensor

    from fglbench.datasets.base import Graph
    from fglbench.federation.batch import Batch
    from fglbench.federation.federation import Federation
    from fglbench.federation.step import Output, Step
    from fglbench.partition.base import Assignment

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Roles:
    """Which targets are for training, validation and test.

    Attributes:
        arrays: as `split.npz` has it, `role` [N] int8 of the clients' nodes among it.
        counts: of train, val and test the targets of each client.
    """

    arrays: Arrays
    counts: Counts


@dataclass(frozen=True)
class Targets:
    """What is predicted, client by client, as the split has it.

    Attributes:
        truth: [T] true values, aligned with a reading's predictions.
        ptr: [C + 1]; targets ptr[c]:ptr[c + 1] belong to client c.
        role: [T] int8: 0 none, 1 train, 2 validation, 3 test.
        share: [T] float64 1 / the number of clients that have a target; None where no two have the same.
    """

    truth: np.ndarray
    ptr: np.ndarray
    role: np.ndarray
    share: np.ndarray | None = None


def mean_of(sums: np.ndarray, sizes: np.ndarray, mean: str) -> np.ndarray:
    """[...] the mean over clients of a score that is a mean over targets, nan where no client has any.

    Args:
        sums: [..., C] the score's sum over the targets of each client.
        sizes: [C] these targets.
        mean: "macro" for the plain mean over the clients that have some; else every target counts the same.
    """
    present = sizes > 0
    if not present.any():
        return np.full(sums.shape[:-1], np.nan)
    if mean == "macro":
        return (sums[..., present] / sizes[present]).mean(-1)
    return sums.sum(-1) / sizes.sum()


def each_of(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """[C] the same score of each client, nan where it has no targets."""
    return np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)


class Objective(ABC):
    """What local training minimises on some client graphs.

    Attributes:
        targets: ascending rows of the federation whose outputs the loss reads.
        counts: [C] int64 training targets of each client; one without any does not train.
    """

    targets: np.ndarray
    counts: np.ndarray

    @abstractmethod
    def loss(self, step: "Step") -> "Tensor":
        """[S] mean loss of each client over the targets of the step's batch."""


class Task(ABC):
    """Base of all tasks.

    Attributes:
        settings: the resolved settings.
        predicts_classes: whether outputs are logits of classes, as some methods need.
        predicts_pairs: whether a prediction needs the outputs of all nodes of a client at once.
    """

    predicts_classes: bool = False
    predicts_pairs: bool = False

    def __init__(self, settings: Any):
        self.settings = settings

    def not_applicable(self, federation: "Federation") -> str | None:
        """The reason why this task makes no sense on a federation, or None."""
        return None

    def roles(
        self, graph: "Graph", assignment: "Assignment", split: SplitSettings, seed: int, dataset: str, scheme: str
    ) -> Roles:
        """Draws the roles of what is predicted: of nodes, as `protocol.split` says.

        A task with a rule of its own declares `OWN_ROLES = True` in its file, and is then part of the split's identity.

        Args:
            graph: that clients hold parts of.
            assignment: which nodes each client holds.
            split: of the protocol.
            seed: the cell's seed.
            dataset, scheme: parts of the name of the random stream, and of messages.

        Raises:
            PartitionError: the roles cannot be drawn.
        """
        roles = assign_roles(graph.labels, assignment, split, seed, dataset, scheme, graph.masks)
        return Roles({"role": np.concatenate(roles)}, counts_of(roles))

    @abstractmethod
    def outputs(self, federation: "Federation") -> int | None:
        """Columns of the local models' last layer; None: embeddings of nodes, as wide as the hidden layers."""

    @abstractmethod
    def objective(self, federation: "Federation") -> Objective:
        """What local training minimises."""

    @abstractmethod
    def predict(self, output: "Output", batch: "Batch", federation: "Federation") -> "Tensor":
        """What is stored of a forward pass over all nodes of some clients: [outputs, ...], one entry for each node, or
        [T, ...], one for each of these clients' `targets`.

        Args:
            output: of the models.
            batch: whose outputs they are; its `targets` are these nodes, or some of them (see `predicts_pairs`).
            federation: that is scored.
        """

    def count(self, federation: "Federation", role: str) -> np.ndarray:
        """[C] int64 targets of role "val" or "test" at each client; nodes by default."""
        return federation.count({"val": VAL, "test": TEST}[role])

    @abstractmethod
    def round_scores(self, predictions: np.ndarray, federation: "Federation", role: str) -> dict[str, np.ndarray]:
        """What the history keeps of a round's predictions for "val" or "test", by name: [C] each, or one number."""

    @abstractmethod
    def score(self, kept: Arrays, role: str, sizes: np.ndarray, mean: str) -> np.ndarray:
        """The selecting score, [...], of what the history keeps of one or more rounds, [..., C] each.

        Args:
            kept: by name, as `round_scores` gives it.
            role: "val" or "test".
            sizes: [C] targets of that role.
            mean: over clients, "pooled", "macro" or "nodes". nan where no client has such targets.
        """

    @abstractmethod
    def client_scores(self, kept: Arrays, role: str, sizes: np.ndarray) -> np.ndarray:
        """[C] the selecting score of each client, nan where it has no such targets; arguments as `score`."""

    @abstractmethod
    def targets(self, split: Arrays, labels: np.ndarray) -> Targets:
        """What is predicted, from the arrays of `split.npz` and the labels [num_nodes] of the graph."""

    @abstractmethod
    def scores(
        self, predicted: np.ndarray, logits: np.ndarray | None, targets: Targets, tested: np.ndarray
    ) -> dict[str, dict[str, Any]]:
        """All scores of the targets that are `tested` [T] bool, by metric, as `evaluation.metrics.means` has them."""
