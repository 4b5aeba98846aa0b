"""The subgraphs that clients hold, as one block-diagonal matrix."""

import numpy as np
import scipy.sparse as sp

from fglbench.datasets.base import Graph


def induced_edges(graph: Graph, nodes: np.ndarray, ptr: np.ndarray, copy: np.ndarray | None = None) -> sp.csr_matrix:
    """Build each client's induced subgraph, all in one block-diagonal matrix.

    Edges between two copies are left out.

    Args:
        graph: the whole graph.
        nodes: [N] int64 global ids, client by client, ascending inside a client; clients may share nodes.
        ptr: [C + 1] int64; client c holds positions ptr[c] to ptr[c + 1] - 1.
        copy: [N] bool, nodes that another client owns; None: there are no copies.

    Returns:
        [N, N] float32 CSR of ones, symmetric, with sorted indices. A node without a neighbour in its client has an
        empty row.
    """
    adjacency = graph.adjacency()
    blocks = [adjacency[part][:, part] for part in np.split(nodes, ptr[1:-1])]
    stacked = sp.csr_matrix(sp.block_diag(blocks, format="csr"))
    if copy is not None:
        stacked.data[copy[np.repeat(np.arange(len(nodes)), np.diff(stacked.indptr))] & copy[stacked.indices]] = 0
        stacked.eliminate_zeros()
    stacked.sort_indices()
    return stacked


def without_edges(adjacency: sp.csr_matrix, ends: np.ndarray) -> sp.csr_matrix:
    """Remove undirected edges from a graph.

    Args:
        adjacency: [N, N] CSR, symmetric; it stays unchanged.
        ends: [E, 2] int64, the rows of the two ends of each edge.

    Returns:
        [N, N] CSR without these edges.
    """
    kept = adjacency.copy()
    kept[ends[:, 0], ends[:, 1]] = kept[ends[:, 1], ends[:, 0]] = 0
    kept.eliminate_zeros()
    return kept
