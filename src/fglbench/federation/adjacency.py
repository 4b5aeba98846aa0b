"""Adjacency matrices of client graphs: normalised for a backbone, and read off its operator again. Without torch."""

import numpy as np
import scipy.sparse as sp


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


def adjacency_of(operator: sp.csr_matrix) -> sp.csr_matrix:
    """[N, N] float32 CSR, ones where the operator has an entry off its diagonal."""
    entries = operator.tocoo()
    apart = entries.row != entries.col
    ones = np.ones(apart.sum(), dtype=np.float32)
    return sp.csr_matrix((ones, (entries.row[apart], entries.col[apart])), shape=operator.shape)
