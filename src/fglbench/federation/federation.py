"""The federation: the client subgraphs as one block-diagonal graph, and the views of it that a model computes on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglbench.federation.attention import Edges
from fglbench.federation.operators import SparseOperator, client_means, selection, stacked_bias, stacked_linear
from fglbench.federation.partly_dense import PartlyDense, PartlyDenseRows

TRAIN, VAL, TEST = 1, 2, 3

Features: TypeAlias = np.ndarray | sp.csr_matrix | PartlyDense
Combine: TypeAlias = Literal["last", "each"] | tuple[float, ...]
Sampler: TypeAlias = Callable[[sp.csr_matrix, np.ndarray, list[int]], sp.csr_matrix]


@dataclass(frozen=True)
class View:
    """What one forward pass needs: the rows of some clients, down to those the wanted outputs depend on.

    Level 0 are the rows after the first linear map; propagation l leads from level l to level l + 1; the last level
    are the output rows. The first map acts on propagated features A^l X, l up to `hops`. Those that preprocessing did
    not compute are not formed here either: (A^l X) W = A^l (X W), so the rest of the propagation (`lead`) is applied
    after the multiplication by W.

    Attributes:
        clients: [S] int64 client ids of the federation.
        features: one matrix, or one per hop where preprocessing made them; each [rows, num_features] float32, or a
            sparse operator [rows, S * num_features] whose columns are offset by client so that it multiplies the
            stacked weights, or some rows of one and some of the other kind.
        feature_ptr: [S + 1] row boundaries of the features.
        combine: how hops enter the first map, see `Federation`.
        lead: operators of the first map still to apply.
        operators: one per propagation after the first map.
        ptrs: row boundaries of each level.
        rows: [outputs] int64 positions of the output rows in the federation.
        labels: [outputs] int64.
        client_mean: [S, outputs] operator that averages output rows per client.
        levels: rows of every level, those of `lead` first, ascending; each contains the next.
    """

    clients: np.ndarray
    features: list[Tensor | SparseOperator | PartlyDenseRows]
    feature_ptr: list[int]
    combine: Combine
    lead: list[SparseOperator]
    operators: list[SparseOperator]
    ptrs: list[list[int]]
    rows: Tensor
    labels: Tensor
    client_mean: SparseOperator
    levels: list[np.ndarray]
    _selections: dict[tuple[int, int], SparseOperator] = field(default_factory=dict)
    _edges: dict[tuple[int, int], Edges] = field(default_factory=dict)

    def first(self, weight: Tensor) -> Tensor:
        """The first map on one matrix: [S, num_features, out] -> [rows of level 0, out].

        (A^hops X) W, or with coefficients c the sum over l of c_l (A^l X) W.
        """
        product = self._times(0, weight)
        if isinstance(self.combine, tuple) and self.lead:
            out = self.combine[-1] * product
            for step, coefficient in enumerate(reversed(self.combine[:-1])):
                out = self.lead[step] @ out + coefficient * self._select(product, 0, step + 1)
            return out
        for operator in self.lead:
            product = operator @ product
        return product

    def each(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """The first map on every hop: the list of (A^l X) W_l, [rows of level 0, out] each.

        Args:
            weights: W_l [S, num_features, out] for each hop from 0, or a single W for all of them.
        """
        hops = range(len(self.lead) + 1 if self.lead else len(self.features))
        if not self.lead:
            return [self._times(hop, weights[hop % len(weights)]) for hop in hops]
        found = []
        product = self._times(0, weights[0])
        for hop in hops:
            if hop and len(weights) > 1:
                product = self._times(0, weights[hop])
                for operator in self.lead[:hop]:
                    product = operator @ product
            elif hop:
                product = self.lead[hop - 1] @ product
            found.append(self._select(product, hop, len(self.lead)))
        return found

    def _times(self, hop: int, weight: Tensor) -> Tensor:
        features = self.features[hop]
        if isinstance(features, SparseOperator):
            return features @ weight.reshape(-1, weight.shape[2])
        if isinstance(features, PartlyDenseRows):
            return features.times(weight)
        return stacked_linear(features, weight, self.feature_ptr)

    def linear(self, x: Tensor, weight: Tensor, level: int) -> Tensor:
        """Each client's rows times its weights: [rows of level, in] x [S, in, out] -> [rows of level, out]."""
        return stacked_linear(x, weight, self.ptrs[level])

    def bias(self, x: Tensor, bias: Tensor, level: int) -> Tensor:
        """Adds each client's bias [S, out] to its rows [rows of level, out]."""
        return stacked_bias(x, bias, self.ptrs[level])

    def propagate(self, x: Tensor, level: int) -> Tensor:
        """The operator from level to level + 1: [rows of level, width] -> [rows of level + 1, width]."""
        return self.operators[level] @ x

    def own(self, x: Tensor, level: int) -> Tensor:
        """Of [rows of level, width] the rows that level + 1 has as well: [rows of level + 1, width]."""
        return self._select(x, len(self.lead) + level, len(self.lead) + level + 1)

    def edges(self, level: int, heads: int) -> tuple[Edges, list[int]]:
        """Who level + 1 reads at level, once for each head, and the boundaries by client of one head's edges."""
        operator = self.operators[level]
        if (id(operator), heads) not in self._edges:
            self._edges[id(operator), heads] = Edges(operator.matrix, heads, self.rows.device)
        return self._edges[id(operator), heads], operator.matrix.indptr[self.ptrs[level + 1]].tolist()

    def _select(self, x: Tensor, outer: int, inner: int) -> Tensor:
        rows, kept = self.levels[outer], self.levels[inner]
        if len(rows) == len(kept):
            return x
        if (outer, inner) not in self._selections:
            self._selections[outer, inner] = selection(np.searchsorted(rows, kept), len(rows), x.device)
        return self._selections[outer, inner] @ x.contiguous()


@dataclass(frozen=True)
class Federation:
    """C client subgraphs as one block-diagonal graph of N nodes; no edge joins two clients.

    Attributes:
        ptr: [C + 1] int64; rows ptr[c]:ptr[c + 1] belong to client c.
        labels: [N] int64, -1 where a node has none.
        role: [N] int8: 0 none, 1 train, 2 validation, 3 test.
        classes: number of classes.
        operator: [N, N] float32 CSR, the normalised block-diagonal adjacency A that the backbone asked for.
        features: [N, num_features] float32, dense, CSR or partly dense: X, or what `combine` makes of it where
            `propagated` says so.
        propagated: how many applications of the operator preprocessing has made.
        combine: how the hops of the first map are combined: "last" (A^hops X), "each" (every A^l X for itself), or
            coefficients c (sum over l of c_l A^l X).
        hop_features: A X, A^2 X, ..., `propagated` of them, [N, num_features] float32 each; with "each" and propagated
            above 0.
        nodes: [N] int64 global ids of the rows; None where every row is a node of its own.
        copy: [N] bool: rows of nodes that another client owns; None where nodes have no owners.
        given: ascending positions of the rows that are predicted and scored, where a method added others (of role 0);
            None: all.
        evaluated: under the inductive setting, in which this graph lacks the validation and test nodes, the same
            clients' whole graphs; None: this graph is whole.
    """

    ptr: np.ndarray
    labels: np.ndarray
    role: np.ndarray
    classes: int
    operator: sp.csr_matrix
    features: Features
    propagated: int = 0
    combine: Combine = "last"
    hop_features: Sequence[Features] | None = None
    nodes: np.ndarray | None = None
    copy: np.ndarray | None = None
    given: np.ndarray | None = None
    evaluated: "Federation | None" = None

    @property
    def scored(self) -> "Federation":
        """The client graphs that models predict and are scored on."""
        return self.evaluated or self

    @property
    def num_clients(self) -> int:
        return len(self.ptr) - 1

    @cached_property
    def client_of(self) -> np.ndarray:
        """[N] int64: the client of each row."""
        return np.repeat(np.arange(self.num_clients), np.diff(self.ptr))

    def count(self, role: int) -> np.ndarray:
        """[C] int64: nodes of that role per client."""
        return np.bincount(self.client_of[self.role == role], minlength=self.num_clients)

    def view(
        self,
        clients: Sequence[int] | np.ndarray,
        hops: int,
        propagations: int,
        *,
        training: bool,
        outputs: np.ndarray | None = None,
        sampler: Sampler | None = None,
        device: torch.device | str = "cpu",
    ) -> View:
        """The rows that a forward pass over some clients needs; the cost depends on those clients alone.

        Args:
            clients: ascending client ids, at least one.
            hops: applications of the operator in the first linear map.
            propagations: applications after it.
            training: outputs are the training nodes (receptive field of the loss: exact, fewer rows), else all nodes.
            outputs: ascending positions in the federation of other output rows, all of them of `clients`.
            sampler: gives the operator to use instead of the one it is given, [targets, rows of the clients], with
                `clients` and the row boundaries of the targets by client.
            device: where the view's tensors live.
        """
        clients = np.asarray(clients, dtype=np.int64)
        members, block = self._members(clients)
        starts = np.concatenate([[0], np.cumsum(self.ptr[clients + 1] - self.ptr[clients])])
        if outputs is not None:
            wanted = np.searchsorted(members, outputs)
        else:
            wanted = np.flatnonzero(self.role[members] == TRAIN) if training else np.arange(len(members))

        def boundaries(rows: np.ndarray) -> list[int]:
            return np.searchsorted(rows, starts).tolist()

        levels = [wanted]
        operators: list[SparseOperator] = []
        for _ in range(propagations + hops - self.propagated):
            targets = levels[0]
            if operators and sampler is None and len(targets) == len(levels[1]):
                sources, operator = targets, operators[0]  # the same rows as a level above
            else:
                part = block if len(targets) == len(members) else block[targets]
                if sampler is not None:
                    part = sampler(part, clients, boundaries(targets))
                sources, operator = _step(part, targets, device)
            levels.insert(0, sources)
            operators.insert(0, operator)
        lead = len(operators) - propagations
        ptrs = [boundaries(rows) for rows in levels]
        output = members[levels[-1]]
        return View(
            clients=clients,
            features=[_rows_of(matrix, members[levels[0]], ptrs[0], device) for matrix in self._matrices()],
            feature_ptr=ptrs[0],
            combine=self.combine,
            lead=operators[:lead],
            operators=operators[lead:],
            ptrs=ptrs[lead:],
            rows=torch.from_numpy(output).to(device),
            labels=torch.from_numpy(self.labels[output]).to(device),
            client_mean=client_means(ptrs[-1], device),
            levels=levels,
        )

    def _matrices(self) -> list[Features]:
        return [self.features, *(() if self.hop_features is None else self.hop_features)]

    def _members(self, clients: np.ndarray) -> tuple[np.ndarray, sp.csr_matrix]:
        """The rows of some clients, and the operator among them with its rows and columns counted from 0."""
        if len(clients) == self.num_clients:
            return np.arange(len(self.labels)), self.operator
        members = np.concatenate([np.arange(self.ptr[client], self.ptr[client + 1]) for client in clients])
        offsets = members - np.arange(len(members))  # how far each row, and each column it names, moves up
        indptr = self.operator.indptr
        sizes = np.concatenate([np.diff(indptr[self.ptr[client] : self.ptr[client + 1] + 1]) for client in clients])
        entries = [slice(indptr[self.ptr[client]], indptr[self.ptr[client + 1]]) for client in clients]
        data, indices = (
            np.concatenate([values[entry] for entry in entries])
            for values in (self.operator.data, self.operator.indices)
        )
        indices = indices - np.repeat(offsets, sizes).astype(indices.dtype)
        parts_of = (data, indices, np.concatenate([[0], np.cumsum(sizes)]))
        return members, sp.csr_matrix(parts_of, shape=(len(members), len(members)))


def _step(part: sp.csr_matrix, targets: np.ndarray, device: torch.device | str) -> tuple[np.ndarray, SparseOperator]:
    """The rows that one propagation to `targets` reads, themselves included, and its operator on those."""
    read = np.zeros(part.shape[1], dtype=bool)
    read[targets] = read[part.indices] = True
    sources = np.flatnonzero(read)
    return sources, SparseOperator(part if len(sources) == part.shape[1] else part[:, sources], device)


def _rows_of(
    features: Features, rows: np.ndarray, ptr: list[int], device: torch.device | str
) -> Tensor | SparseOperator | PartlyDenseRows:
    """The rows of a feature matrix, grouped by client with boundaries `ptr`, ready to multiply stacked weights."""
    if isinstance(features, np.ndarray):
        contiguous = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
        taken = features[rows[0] : rows[-1] + 1] if contiguous else features[rows]  # a slice costs no memory
        return torch.from_numpy(taken).to(device)
    own = features if len(rows) == features.shape[0] else features[rows]
    if isinstance(own, PartlyDense):
        dense = torch.from_numpy(own.dense).to(device)
        return PartlyDenseRows.of(_offset_by_client(own.sparse, ptr, device), dense, own.places, ptr)
    return _offset_by_client(own, ptr, device)


def _offset_by_client(rows: sp.csr_matrix, ptr: list[int], device: torch.device | str) -> SparseOperator:
    width = rows.shape[1]
    entries = [int(rows.indptr[stop] - rows.indptr[start]) for start, stop in pairwise(ptr)]
    offset = np.repeat(np.arange(len(entries)) * width, entries)
    parts = (rows.data, rows.indices + offset, rows.indptr)
    return SparseOperator(sp.csr_matrix(parts, shape=(rows.shape[0], len(entries) * width)), device)
