"""The contract of a task: what is predicted, what local training minimises, and how predictions are scored.

A file of this folder declares `VERSION`, `METRICS`, `class Settings(ComponentSettings)` and `class Task(base.Task)`.
`METRICS` maps each score to its better direction, "higher" or "lower". The first score selects the round, and its
direction is "higher". Three more constants are optional:

    OF_LOGITS        the scores that need stored logits (`protocol.logits`)
    TARGETS          the word for the targets, such as "pairs", if they are not nodes
    OWN_ROLES        True if the task draws its own roles

Scores are computed from stored predictions, without torch. A file therefore imports torch inside the methods that need
it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fglbench.evaluation.client_means import ClientMeans, each_of, mean_of
from fglbench.partition.ratios import TEST, VAL
from fglbench.partition.split import Counts, SplitSettings, assign_roles, counts_of

if TYPE_CHECKING:
    from torch import Tensor

    from fglbench.datasets.base import Graph
    from fglbench.federation.batch import Batch
    from fglbench.federation.federation import Federation
    from fglbench.federation.step import Output, Step
    from fglbench.partition.base import Assignment

__all__ = ["Arrays", "Objective", "Roles", "Targets", "Task", "each_of", "mean_of"]

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Roles:
    """The roles of the targets: training, validation and test.

    Attributes:
        arrays: the arrays of `split.npz`, including `role` [N] int8 of the clients' nodes.
        counts: for train, val and test the number of targets of each client.
    """

    arrays: Arrays
    counts: Counts


@dataclass(frozen=True)
class Targets:
    """The targets of a split, client by client.

    Attributes:
        truth: [T] true values, aligned with the predictions of a reading.
        ptr: [C + 1] boundaries; targets ptr[c]:ptr[c + 1] belong to client c.
        role: [T] int8: 0 none, 1 train, 2 validation, 3 test.
        share: [T] float64, 1 / the number of clients that have the target; None if no target is shared.
    """

    truth: np.ndarray
    ptr: np.ndarray
    role: np.ndarray
    share: np.ndarray | None = None


class Objective(ABC):
    """The loss that local training minimises on some client graphs.

    Attributes:
        targets: [T] int64 ascending rows of the federation whose outputs the loss reads.
        counts: [C] int64 number of training targets of each client; a client without training targets does not train.
    """

    targets: np.ndarray
    counts: np.ndarray

    @abstractmethod
    def loss(self, step: "Step") -> "Tensor":
        """Compute the mean loss of each client over the targets of the step's batch.

        Args:
            step: clients, outputs and batch of the local step.

        Returns:
            [S] float32.
        """


class Task(ABC):
    """Base class of all tasks.

    Attributes:
        settings: the resolved settings.
        predicts_classes: whether the outputs are logits of classes, which some methods need.
        predicts_pairs: whether a prediction needs the outputs of all nodes of a client at once.
        pair_bytes: bytes that a step keeps for every ordered pair of a client's nodes, for estimates of memory.
    """

    predicts_classes: bool = False
    predicts_pairs: bool = False
    pair_bytes: int = 0

    def __init__(self, settings: Any):
        self.settings = settings

    def not_applicable(self, federation: "Federation") -> str | None:
        """Return the reason why this task cannot be applied to a federation.

        Args:
            federation: the client graphs.

        Returns:
            The reason as text; None if the task can be applied.
        """
        return None

    def roles(
        self, graph: "Graph", assignment: "Assignment", split: SplitSettings, seed: int, dataset: str, scheme: str
    ) -> Roles:
        """Draw the roles of the targets; by default those of nodes, as `protocol.split` says.

        A task with its own rule declares `OWN_ROLES = True` in its file. It then becomes part of the split's identity.

        Args:
            graph: the whole graph.
            assignment: the nodes that each client holds.
            split: settings of `protocol.split`.
            seed: the cell's seed.
            dataset, scheme: names, used for the random stream and in messages.

        Returns:
            The arrays of `split.npz`, and the number of targets per role and client.

        Raises:
            PartitionError: the roles cannot be drawn.
        """
        roles = assign_roles(graph.labels, assignment, split, seed, dataset, scheme, graph.masks)
        return Roles({"role": np.concatenate(roles)}, counts_of(roles))

    @abstractmethod
    def outputs(self, federation: "Federation") -> int | None:
        """Return the number of columns of the last layer of the local models.

        Args:
            federation: the client graphs.

        Returns:
            The number of columns; None: the outputs are node embeddings, as wide as the hidden layers.
        """

    @abstractmethod
    def objective(self, federation: "Federation") -> Objective:
        """Make the loss that local training minimises.

        Args:
            federation: the client graphs to train on.

        Returns:
            The objective with its training targets.
        """

    @abstractmethod
    def predict(self, output: "Output", batch: "Batch", federation: "Federation") -> "Tensor":
        """Compute the stored predictions from a forward pass over all nodes of some clients.

        Args:
            output: of the models.
            batch: of the forward pass; its `targets` are all nodes of these clients, or some of them if
                `predicts_pairs` is false.
            federation: the client graphs that are scored.

        Returns:
            [outputs, ...], one entry for each output row; or [T, ...], one for each target in `Targets` of these
            clients, such as a pair.
        """

    def count(self, federation: "Federation", role: str) -> np.ndarray:
        """Count the targets of a role at each client; these are nodes by default.

        Args:
            federation: the client graphs that are scored.
            role: "val" or "test".

        Returns:
            [C] int64.
        """
        return federation.count({"val": VAL, "test": TEST}[role])

    @abstractmethod
    def round_scores(self, predictions: np.ndarray, federation: "Federation", role: str) -> dict[str, np.ndarray]:
        """Compute what the history keeps of the predictions of a round.

        Args:
            predictions: of all clients, as `predict` gives them.
            federation: the client graphs that are scored.
            role: "val" or "test".

        Returns:
            Arrays [C], or single numbers, by name.
        """

    @abstractmethod
    def score(self, kept: Arrays, role: str, sizes: np.ndarray, mean: str) -> np.ndarray:
        """Compute the selecting score from what the history keeps of one or more rounds.

        Args:
            kept: the arrays of `round_scores` by name, [..., C] each, or [...] for single numbers.
            role: "val" or "test".
            sizes: [C] number of targets of that role.
            mean: client mean: "pooled", "macro", "nodes" or "weighted" (which selects as "pooled").

        Returns:
            [...] float64; nan if no client has targets of that role.
        """

    @abstractmethod
    def client_scores(self, kept: Arrays, role: str, sizes: np.ndarray) -> np.ndarray:
        """Compute the selecting score of each client from what the history keeps of a round.

        Args:
            kept: the arrays of `round_scores` by name.
            role: "val" or "test".
            sizes: [C] number of targets of that role.

        Returns:
            [C] float64; nan for clients without targets of that role.
        """

    @abstractmethod
    def targets(self, split: Arrays, labels: np.ndarray) -> Targets:
        """Return the targets of a split.

        Args:
            split: the arrays of `split.npz`.
            labels: [num_nodes] int64 labels of the graph.

        Returns:
            True values, client boundaries and roles of the targets.
        """

    @abstractmethod
    def scores(
        self, predicted: np.ndarray, logits: np.ndarray | None, targets: Targets, tested: np.ndarray
    ) -> dict[str, ClientMeans]:
        """Compute all scores of the tested targets.

        Args:
            predicted: [T, ...] stored predictions, aligned with `targets`.
            logits: [T, classes] float32 stored logits; None if they are not stored.
            targets: of the split.
            tested: [T] bool, the targets to score.

        Returns:
            For each metric an entry as `evaluation.client_means.means` makes it.
        """
