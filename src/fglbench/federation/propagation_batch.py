"""Batches of propagation: the rows of some clients that the outputs of a forward pass depend on."""

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

    Level 0 contains the rows after the first linear map. Propagation l leads from level l to level l + 1. The last
    level contains the output rows. The first linear map acts on propagated features A^l X with l up to `hops`. If
    preprocessing did not compute the hops, they are applied after the multiplication by the weights W, since
    (A^l X) W = A^l (X W). `lead` holds the operators of these hops.

    Attributes:
        clients: [S] int64 client ids of the federation.
        features: one matrix, or one per hop if preprocessing computed them. Each is a tensor [rows, num_features]
            float32, a sparse operator [rows, S * num_features] whose columns are offset by client so that it multiplies
            the stacked weights, or a `PartlyDenseRows`, which has rows of both kinds.
        feature_ptr: [S + 1] boundaries of the feature rows by client.
        combine: how the first map combines the hops, see `Propagation`.
        lead: operators of the first map that are still to be applied.
        operators: one for each propagation after the first map.
        ptrs: [S + 1] boundaries of the rows by client, for each level from 0.
        targets: [outputs] int64 positions of the output rows in the federation.
        labels: [outputs] int64 labels of the output rows.
        client_mean: [S, outputs] operator that averages output rows per client.
        levels: ascending row numbers of every level, those of `lead` first; each level contains the next one. Rows are
            numbered among all rows of `clients`.
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
        """Apply the first linear map to the combined hops.

        The result is (A^hops X) W, or with coefficients c the sum over l of c_l (A^l X) W.

        Args:
            weight: W, [S, num_features, out] float32.

        Returns:
            [rows of level 0, out] float32.
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
        """Apply the first linear map to every hop.

        Args:
            weights: W_l [S, num_features, out] for each hop from 0, or a single W for all of them.

        Returns:
            (A^l X) W_l for each hop l from 0, [rows of level 0, out] float32 each.
        """
        hops = range(len(self.lead) + 1 if self.lead else len(self.features))
        if not self.lead:
            return [self._times(hop, weights[hop % len(weights)]) for hop in hops]
        maps = []
        product = self._times(0, weights[0])
        for hop in hops:
            if hop and len(weights) > 1:
                product = self._times(0, weights[hop])
                for operator in self.lead[:hop]:
                    product = operator @ product
            elif hop:
                product = self.lead[hop - 1] @ product
            maps.append(self._select(product, hop, len(self.lead)))
        return maps

    def _times(self, hop: int, weight: Tensor) -> Tensor:
        return times(self.features[hop], weight, self.feature_ptr)

    def linear(self, x: Tensor, weight: Tensor, level: int) -> Tensor:
        """Multiply each client's rows by that client's weights.

        Args:
            x: [rows of level, in] float32.
            weight: [S, in, out] float32.
            level: level of the rows.

        Returns:
            [rows of level, out] float32.
        """
        return stacked_linear(x, weight, self.ptrs[level])

    def bias(self, x: Tensor, bias: Tensor, level: int) -> Tensor:
        """Add each client's bias to its rows.

        Args:
            x: [rows of level, out] float32.
            bias: [S, out] float32.
            level: level of the rows.

        Returns:
            [rows of level, out] float32.
        """
        return stacked_bias(x, bias, self.ptrs[level])

    def propagate(self, x: Tensor, level: int) -> Tensor:
        """Propagate from a level to the next one.

        Args:
            x: [rows of level, width] float32.
            level: level of the rows.

        Returns:
            [rows of level + 1, width] float32.
        """
        return self.operators[level] @ x

    def target_rows(self, x: Tensor, level: int) -> Tensor:
        """Select the rows of a level that are also in the next level.

        Args:
            x: [rows of level, width] float32.
            level: level of the rows.

        Returns:
            [rows of level + 1, width] float32.
        """
        return self._select(x, len(self.lead) + level, len(self.lead) + level + 1)

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        """Select the output rows from the rows of a level.

        Args:
            x: [rows of level, width] float32.
            level: level of the rows.

        Returns:
            [outputs, width] float32.
        """
        for inner in range(level, len(self.operators)):
            x = self.target_rows(x, inner)
        return x

    def edges(self, level: int, heads: int) -> tuple[Edges, list[int]]:
        """Return the edges from the rows of a level to the rows of the next one, for attention.

        Args:
            level: level of the sources.
            heads: number of heads.

        Returns:
            The edges of all heads, and the boundaries [S + 1] of the edges of one head by client.
        """
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
    """Build the batch for a forward pass over some clients; its cost depends on these clients alone.

    Args:
        federation: the client graphs.
        request: the operator, and the features of the first linear map.
        clients: [S] ascending client ids, at least one.
        hops: applications of the operator in the first linear map.
        propagations: applications of the operator after the first linear map.
        targets: [outputs] int64 ascending positions of the output rows in the federation, all of them in `clients`;
            None for all rows. Fewer targets have a smaller receptive field, and their outputs are exact.
        draw_neighbours: replaces the operator of each propagation. It receives the operator [targets, rows of the
            clients], `clients`, and the boundaries [S + 1] of the targets by client. None keeps the operator.
        whole: True keeps all rows of the clients below the output rows; False keeps only those that the outputs depend
            on.
        device: device of the batch's tensors.

    Returns:
        The batch, with one level for each propagation that is still to be applied, and one for the output rows.
    """
    clients = np.asarray(clients, dtype=np.int64)
    propagated = federation.propagated(request)
    members, block = _members(federation, propagated.operator, clients)
    starts = np.concatenate([[0], np.cumsum(federation.ptr[clients + 1] - federation.ptr[clients])])

    def boundaries(rows: np.ndarray) -> list[int]:
        positions: list[int] = np.searchsorted(rows, starts).tolist()
        return positions

    levels = [np.arange(len(members)) if targets is None else np.searchsorted(members, targets)]
    operators: list[SparseOperator] = []
    for _ in range(propagations + hops - propagated.hops):
        reached = levels[0]
        if operators and draw_neighbours is None and len(reached) == len(levels[1]):
            sources, operator = reached, operators[0]  # the rows are the same as one level above
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
        features=[feature_rows(matrix, members[levels[0]], ptrs[0], device) for matrix in propagated.features],
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
    """Return the rows of some clients, and the operator among them with rows and columns counted from 0."""
    if len(clients) == federation.num_clients:
        return np.arange(len(federation.labels)), operator
    ptr, indptr = federation.ptr, operator.indptr
    members = federation.rows_of(clients)
    offsets = members - np.arange(len(members))  # subtracted from row and column numbers
    sizes = np.concatenate([np.diff(indptr[ptr[client] : ptr[client + 1] + 1]) for client in clients])
    entries = [slice(indptr[ptr[client]], indptr[ptr[client + 1]]) for client in clients]
    data, indices = (
        np.concatenate([values[entry] for entry in entries]) for values in (operator.data, operator.indices)
    )
    indices = indices - np.repeat(offsets, sizes).astype(indices.dtype)
    arrays = (data, indices, np.concatenate([[0], np.cumsum(sizes)]))
    return members, sp.csr_matrix(arrays, shape=(len(members), len(members)))


def _step(
    part: sp.csr_matrix, targets: np.ndarray, whole: bool, device: torch.device | str
) -> tuple[np.ndarray, SparseOperator]:
    """Return the rows that one propagation to `targets` reads (or all rows), and its operator on these rows."""
    read = np.full(part.shape[1], whole)
    read[targets] = read[part.indices] = True
    sources = np.flatnonzero(read)
    return sources, SparseOperator(part if len(sources) == part.shape[1] else part[:, sources], device)
