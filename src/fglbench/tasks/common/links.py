"""Links of client graphs: inner products of pairs of rows, negative pairs, and the losses of link prediction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import softplus

from fglbench.errors import ComponentError
from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, client_means, csr_tensor, product
from fglbench.seeding import numpy_stream
from fglbench.tasks.base import Objective

if TYPE_CHECKING:
    from fglbench.federation.step import Step

_AT_ONCE = 2**15  # pairs whose rows are gathered at once, so that they stay in the cache of a CPU
_SPARE = 8  # negatives drawn in addition to the expected number


class InnerProducts:
    """Inner products of pairs of rows; the gradient is one sparse product, which is much faster than that of indexing.

    Args:
        ends: [P, 2] int64 rows.
        rows: number of rows R of the matrix.
        device: of the matrix.
    """

    def __init__(self, ends: np.ndarray, rows: int, device: torch.device | str):
        size, both = 2 * len(ends), ends.T.ravel()
        # Row r has an entry for every pair end that equals r; the column is the number of that end.
        by_row = sp.csr_matrix((np.ones(size, dtype=np.int8), (both, np.arange(size))), shape=(rows, size))
        position, other = by_row.indices, (by_row.indices + len(ends)) % max(size, 1)
        self._rows = rows
        self._ends = torch.from_numpy(np.ascontiguousarray(ends.T)).to(device)
        self._pair = torch.from_numpy(position % max(len(ends), 1)).to(device)
        self._indptr = torch.from_numpy(by_row.indptr).to(device)
        self._columns = torch.from_numpy(both[other].astype(by_row.indptr.dtype)).to(device)

    def __call__(self, z: Tensor) -> Tensor:
        """Compute the inner products of the pairs: [R, width] -> [P]."""
        return _InnerProducts.apply(z, self)

    def of(self, z: Tensor) -> Tensor:
        """Compute the inner products of the pairs, outside autograd.

        Args:
            z: [R, width] float32.

        Returns:
            [P] float32.
        """
        products = z.new_empty(self._ends.shape[1])
        for ends, out in zip(self._ends.split(_AT_ONCE, dim=1), products.split(_AT_ONCE), strict=True):
            first, second = (z.index_select(0, rows) for rows in ends)
            torch.sum(first.mul_(second), dim=1, out=out)
        return products

    def gradient(self, gradient: Tensor, z: Tensor) -> Tensor:
        """Compute the gradient of the matrix from that of the inner products.

        Args:
            gradient: [P] float32 gradient of the inner products.
            z: [R, width] float32 matrix of the forward pass.

        Returns:
            [R, width] float32.
        """
        matrix = csr_tensor(self._indptr, self._columns, gradient.index_select(0, self._pair), (self._rows, self._rows))
        return product(matrix, z)


class _InnerProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, pairs: InnerProducts) -> Tensor:
        ctx.pairs = pairs
        ctx.save_for_backward(z)
        return pairs.of(z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return ctx.pairs.gradient(gradients[0], z), None


@dataclass(frozen=True)
class ClientPairs:
    """Pairs of output rows of a batch, client by client.

    Attributes:
        products: computes the inner products of the P pairs.
        mean: [S, P] operator that averages the pairs of each client.
    """

    products: InnerProducts
    mean: SparseOperator

    @classmethod
    def of(cls, ends: Sequence[np.ndarray], batch: Batch) -> "ClientPairs":
        """Make the pairs of a batch from those of its clients.

        Args:
            ends: for each client of the batch [P, 2] int64 positions among its nodes.
            batch: has all nodes of its clients.

        Returns:
            The pairs of all clients, one client after another.
        """
        device = batch.targets.device
        rows = [pairs + start for pairs, start in zip(ends, batch.target_ptr, strict=False)]
        ptr = np.cumsum([0, *map(len, ends)])
        return cls(InnerProducts(np.concatenate(rows), len(batch.targets), device), client_means(ptr, device))


class LastPairs:
    """Cache of the pairs of the last batch; a batch that stays the same serves all epochs and rounds."""

    def __init__(self) -> None:
        self._last: tuple[Batch, ClientPairs] | None = None

    def of(self, batch: Batch, federation: Federation, ends: Callable[[int], np.ndarray]) -> ClientPairs:
        """Return the pairs of a batch that has all nodes of its clients.

        Args:
            batch: of the federation.
            federation: the client graphs.
            ends: returns for a client [P, 2] int64 positions among its nodes.

        Returns:
            The cached pairs if the batch is the last one, else new pairs.

        Raises:
            ComponentError: the batch lacks nodes of its clients, see `check_whole`.
        """
        if self._last is None or self._last[0] is not batch:
            check_whole(batch, federation)
            self._last = batch, ClientPairs.of([ends(client) for client in batch.clients.tolist()], batch)
        return self._last[1]


class ScoredPairs:
    """Scores the pairs of a federation from embeddings of its nodes."""

    def __init__(self) -> None:
        self._pairs = LastPairs()

    def scores(self, embeddings: Tensor, batch: Batch, federation: Federation) -> Tensor:
        """Compute the inner products of the pairs; a larger value means a more likely edge.

        Args:
            embeddings: [outputs, width] float32 of all nodes of the batch's clients.
            batch: of the forward pass.
            federation: the client graphs that are scored.

        Returns:
            [pairs of the batch's clients] float32.
        """
        assert federation.pairs is not None
        pairs, starts = federation.pairs, original_ptr(federation)

        def ends(client: int) -> np.ndarray:
            return pairs.ends[pairs.ptr[client] : pairs.ptr[client + 1]] - starts[client]

        return self._pairs.of(batch, federation, ends).products(embeddings)


def original_ptr(federation: Federation) -> np.ndarray:
    """Compute the boundaries of the clients among the rows of original nodes.

    Args:
        federation: the client graphs.

    Returns:
        [C + 1] int64.
    """
    return federation.ptr if federation.original is None else np.searchsorted(federation.original, federation.ptr)


def check_whole(batch: Batch, federation: Federation) -> None:
    """Check that a batch has all original nodes of its clients.

    Args:
        batch: of the federation.
        federation: the client graphs.

    Raises:
        ComponentError: the batch lacks some of these nodes.
    """
    if not np.array_equal(np.diff(batch.target_ptr), np.diff(original_ptr(federation))[batch.clients]):
        raise ComponentError(
            "losses and scores of links need all nodes of a client in one batch, but this batch contains only some of "
            "them. Remove training.batch_size."
        )


class LinkObjective(Objective):
    """Base class of losses that separate edges from pairs without an edge, by inner products (Kipf and Welling 2016).

    `targets` are all original nodes of the clients that have an edge. `counts` are the undirected edges of each client.

    Args:
        federation: the client graphs; edges to nodes that a method added are not learned.
    """

    def __init__(self, federation: Federation):
        original, starts = federation.original, original_ptr(federation)
        self._federation = federation
        self._adjacency = (
            federation.adjacency if original is None else federation.adjacency[original][:, original].tocsr()
        )
        self._adjacency.sort_indices()
        self._sizes = np.diff(starts)
        ends = np.stack(sp.triu(self._adjacency, k=1, format="csr").nonzero(), axis=1).astype(np.int64)
        bounds = np.searchsorted(ends[:, 0], starts)
        self._starts = starts
        self._edges = [ends[first:last] - start for first, last, start in zip(bounds, bounds[1:], starts, strict=False)]
        self.counts = np.diff(bounds)
        trains = np.repeat(self.counts > 0, self._sizes)
        self.targets = np.flatnonzero(trains) if original is None else original[trains]
        self._pairs = LastPairs()

    def _positives(self, batch: Batch) -> ClientPairs:
        return self._pairs.of(batch, self._federation, self._edges.__getitem__)


class SampledPairs(LinkObjective):
    """PyG's `GAE.recon_loss`: cross-entropy over a client's edges and as many sampled pairs without an edge.

    The loss is the mean of -log s over the edges plus the mean of -log(1 - s) over the pairs without an edge, where s
    is the sigmoid of the inner product. These pairs are drawn anew in every local epoch.
    """

    def loss(self, step: "Step") -> Tensor:
        z, positive = step.output.logits, self._positives(step.batch)
        negative = ClientPairs.of(self.negatives(step.seed, step.round, step.epoch, step.clients), step.batch)
        of_edges = positive.mean @ softplus(-positive.products(z)).unsqueeze(1)
        of_others = negative.mean @ softplus(negative.products(z)).unsqueeze(1)
        return (of_edges + of_others).squeeze(1)

    def negatives(self, seed: int, round: int, epoch: int, clients: np.ndarray) -> list[np.ndarray]:
        """Draw pairs of nodes of each client that no training edge joins; a pair may occur several times.

        Args:
            seed: the cell's seed.
            round: 0-based round of the phase.
            epoch: 0-based local epoch.
            clients: [S] int64 client ids.

        Returns:
            For each client [edges, 2] int64 positions among its original nodes; a nearly complete client may have fewer
            pairs.
        """
        drawn = [self._candidates(numpy_stream(seed, "negatives", c, round, epoch), c) for c in clients.tolist()]
        rows = np.concatenate([pairs + self._starts[c] for pairs, c in zip(drawn, clients, strict=True)])
        joined = np.asarray(self._adjacency[rows[:, 0], rows[:, 1]]).ravel() > 0
        free = np.split(~joined & (rows[:, 0] != rows[:, 1]), np.cumsum([len(pairs) for pairs in drawn])[:-1])
        return [pairs[mask][: self.counts[c]] for pairs, mask, c in zip(drawn, free, clients, strict=True)]

    def _candidates(self, stream: np.random.Generator, client: int) -> np.ndarray:
        edges, nodes = int(self.counts[client]), int(self._sizes[client])
        free = max(1 - (2 * edges + nodes) / nodes**2, 0.25)
        return stream.integers(nodes, size=(int(1.1 * edges / free) + _SPARE, 2))


class AllPairs(LinkObjective):
    """The weighted cross-entropy over all n^2 ordered pairs of a client's nodes (the code of Kipf and Welling 2016).

    The loss is n^2 / (2 (n^2 - E)) times the mean over the pairs, in which edges have the weight (n^2 - E) / E. E is
    the number of ordered edges. The pair of a node with itself is treated as an edge, but it is not counted in E.
    """

    def loss(self, step: "Step") -> Tensor:
        z, positive = step.output.logits, self._positives(step.batch)
        size = torch.from_numpy(self._sizes[step.clients]).to(z)
        edges = 2 * torch.from_numpy(self.counts[step.clients]).to(z)  # ordered edges, as in the public code
        absent = size.square() - edges
        weight, norm = absent / edges, size.square() / (2 * absent)
        embeddings = z.tensor_split(step.batch.target_ptr[1:-1])
        all_pairs = torch.stack([softplus(nodes @ nodes.T).mean() for nodes in embeddings])
        scores, squares = positive.products(z), z.square().sum(1)
        pairs = torch.from_numpy(np.repeat(np.arange(len(step.clients)), self.counts[step.clients])).to(z.device)
        of_edges = weight[pairs] * softplus(-scores) - softplus(scores)
        rows = torch.from_numpy(np.repeat(np.arange(len(step.clients)), self._sizes[step.clients])).to(z.device)
        of_nodes = weight[rows] * softplus(-squares) - softplus(squares)
        sums = (positive.mean @ of_edges.unsqueeze(1)).squeeze(1) * edges
        sums = sums + (step.batch.client_mean @ of_nodes.unsqueeze(1)).squeeze(1) * size
        return norm * (all_pairs + sums / size.square())
