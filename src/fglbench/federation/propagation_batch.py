"""What one forward pass of a propagating model computes on: some clients' rows, down to those its outputs depend on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglbench.federation.attention import Edges
from fglbench.federation.features import FeatureRows, feature_rows, times
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, client_means, selection, stacked_bias, stacked_linear
from fglbench.settings import Combine, Propagation

DrawNeighbours: TypeAlias = Callable[[sp.csr_matrix, np.ndarray, list[int]], sp.csr_matrix]


@dataclass(frozen=True)
class PropagationBatch:
    """Rows of some clients by levels of propagation.

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
        combine: how hops enter the first map, see `Propagation`.
        lead: operators of the first map still to apply.
        operators: one per propagation after the first map.
        ptrs: row boundaries of each level.
        targets: [outputs] int64 positions of the output rows in the federation.
        labels: [outputs] int64.
        client_mean: [S, outputs] operator that averages output rows per client.
        levels: rows of every level, those of `lead` first, ascending; each contains the next.
    """

    clients: np.ndarray
    features: list[FeatureRows]
    feature_ptr: list[int]
    combine: Combine
    lead: list[SparseOperator]
    operators: list[SparseOperator]
    ptrs: list[list[int]]
    targets: Tensor
    labels: Tensor
    client_mean: SparseOperator
    levels: list[np.ndarray]
    _selections: dict[tuple[int, int], SparseOperator] = field(default_factory=dict)
    _edges: dict[tuple[int, int], Edges] = field(default_factory=dict)

    @property
    def target_ptr(self) -> list[int]:
        """[S + 1] boundaries of the output rows by client."""
        return self.ptrs[-1]

    def input_linear(self, weight: Tensor) -> Tensor:
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

    def input_linear_per_hop(self, weights: Sequence[Tensor]) -> list[Tensor]:
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
        return times(self.features[hop], weight, self.feature_ptr)

    def linear(self, x: Tensor, weight: Tensor, level: int) -> Tensor:
        """Each client's rows times its weights: [rows of level, in] x [S, in, out] -> [rows of level, out]."""
        return stacked_linear(x, weight, self.ptrs[level])

    def bias(self, x: Tensor, bias: Tensor, level: int) -> Tensor:
        """Adds each client's bias [S, out] to its rows [rows of level, out]."""
        return stacked_bias(x, bias, self.ptrs[level])

    def propagate(self, x: Tensor, level: int) -> Tensor:
        """The operator from level to level + 1: [rows of level, width] -> [rows of level + 1, width]."""
        return self.operators[level] @ x

    def target_rows(self, x: Tensor, level: int) -> Tensor:
        """Of [rows of level, width] the rows that level + 1 has as well: [rows of level + 1, width]."""
        return self._select(x, len(self.lead) + level, len(self.lead) + level + 1)

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        """Of [rows of level, width] the rows of the targets."""
        for inner in range(level, len(self.operators)):
            x = self.target_rows(x, inner)
        return x

    def edges(self, level: int, heads: int) -> tuple[Edges, list[int]]:
        """Who level + 1 reads at level, once for each head, and the boundaries by client of one head's edges."""
        operator = self.operators[level]
        if (id(operator), heads) not in self._edges:
            self._edges[id(operator), heads] = Edges(operator.matrix, heads, self.targets.device)
        return self._edges[id(operator), heads], operator.matrix.indptr[self.ptrs[level + 1]].tolist()

    def _select(self, x: Tensor, outer: int, inner: int) -> Tensor:
        rows, kept = self.levels[outer], self.levels[inner]
        if len(rows) == len(kept):
            return x
        if (outer, inner) not in self._selections:
            self._selections[outer, inner] = selection(np.searchsorted(rows, kept), len(rows), x.device)
        return self._selections[outer, inner] @ x.contiguous()


def propagation_batch(
    federation: Federation,
    request: Propagation,
    clients: Sequence[int] | np.ndarray,
    hops: int,
    propagations: int,
    targets: np.ndarray | None = None,
    *,
    draw_neighbours: DrawNeighbours | None = None,
    whole: bool = False,
    device: torch.device | str = "cpu",
) -> PropagationBatch:
    """The rows that a forward pass over some clients needs; the cost depends on those clients alone.

    Args:
        federation: the client graphs.
        request: the operator, and the features of the first linear map.
        clients: ascending client ids, at least one.
        hops: applications of the operator in the first linear map.
        propagations: applications after it.
        targets: ascending positions in the federation of the output rows, all of them of `clients`; None: all rows.
            Fewer of them have a smaller receptive field, which is exact.
        draw_neighbours: gives the operator to use instead of the one it is given, [targets, rows of the clients], with
            `clients` and the row boundaries of the targets by client.
        whole: keep all rows of the clients below the output rows, not those alone that these depend on.
        device: where the batch's tensors live.
    """
    clients = np.asarray(clients, dtype=np.int64)
    made = federation.propagated(request)
    members, block = _members(federation, made.operator, clients)
    starts = np.concatenate([[0], np.cumsum(federation.ptr[clients + 1] - federation.ptr[clients])])

    def boundaries(rows: np.ndarray) -> list[int]:
        return np.searchsorted(rows, starts).tolist()

    levels = [np.arange(len(members)) if targets is None else np.searchsorted(members, targets)]
    operators: list[SparseOperator] = []
    for _ in range(propagations + hops - made.hops):
        reached = levels[0]
        if operators and draw_neighbours is None and len(reached) == len(levels[1]):
            sources, operator = reached, operators[0]  # the same rows as a level above
        else:
            part = block if len(reached) == len(members) else block[reached]
            if draw_neighbours is not None:
                part = draw_neighbours(part, clients, boundaries(reached))
            sources, operator = _step(part, reached, whole, device)
        levels.insert(0, sources)
        operators.insert(0, operator)
    lead = len(operators) - propagations
    ptrs = [boundaries(rows) for rows in levels]
    output = members[levels[-1]]
    return PropagationBatch(
        clients=clients,
        features=[feature_rows(matrix, members[levels[0]], ptrs[0], device) for matrix in made.features],
        feature_ptr=ptrs[0],
        combine=request.combine,
        lead=operators[:lead],
        operators=operators[lead:],
        ptrs=ptrs[lead:],
        targets=torch.from_numpy(output).to(device),
        labels=torch.from_numpy(federation.labels[output]).to(device),
        client_mean=client_means(ptrs[-1], device),
        levels=levels,
    )


def _members(federation: Federation, operator: sp.csr_matrix, clients: np.ndarray) -> tuple[np.ndarray, sp.csr_matrix]:
    """The rows of some clients, and the operator among them with its rows and columns counted from 0."""
    if len(clients) == federation.num_clients:
        return np.arange(len(federation.labels)), operator
    ptr, indptr = federation.ptr, operator.indptr
    members = federation.rows_of(clients)
    offsets = members - np.arange(len(members))  # how far each row, and each column it names, moves up
    sizes = np.concatenate([np.diff(indptr[ptr[client] : ptr[client + 1] + 1]) for client in clients])
    entries = [slice(indptr[ptr[client]], indptr[ptr[client + 1]]) for client in clients]
    data, indices = (
        np.concatenate([values[entry] for entry in entries]) for values in (operator.data, operator.indices)
    )
    indices = indices - np.repeat(offsets, sizes).astype(indices.dtype)
    parts_of = (data, indices, np.concatenate([[0], np.cumsum(sizes)]))
    return members, sp.csr_matrix(parts_of, shape=(len(members), len(members)))


def _step(
    part: sp.csr_matrix, targets: np.ndarray, whole: bool, device: torch.device | str
) -> tuple[np.ndarray, SparseOperator]:
    """The rows that one propagation to `targets` reads, themselves included (or all), and its operator on those."""
    read = np.full(part.shape[1], whole)
    read[targets] = read[part.indices] = True
    sources = np.flatnonzero(read)
    return sources, SparseOperator(part if len(sources) == part.shape[1] else part[:, sources], device)
