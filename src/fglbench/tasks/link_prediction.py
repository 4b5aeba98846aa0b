"""Link prediction: whether two nodes of a client are joined, from the inner product of their embeddings.

Each client's undirected edges are split into roles, and messages pass along training edges only. Validation and test
edges are scored against as many pairs of the client's nodes that have no edge in the whole graph, by AUC and average
precision. The outputs of a backbone are the embeddings, as wide as its hidden layers. The local loss is PyG's
`GAE.recon_loss`, or with `pairs: all` that of Kipf and Welling (2016). Eq. 7 of FedVGAE instead sums over all pairs
without weights.

Defaults:
    train, val, test 0.85, 0.05, 0.1: those of Kipf and Welling (2016).
    pairs sampled: PyG's; all is the paper's.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fglbench.errors import PartitionError
from fglbench.evaluation.client_means import ClientMeans
from fglbench.evaluation.ranking import auc_of_clients, ranking_scores
from fglbench.partition.links import Pairs, draw_pairs
from fglbench.partition.ratios import TEST, VAL
from fglbench.partition.split import SplitSettings
from fglbench.partition.subgraph import induced_edges
from fglbench.seeding import numpy_stream
from fglbench.settings import ComponentSettings, Field
from fglbench.tasks import base
from fglbench.tasks.base import Arrays, Roles, Targets

if TYPE_CHECKING:
    from torch import Tensor

    from fglbench.datasets.base import Graph
    from fglbench.federation.batch import Batch
    from fglbench.federation.federation import Federation
    from fglbench.federation.step import Output
    from fglbench.partition.base import Assignment
    from fglbench.tasks.common.links import LinkObjective

VERSION = 1
METRICS = {"auc": "higher", "ap": "higher"}
OWN_ROLES = True
TARGETS = "pairs"
ROLES = {"val": VAL, "test": TEST}
MOST_PAIRS = 2**28
"""Largest number of ordered pairs of all clients under `pairs: all`; training keeps about 4 GiB for this number."""
PAIR_BYTES = 16


class Settings(ComponentSettings):
    train: float = Field(0.85, gt=0, lt=1, description="Fraction of a client's edges to train on.")
    val: float = Field(0.05, ge=0, lt=1, description="Fraction to choose the round by.")
    test: float = Field(0.1, gt=0, lt=1, description="Fraction to test.")
    pairs: Literal["sampled", "all"] = Field(
        "sampled",
        description="Loss over the edges and as many pairs without one, drawn anew in every epoch, or over all pairs.",
    )

    def model_post_init(self, context: Any) -> None:
        total = self.train + self.val + self.test
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train {self.train:g} + val {self.val:g} + test {self.test:g} is {total:g}; it must be 1")


class Task(base.Task):
    predicts_pairs = True

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.pair_bytes = PAIR_BYTES if settings.pairs == "all" else 0
        self._scored: Any = None

    def not_applicable(self, federation: "Federation") -> str | None:
        pairs = int(np.square(np.diff(federation.ptr)).sum())
        if self.settings.pairs == "all" and pairs > MOST_PAIRS:
            return (
                f"pairs: all computes {pairs:,} pairs of nodes in a step, more than the limit of {MOST_PAIRS:,}; use "
                "pairs: sampled, or more clients"
            )
        return None

    def roles(
        self, graph: "Graph", assignment: "Assignment", split: SplitSettings, seed: int, dataset: str, scheme: str
    ) -> Roles:
        """Draw the roles of edges; all nodes have the role 0.

        Args:
            graph: the whole graph.
            assignment: the nodes that each client holds.
            split: not used; the settings of the task have the ratios.
            seed: the cell's seed.
            dataset, scheme: names, used for the random stream and in messages.

        Returns:
            Arrays: `role` [N] int8 of zeros, and `pairs`, `pair_ptr`, `pair_role`, `pair_edge` as in `Pairs`. Counts:
            the training edges, validation pairs and test pairs of each client.

        Raises:
            PartitionError: the scheme holds out clients.
        """
        parts, settings = assignment.parts, self.settings
        if assignment.held_out_clients:
            raise PartitionError(
                f"scheme '{scheme}' holds out clients {list(assignment.held_out_clients)}, but link-prediction does "
                "not support held-out clients. Use another scheme."
            )
        nodes, ptr = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
        copies = None if assignment.copies is None else np.concatenate(assignment.copies)
        pairs, training = draw_pairs(
            induced_edges(graph, nodes, ptr, copies),
            nodes,
            ptr,
            graph.edges,
            (settings.train, settings.val, settings.test),
            numpy_stream(seed, "links", dataset, scheme, len(parts)),
        )
        counts = {"train": training, "val": pairs.count(VAL), "test": pairs.count(TEST)}
        return Roles({"role": np.zeros(len(nodes), dtype=np.int8), **pairs.arrays()}, counts)

    def outputs(self, federation: "Federation") -> None:
        """Return None, because the outputs are embeddings.

        Args:
            federation: not used.
        """

    def objective(self, federation: "Federation") -> "LinkObjective":
        from fglbench.tasks.common.links import AllPairs, SampledPairs

        return (AllPairs if self.settings.pairs == "all" else SampledPairs)(federation)

    def predict(self, output: "Output", batch: "Batch", federation: "Federation") -> "Tensor":
        """Compute the inner products of pairs, which rank pairs as their sigmoids do and do not saturate.

        Args:
            output: embeddings [outputs, width] of all nodes of some clients.
            batch: of the forward pass.
            federation: the client graphs that are scored.

        Returns:
            [pairs] float32 of these clients.
        """
        from fglbench.tasks.common.links import ScoredPairs

        self._scored = self._scored or ScoredPairs()
        return self._scored.scores(output.logits, batch, federation)

    def count(self, federation: "Federation", role: str) -> np.ndarray:
        return _pairs(federation).count(ROLES[role])

    def round_scores(self, predictions: np.ndarray, federation: "Federation", role: str) -> dict[str, np.ndarray]:
        """Compute the AUC of each client and of all pairs together.

        Args:
            predictions: [P] float32 inner products.
            federation: the client graphs that are scored.
            role: "val" or "test".

        Returns:
            `<role>_auc` [C] float64, nan for clients without pairs, and `<role>_pooled_auc`, a number.
        """
        pairs = _pairs(federation)
        scored = pairs.role == ROLES[role]
        client = np.repeat(np.arange(federation.num_clients), np.diff(pairs.ptr))[scored]
        scores, edge = predictions[scored], pairs.edge[scored]
        return {
            f"{role}_auc": auc_of_clients(scores, edge, client, federation.num_clients),
            f"{role}_pooled_auc": auc_of_clients(scores, edge, np.zeros_like(client), 1)[0],
        }

    def score(self, kept: Arrays, role: str, sizes: np.ndarray, mean: str) -> np.ndarray:
        """Compute the AUC; a pair that several clients hold counts once for each of them under every mean.

        Args:
            kept: the arrays of `round_scores` by name.
            role: "val" or "test".
            sizes: [C] number of pairs of that role.
            mean: "macro" for the mean over clients; any other value for the AUC of all pairs together.

        Returns:
            [...] float64, one for each round.
        """
        if mean != "macro":
            return np.asarray(kept[f"{role}_pooled_auc"])
        return base.mean_of(self.client_scores(kept, role, sizes) * sizes, sizes, mean)

    def client_scores(self, kept: Arrays, role: str, sizes: np.ndarray) -> np.ndarray:
        return kept[f"{role}_auc"]

    def targets(self, split: Arrays, labels: np.ndarray) -> Targets:
        return Targets(split["pair_edge"].astype(np.int64), split["pair_ptr"], split["pair_role"])

    def scores(
        self, predicted: np.ndarray, logits: np.ndarray | None, targets: Targets, tested: np.ndarray
    ) -> dict[str, ClientMeans]:
        return ranking_scores(predicted, targets.truth, targets.ptr, tested)


def _pairs(federation: "Federation") -> Pairs:
    assert federation.pairs is not None, "the split of this federation has no roles of edges"
    return federation.pairs
