"""Answers requests for operators and propagated features: in preprocessing once, or on graphs that a method changed.

Dense features are propagated ahead of training, once. Sparse ones would fill up, so the engine propagates their product
with the weights instead, which is the same by associativity; but for several hops it is faster to fill them up where
they have few columns (`worth_propagating`). A backbone whose hops share their weights is better served without
(`fill`): one product that is propagated once for each hop, against a product for each hop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy.sparse as sp

from fglbench.settings import Propagation

if TYPE_CHECKING:  # which imports torch
    from fglbench.federation.partly_dense import PartlyDense

Features: TypeAlias = "np.ndarray | sp.csr_matrix | PartlyDense"

_MOST_FILLED_BYTES = 2**30
_DENSE_PER_SPARSE = 4  # entries of dense matrices that a product reads in the time of one sparse entry, on a CPU


@dataclass(frozen=True)
class Propagated:
    """The answer to a `Propagation` request on a block-diagonal graph of N nodes.

    Attributes:
        operator: [N, N] float32 CSR, A.
        features: what the first linear map multiplies, [N, num_features] float32 each: one matrix, X or what `combine`
            makes of it; with "each" and hops made ahead X, A X, ..., A^hops X.
        hops: applications of A that are made.
    """

    operator: sp.csr_matrix
    features: Sequence[Features]
    hops: int = 0


def normalised(adjacency: sp.csr_matrix, r: float, self_loops: bool = True) -> sp.csr_matrix:
    """D^(r-1) (A + I) D^(-r), [N, N] float32 CSR; D are the degrees with self-loops.

    Args:
        adjacency: [N, N] symmetric weights, not negative, no self-loops.
        r: kernel coefficient in [0, 1]; 0.5 is symmetric, 0 averages over neighbours.
        self_loops: without them it is D^(r-1) A D^(-r) of the degrees without, and rows without edges are zero.
    """
    looped = adjacency
    if self_loops:
        looped = (adjacency + sp.eye(adjacency.shape[0], dtype=np.float32, format="csr")).tocsr()
    degree = np.asarray(looped.sum(axis=1)).ravel().astype(np.float64)
    degree[degree == 0] = 1.0  # of rows without edges
    rows = np.repeat(degree ** (r - 1.0), np.diff(looped.indptr))
    values = (rows * looped.data * (degree**-r)[looped.indices]).astype(np.float32)
    return sp.csr_matrix((values, looped.indices, looped.indptr), shape=looped.shape)


def worth_propagating(
    features: np.ndarray | sp.csr_matrix, operator: sp.csr_matrix, rows: int, request: Propagation
) -> bool:
    """Whether features are propagated ahead rather than their product with the weights in every step.

    Dense ones always are, and sparse ones never where the backbone asks not to. Else training reads nearly every entry
    of sparse ones, and the operator once for each hop; of filled ones it reads the rows of the training nodes, where an
    entry costs about a quarter.

    Args:
        features: of the nodes, or of the whole graph that they come from.
        operator: of the nodes.
        rows: training nodes.
        request: what the backbone needs.
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
    """What `request.combine` makes of [N, num_features] features.

    Returns:
        [N, num_features]; with "each" [hops, N, num_features]: A X, ..., A^hops X.
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
