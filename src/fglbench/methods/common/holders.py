"""Means over the clients that hold a node."""

import numpy as np
import scipy.sparse as sp


def mean_of_holders(node_of: np.ndarray, weights: np.ndarray) -> sp.csr_matrix:
    """Return the operator that averages over all rows of the same node.

    Args:
        node_of: [rows] int64 node of each row.
        weights: [rows] float32 positive weight of each row in the mean.

    Returns:
        [rows, rows] float32 CSR; its product with values gives each row the weighted mean of its node.
    """
    rows = np.arange(len(node_of))
    holders = sp.csr_matrix((np.ones(len(rows)), (rows, node_of)))
    summed = sp.csr_matrix((weights.astype(np.float64), (node_of, rows)))
    total = np.bincount(node_of, weights=weights)[node_of]
    return (sp.diags(1.0 / total) @ holders @ summed).tocsr().astype(np.float32)
