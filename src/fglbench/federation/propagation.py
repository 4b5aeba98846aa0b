"""Answers to propagation requests: normalised operators and propagated features.

Preprocessing computes each answer once. If a method changes the graphs, the answer is computed during training. Dense
features are propagated once, before training. Propagation would make sparse features dense. The engine therefore
propagates the product of the features and the weights, which gives the same result: (A X) W = A (X W). If there are
several hops and few columns, it is faster to propagate sparse features before training (`worth_propagating`). The
request of a backbone can forbid this (`fill: False`). A backbone whose hops share their weights does so, because it
needs only one product, which it propagates hop by hop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy.sparse as sp

from fglbench.settings import Propagation

if TYPE_CHECKING:  # the import would load torch
    from fglbench.federation.partly_dense import PartlyDense

Features: TypeAlias = "np.ndarray | sp.csr_matrix | PartlyDense"

_MOST_FILLED_BYTES = 2**30
_DENSE_PER_SPARSE = 4  # dense entries that a product reads in the time of one sparse entry, on a CPU


@dataclass(frozen=True)
class Propagated:
    """The answer to a `Propagation` request on a block-diagonal graph of N nodes.

    Attributes:
        operator: [N, N] float32 CSR, A.
        features: matrices [N, num_features] float32 that the first linear map multiplies. This is one matrix, X or the
            result of `combine`; for "each" with hops computed ahead, the matrices are X, A X, ..., A^hops X.
        hops: number of applications of A that are already computed.
    """

    operator: sp.csr_matrix
    features: Sequence[Features]
    hops: int = 0


def normalised(adjacency: sp.csr_matrix, r: float, self_loops: bool = True) -> sp.csr_matrix:
    """Compute D^(r-1) (A + I) D^(-r), where D are the degrees with self-loops.

    Args:
        adjacency: [N, N] symmetric weights, not negative, no self-loops.
        r: kernel coefficient in [0, 1]; 0.5 is symmetric; 0 averages over neighbours and self-loop.
        self_loops: False computes D^(r-1) A D^(-r) with the degrees of A; rows without edges are then zero.

    Returns:
        [N, N] float32 CSR.
    """
    looped = adjacency
    if self_loops:
        looped = (adjacency + sp.eye(adjacency.shape[0], dtype=np.float32, format="csr")).tocsr()
    degree = np.asarray(looped.sum(axis=1)).ravel().astype(np.float64)
    degree[degree == 0] = 1.0  # rows without edges
    rows = np.repeat(degree ** (r - 1.0), np.diff(looped.indptr))
    values = (rows * looped.data * (degree**-r)[looped.indices]).astype(np.float32)
    return sp.csr_matrix((values, looped.indices, looped.indptr), shape=looped.shape)


def worth_propagating(
    features: np.ndarray | sp.csr_matrix, operator: sp.csr_matrix, rows: int, request: Propagation
) -> bool:
    """Return whether features should be propagated ahead of training.

    Otherwise every step propagates their product with the weights. Dense features are always propagated ahead. Sparse
    features are never propagated ahead if `request.fill` is False, for a single hop, or if the result exceeds 1 GiB. In
    all other cases the costs of a step are compared. Without propagation ahead, a step reads nearly every sparse entry,
    and the operator once for each hop. With it, a step reads the dense rows of the training nodes, where an entry costs
    about a quarter of a sparse one.

    Args:
        features: [nodes, num_features], of the client nodes or of the whole graph.
        operator: [N, N] CSR of the client nodes.
        rows: number of training nodes.
        request: propagation request of the backbone.

    Returns:
        True to propagate ahead of training.
    """
    if isinstance(features, np.ndarray):
        return True
    if not request.fill:
        return False
    columns, hops = features.shape[1], request.hops
    size_bytes = 4 * columns * operator.shape[0] * (hops if request.combine == "each" else 1)
    entries = features.nnz + hops * operator.nnz
    return hops > 1 and rows * columns < _DENSE_PER_SPARSE * entries and size_bytes <= _MOST_FILLED_BYTES


def propagated_features(x: np.ndarray, operator: sp.csr_matrix, request: Propagation) -> np.ndarray:
    """Compute the propagated features that a request asks for.

    Args:
        x: [N, num_features] float32.
        operator: [N, N] float32 CSR, A.
        request: number of hops, and how they are combined.

    Returns:
        [N, num_features] float32; for "each" [hops, N, num_features]: A X, ..., A^hops X.
    """
    combine, hops = request.combine, request.hops
    if combine == "each":
        filled = np.empty((hops, *x.shape), dtype=np.float32)
        for hop in range(hops):
            filled[hop] = operator @ (filled[hop - 1] if hop else x)
        return filled
    total = None if combine == "last" else np.float32(combine[0]) * x
    for hop in range(1, hops + 1):
        x = operator @ x
        if total is not None:
            total += np.float32(combine[hop]) * x
    return x if total is None else total
