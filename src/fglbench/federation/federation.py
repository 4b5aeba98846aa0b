"""The federation: the client subgraphs as one block-diagonal graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from fglbench.evaluation.client_means import shares
from fglbench.federation.propagation import Features, Propagated, normalised
from fglbench.partition.links import Pairs
from fglbench.settings import Propagation


@dataclass(frozen=True)
class Federation:
    """C client subgraphs as one block-diagonal graph of N nodes; no edge joins two clients.

    Attributes:
        ptr: [C + 1] int64; rows ptr[c]:ptr[c + 1] belong to client c.
        labels: [N] int64, -1 for a node without a label.
        role: [N] int8: 0 none, 1 train, 2 validation, 3 test.
        classes: number of classes.
        adjacency: [N, N] float32 CSR, symmetric weights of the edges, no self-loops.
        x: node features X, [N, num_features] float32, dense, CSR or partly dense; or a function that reads them on the
            first use.
        precomputed: answers to propagation requests that preprocessing or a method has computed ahead of training.
        nodes: [N] int64 global node ids of the rows; None if clients share no nodes.
        copy: [N] bool, true for copies of nodes that another client owns; None if nodes have no owners.
        original: int64 ascending positions of the original nodes, which are predicted and scored; rows that a
            method added have role 0. None if no rows were added.
        pairs: scored pairs of nodes in link prediction; the edges among them are not in `adjacency`, and their
            positions count the `original` rows. None for tasks that score nodes.
        evaluated: whole graphs of the same clients under the inductive setting, in which this graph lacks the
            validation and test nodes. None if this graph is whole.
    """

    ptr: np.ndarray
    labels: np.ndarray
    role: np.ndarray
    classes: int
    adjacency: sp.csr_matrix
    x: "Features | Callable[[], Features]"
    precomputed: Mapping[Propagation, Propagated] = field(default_factory=dict)
    nodes: np.ndarray | None = None
    copy: np.ndarray | None = None
    original: np.ndarray | None = None
    pairs: Pairs | None = None
    evaluated: "Federation | None" = None

    @property
    def scored(self) -> "Federation":
        """The client graphs on which models are evaluated."""
        return self.evaluated or self

    @property
    def num_clients(self) -> int:
        """Number of clients C."""
        return len(self.ptr) - 1

    @cached_property
    def features(self) -> Features:
        """Node features X, [N, num_features] float32."""
        return self.x() if callable(self.x) else self.x

    @property
    def num_features(self) -> int:
        """Number of columns of the node features."""
        answer = next(iter(self.precomputed.values()), None)
        return int((answer.features[0] if answer else self.features).shape[1])

    @cached_property
    def client_of(self) -> np.ndarray:
        """[N] int64 client of each row."""
        return np.repeat(np.arange(self.num_clients), np.diff(self.ptr))

    @cached_property
    def share(self) -> np.ndarray | None:
        """[N] float64: 1 / the number of clients that hold a row's node; None if no node is shared."""
        return None if self.nodes is None else shares(self.nodes)

    def count(self, role: int) -> np.ndarray:
        """Count the nodes of a role at each client.

        Args:
            role: 0 none, 1 train, 2 validation, 3 test.

        Returns:
            [C] int64.
        """
        return np.bincount(self.client_of[self.role == role], minlength=self.num_clients)

    def rows_of(self, clients: np.ndarray) -> np.ndarray:
        """Return the rows of some clients, one client after another.

        Args:
            clients: [S] int64 client ids, at least one.

        Returns:
            [rows] int64, in the order of `clients`.
        """
        return np.concatenate([np.arange(self.ptr[client], self.ptr[client + 1]) for client in clients])

    @cached_property
    def _formed(self) -> dict[Propagation, Propagated]:
        return {}

    def propagated(self, request: Propagation) -> Propagated:
        """Return the answer to a propagation request.

        If preprocessing or a method computed the answer, it is returned. Otherwise the first call computes the
        operator, and the features are not propagated.

        Args:
            request: normalisation of the operator, and the hops of the features.

        Returns:
            The operator and the features; `hops` is 0 if the answer was not computed ahead.
        """
        if request in self.precomputed:
            return self.precomputed[request]
        if request not in self._formed:
            operator = normalised(self.adjacency, request.r, request.self_loops)
            self._formed[request] = Propagated(operator, [self.features])
        return self._formed[request]

    def with_edges(self, adjacency: sp.csr_matrix) -> "Federation":
        """Return a federation with the same rows and other edges.

        Args:
            adjacency: [N, N] float32 CSR, weights of the new edges.

        Returns:
            A copy in which no propagation is computed ahead.
        """
        return replace(self, adjacency=adjacency, precomputed={})
