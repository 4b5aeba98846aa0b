"""Edges that a method adds to the client graphs."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from fglbench.federation.federation import Federation
from fglbench.partition.ratios import TEST, VAL


def with_more_edges(federation: Federation, edges: sp.csr_matrix) -> Federation:
    """Add edges to the client graphs, and to the `evaluated` graphs of the inductive setting.

    Args:
        federation: the training graphs.
        edges: [N, N] symmetric CSR weights, added to the weights of the adjacency.

    Returns:
        A federation with these edges, without propagated features.
    """
    joined, whole = _joined(federation, edges), federation.evaluated
    if whole is None:
        return joined
    rows = np.flatnonzero(~np.isin(whole.role, (VAL, TEST)))
    pairs = edges.tocoo()
    placed = sp.csr_matrix((pairs.data, (rows[pairs.row], rows[pairs.col])), shape=whole.adjacency.shape)
    return replace(joined, evaluated=_joined(whole, placed))


def _joined(federation: Federation, edges: sp.csr_matrix) -> Federation:
    return federation.with_edges((federation.adjacency + edges).tocsr().astype(np.float32))
