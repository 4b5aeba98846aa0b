"""Means over the clients that hold a node."""

import numpy as np
import scipy.sparse as sp


def mean_of_holders(node_of: np.ndarray, weights: np.ndarray) -> sp.csr_matrix:
    """[rows, rows] CSR float32: each row's weighted mean over all rows of the same node.

    Args:
        node_of: [rows] int64 the node of each row.
        weights: [rows] float32, positive.
    """
    rows = np.arange(len(node_of))
    holders = sp.csr_matrix((np.ones(len(rows)), (rows, node_of)))
    summed = sp.csr_matrix((weights.astype(np.float64), (node_of, rows)))
    total = np.bincount(node_of, weights=weights)[node_of]
    return (sp.diags(1.0 / total) @ holders @ summed).tocsr().astype(np.float32)
