"""The federation: the client subgraphs as one block-diagonal graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from fglbench.evaluation.metrics import shares
from fglbench.federation.propagation import Features, Propagated, normalised
from fglbench.partition.links import Pairs
from fglbench.settings import Propagation


@dataclass(frozen=True)
class Federation:
    """C client subgraphs as one block-diagonal graph of N nodes; no edge joins two clients.

    Attributes:
        ptr: [C + 1] int64; rows ptr[c]:ptr[c + 1] belong to client c.
        labels: [N] int64, -1 where a node has none.
        role: [N] int8: 0 none, 1 train, 2 validation, 3 test.
        classes: number of classes.
        adjacency: [N, N] float32 CSR, symmetric weights of the edges, no self-loops.
        x: X, [N, num_features] float32, dense, CSR or partly dense; or what reads it on first use.
        made: answers to requests that preprocessing or a method has made ahead.
        nodes: [N] int64 global ids of the rows; None where every row is a node of its own.
        copy: [N] bool: rows of nodes that another client owns; None where nodes have no owners.
        original: ascending positions of the rows that are predicted and scored, where a method added others, which have
            role 0; None: all.
        pairs: what is scored where that is links; the edges among them are not in `adjacency`. Positions are those of
            the `original` rows.
        evaluated: under the inductive setting, in which this graph lacks the validation and test nodes, the same
            clients' whole graphs; None: this graph is whole.
    """

    ptr: np.ndarray
    labels: np.ndarray
    role: np.ndarray
    classes: int
    adjacency: sp.csr_matrix
    x: "Features | Callable[[], Features]"
    made: Mapping[Propagation, Propagated] = field(default_factory=dict)
    nodes: np.ndarray | None = None
    copy: np.ndarray | None = None
    original: np.ndarray | None = None
    pairs: Pairs | None = None
    evaluated: "Federation | None" = None

    @property
    def scored(self) -> "Federation":
        """The client graphs that models predict and are scored on."""
        return self.evaluated or self

    @property
    def num_clients(self) -> int:
        return len(self.ptr) - 1

    @cached_property
    def features(self) -> Features:
        """X, [N, num_features] float32."""
        return self.x() if callable(self.x) else self.x

    @property
    def num_features(self) -> int:
        made = next(iter(self.made.values()), None)
        return (made.features[0] if made else self.features).shape[1]

    @cached_property
    def client_of(self) -> np.ndarray:
        """[N] int64: the client of each row."""
        return np.repeat(np.arange(self.num_clients), np.diff(self.ptr))

    @cached_property
    def share(self) -> np.ndarray | None:
        """[N] float64: 1 / the number of clients that hold a row's node; None where no node is shared."""
        return None if self.nodes is None else shares(self.nodes)

    def count(self, role: int) -> np.ndarray:
        """[C] int64: nodes of that role per client."""
        return np.bincount(self.client_of[self.role == role], minlength=self.num_clients)

    def rows_of(self, clients: np.ndarray) -> np.ndarray:
        """The rows of some clients, one client after another."""
        return np.concatenate([np.arange(self.ptr[client], self.ptr[client + 1]) for client in clients])

    @cached_property
    def _formed(self) -> dict[Propagation, Propagated]:
        return {}

    def propagated(self, request: Propagation) -> Propagated:
        """The answer to a request: as it was made ahead, else formed once, with no hop made."""
        if request in self.made:
            return self.made[request]
        if request not in self._formed:
            operator = normalised(self.adjacency, request.r, request.self_loops)
            self._formed[request] = Propagated(operator, [self.features])
        return self._formed[request]

    def with_edges(self, adjacency: sp.csr_matrix) -> "Federation":
        """The same rows with other edges, [N, N] CSR weights, for which nothing is made ahead."""
        return replace(self, adjacency=adjacency, made={})
