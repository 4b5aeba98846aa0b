"""Training data of FedSage+'s generator: graphs whose clients hide some of their nodes."""

from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.features import dense_rows
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, client_means
from fglbench.federation.partly_dense import PartlyDenseRows
from fglbench.federation.propagation_batch import PropagationBatch, propagation_batch
from fglbench.methods.common.mending import MEAN, impair, mend
from fglbench.methods.common.nearest import Candidates
from fglbench.partition.ratios import TRAIN


class Hidden:
    """Batch that the generator learns from: the impaired graphs of S clients, and their hidden nodes.

    Every node that stays has one vector for each hidden neighbour, at most `neighbours`; there are M vectors in all.

    Args:
        federation: the graphs of these clients alone.
        clients: [S] int64 ids.
        neighbours: most vectors of a node.
        share: fraction of its nodes that a client hides.
        seed: of the cell.
        device: of the tensors.

    Attributes:
        clients: [S] int64 ids.
        federation: the impaired graphs, of the n nodes that stay.
        targets: [n] int64 rows of these nodes, which are all rows of the impaired graphs.
        target_ptr: [S + 1] boundaries of the targets by client.
        labels: [n] int64.
        missing: [n] float32 number of hidden neighbours.
        owners: [M] int64 row of the node that each vector belongs to.
        slots: [M] int64 number of each vector among those of its node.
        vector_ptr: [S + 1] boundaries of the vectors by client.
        client_mean, vector_mean: [S, n] and [S, M] operators that sum over a client's nodes and vectors, both divided
            by the number of its nodes.
        own: the encoder's batch, of the nodes that stay.
    """

    def __init__(
        self,
        federation: Federation,
        clients: np.ndarray,
        neighbours: int,
        share: float,
        seed: int,
        device: torch.device | str = "cpu",
    ):
        impaired = impair(federation, share, seed, clients)
        self.clients, self.federation = clients, impaired.federation
        self.target_ptr = self.federation.ptr.tolist()
        self.targets = torch.arange(len(self.federation.labels), device=device)
        self.labels = torch.from_numpy(self.federation.labels).to(device)
        self.own = propagation_batch(self.federation, MEAN, np.arange(len(clients)), 1, 1, device=device)
        self.missing = torch.from_numpy(impaired.missing).float().to(device)
        counts = np.minimum(impaired.missing, neighbours)
        self.owners, self.slots = vectors_of(counts, self.federation.ptr)
        self.vector_ptr = np.concatenate([[0], np.cumsum(counts)])[self.federation.ptr].tolist()
        sizes = np.diff(self.federation.ptr)
        self.client_mean, self.vector_mean = (
            client_means(ptr, device, sizes) for ptr in (self.target_ptr, self.vector_ptr)
        )
        self._features = federation.features
        lost = impaired.lost[self.owners].tocsc()
        # For each client: rows of its hidden neighbours, their features, and the rows that each vector may match.
        self._hidden_neighbours = []
        for (first, last), (start, stop) in zip(pairwise(self.vector_ptr), pairwise(federation.ptr), strict=True):
            rows = start + np.flatnonzero(np.diff(lost.indptr[start : stop + 1]))
            allowed = torch.from_numpy(lost[first:last][:, rows].toarray() > 0).to(device)
            self._hidden_neighbours.append(
                (rows, Candidates(federation.features[rows], [0, len(rows)], device), allowed)
            )
        mended, added = mend(self.federation, self.owners, None)
        train_nodes = np.flatnonzero(mended.role == TRAIN)
        self._batch = propagation_batch(mended, MEAN, np.arange(len(clients)), 1, 1, train_nodes, device=device)
        reached = self._batch.levels[0]
        present = np.isin(added, reached)
        vector_rows = np.searchsorted(reached, added[present])
        self._vectors = torch.from_numpy(np.flatnonzero(present)).to(device)
        self._vector_rows = torch.from_numpy(vector_rows).to(device)
        features = cast(Tensor | SparseOperator, self._batch.features[0])
        self._batch_features: Tensor | PartlyDenseRows = (  # the vectors, which every step changes, are dense rows
            features
            if isinstance(features, Tensor)
            else PartlyDenseRows.of(features, torch.empty(0, device=device), vector_rows, self._batch.feature_ptr)
        )

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        """Return the representations of the targets, which are all rows.

        Args:
            x: [n, width] representations.
            level: not used.

        Returns:
            `x` itself.
        """
        return x

    def nearest(self, vectors: Tensor) -> Tensor:
        """Return the features of the hidden neighbour that is closest to each vector, among those of the vector's node.

        Args:
            vectors: [M, num_features] float32.

        Returns:
            [M, num_features] float32.
        """
        chosen = np.zeros(len(self.owners), dtype=np.int64)
        for (first, last), (rows, candidates, allowed) in zip(
            pairwise(self.vector_ptr), self._hidden_neighbours, strict=True
        ):
            if first < last:
                nearest = candidates.nearest(vectors[first:last], allowed)
                chosen[first:last] = rows[nearest[:, 0]]
        return dense_rows(self._features[chosen], vectors.device)

    def mended_batch(self, vectors: Tensor) -> PropagationBatch:
        """Return the classifier's batch: the training nodes on the impaired graphs, mended with vectors.

        Args:
            vectors: [M, num_features] float32, features of the neighbours to add.

        Returns:
            A batch whose targets are the training nodes of these clients that stay.
        """
        features, selected = self._batch_features, vectors[self._vectors]
        x = (
            features.index_copy(0, self._vector_rows, selected)
            if isinstance(features, Tensor)
            else replace(features, dense=selected)
        )
        return replace(self._batch, features=[x])


def vectors_of(counts: np.ndarray, ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the node of each vector, and the number of the vector among those of its node.

    Args:
        counts: [n] vectors of each node.
        ptr: [S + 1] boundaries of the nodes by client.

    Returns:
        Two arrays [counts.sum()] int64, the rows of the nodes and the 0-based numbers, sorted by client, number and
        node.
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    slots = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.lexsort((slots, np.searchsorted(ptr, owners, side="right")))
    return owners[order], slots[order]
