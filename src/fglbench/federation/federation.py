"""The federation: the client subgraphs as one block-diagonal graph, and the views of it that a model computes on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglbench.federation.operators import SparseOperator, stacked_bias, stacked_linear

TRAIN, VAL, TEST = 1, 2, 3


@dataclass(frozen=True)
class View:
    """What one forward pass needs: the rows of some clients, down to those the wanted outputs depend on.

    Level 0 are the rows after the first linear map; propagation l leads from level l to level l + 1; the last level
    are the output rows. The first map is (A^hops X) W: as much of A^hops X as pays was computed in preprocessing, the
    rest (`lead`) is applied after the multiplication by W.

    Attributes:
        clients: [S] int64 client ids of the federation.
        features: [rows, num_features] float32, or a sparse operator [rows, S * num_features] whose columns are offset
            by client so that it multiplies the stacked weights.
        feature_ptr: [S + 1] row boundaries of the features.
        lead: operators of the first map still to apply.
        operators: one per propagation after the first map.
        ptrs: row boundaries of each level.
        rows: [outputs] int64 positions of the output rows in the federation.
        labels: [outputs] int64.
        client_mean: [S, outputs] operator that averages output rows per client.
    """

    clients: np.ndarray
    features: Tensor | SparseOperator
    feature_ptr: list[int]
    lead: list[SparseOperator]
    operators: list[SparseOperator]
    ptrs: list[list[int]]
    rows: Tensor
    labels: Tensor
    client_mean: SparseOperator

    def first(self, weight: Tensor) -> Tensor:
        """(A^hops X) W with each client's own weights: [S, num_features, out] -> [rows of level 0, out]."""
        if isinstance(self.features, SparseOperator):
            out = self.features @ weight.reshape(-1, weight.shape[2])
        else:
            out = stacked_linear(self.features, weight, self.feature_ptr)
        for operator in self.lead:
            out = operator @ out
        return out

    def linear(self, x: Tensor, weight: Tensor, level: int) -> Tensor:
        """Each client's rows times its weights: [rows of level, in] x [S, in, out] -> [rows of level, out]."""
        return stacked_linear(x, weight, self.ptrs[level])

    def bias(self, x: Tensor, bias: Tensor, level: int) -> Tensor:
        """Adds each client's bias [S, out] to its rows [rows of level, out]."""
        return stacked_bias(x, bias, self.ptrs[level])

    def propagate(self, x: Tensor, level: int) -> Tensor:
        """The normalised adjacency from level to level + 1: [rows of level, width] -> [rows of level + 1, width]."""
        return self.operators[level] @ x


@dataclass(frozen=True)
class Federation:
    """C client subgraphs as one block-diagonal graph of N nodes; no edge joins two clients.

    Attributes:
        ptr: [C + 1] int64; rows ptr[c]:ptr[c + 1] belong to client c.
        labels: [N] int64, -1 where a node has none.
        role: [N] int8: 0 none, 1 train, 2 validation, 3 test.
        classes: number of classes.
        operator: [N, N] float32 CSR, the normalised block-diagonal adjacency with self-loops.
        features: [N, num_features] float32, dense or CSR, after `propagated` applications of the operator.
        propagated: how many applications are contained in `features`.
    """

    ptr: np.ndarray
    labels: np.ndarray
    role: np.ndarray
    classes: int
    operator: sp.csr_matrix
    features: np.ndarray | sp.csr_matrix
    propagated: int = 0

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
        device: torch.device | str = "cpu",
    ) -> View:
        """The rows that a forward pass over some clients needs.

        Args:
            clients: ascending client ids.
            hops: applications of the operator in the first linear map.
            propagations: applications after it.
            training: outputs are the training nodes (receptive field of the loss: exact, fewer rows), else all nodes.
            device: where the view's tensors live.
        """
        clients = np.asarray(clients, dtype=np.int64)
        chosen = np.zeros(self.num_clients, dtype=bool)
        chosen[clients] = True
        wanted = chosen[self.client_of] & ((self.role == TRAIN) if training else True)
        levels = [np.flatnonzero(wanted)]
        operators: list[SparseOperator] = []
        for _ in range(propagations + hops - self.propagated):
            sources, operator = self._step(levels[0], device, operators[0] if operators else None, levels)
            levels.insert(0, sources)
            operators.insert(0, operator)
        lead = len(operators) - propagations
        local = np.searchsorted(clients, self.client_of)  # position in `clients`; read only for rows of chosen clients

        def boundaries(rows: np.ndarray) -> list[int]:
            return [0, *np.cumsum(np.bincount(local[rows], minlength=len(clients))).tolist()]

        ptrs = [boundaries(rows) for rows in levels]
        output = levels[-1]
        sizes = np.diff(ptrs[-1])
        averaging = sp.csr_matrix(
            (np.repeat(1.0 / np.maximum(sizes, 1), sizes).astype(np.float32), np.arange(len(output)), ptrs[-1]),
            shape=(len(clients), len(output)),
        )
        return View(
            clients=clients,
            features=self._features(levels[0], local[levels[0]], len(clients), device),
            feature_ptr=ptrs[0],
            lead=operators[:lead],
            operators=operators[lead:],
            ptrs=ptrs[lead:],
            rows=torch.from_numpy(output).to(device),
            labels=torch.from_numpy(self.labels[output]).to(device),
            client_mean=SparseOperator(averaging, device),
        )

    def _step(
        self,
        targets: np.ndarray,
        device: torch.device | str,
        above: SparseOperator | None,
        levels: list[np.ndarray],
    ) -> tuple[np.ndarray, SparseOperator]:
        """The rows that one propagation to `targets` reads, and its operator; shared with the level above if equal."""
        if above is not None and len(levels) > 1 and len(levels[0]) == len(levels[1]):
            return targets, above
        block = self.operator if len(targets) == len(self.labels) else self.operator[targets]
        read = np.zeros(len(self.labels), dtype=bool)
        read[targets] = read[block.indices] = True
        sources = np.flatnonzero(read)
        if len(sources) < len(self.labels):
            block = block[:, sources]
        return sources, SparseOperator(block, device)

    def _features(
        self, rows: np.ndarray, local: np.ndarray, clients: int, device: torch.device | str
    ) -> Tensor | SparseOperator:
        whole = len(rows) == len(self.labels)
        if isinstance(self.features, np.ndarray):
            # Rows of neighbouring clients are a slice, which costs no memory.
            contiguous = len(rows) > 0 and rows[-1] - rows[0] + 1 == len(rows)
            taken = self.features[rows[0] : rows[-1] + 1] if contiguous else self.features[rows]
            return torch.from_numpy(taken).to(device)
        taken = self.features if whole else self.features[rows]
        width = self.features.shape[1]
        offset = np.repeat(local.astype(np.int64) * width, np.diff(taken.indptr))
        matrix = sp.csr_matrix((taken.data, taken.indices + offset, taken.indptr), shape=(len(rows), clients * width))
        return SparseOperator(matrix, device)
