"""The subgraphs that clients hold, as one block-diagonal matrix."""

import numpy as np
import scipy.sparse as sp

from fglbench.datasets.base import Graph


def induced_edges(graph: Graph, nodes: np.ndarray, ptr: np.ndarray, copy: np.ndarray | None = None) -> sp.csr_matrix:
    """Each client's induced subgraph, block-diagonal in stacked positions; without the edges between two copies.

    Args:
        graph: the whole graph.
        nodes: [N] global ids, client by client, ascending inside a client; clients may share nodes.
        ptr: [C + 1]; client c holds positions ptr[c] to ptr[c + 1] - 1.
        copy: [N] bool, nodes that another client owns; None: there are no copies.

    Returns:
        [N, N] float32 CSR of ones, symmetric, sorted indices. Nodes without a neighbour in their client keep an empty
        row.
    """
    adjacency = graph.adjacency()
    blocks = [adjacency[held][:, held] for held in np.split(nodes, ptr[1:-1])]
    stacked = sp.csr_matrix(sp.block_diag(blocks, format="csr"))
    if copy is not None:
        stacked.data[copy[np.repeat(np.arange(len(nodes)), np.diff(stacked.indptr))] & copy[stacked.indices]] = 0
        stacked.eliminate_zeros()
    stacked.sort_indices()
    return stacked


def without_edges(adjacency: sp.csr_matrix, ends: np.ndarray) -> sp.csr_matrix:
    """The same graph [N, N] without the undirected edges between rows `ends` [E, 2]."""
    kept = adjacency.copy()
    kept[ends[:, 0], ends[:, 1]] = kept[ends[:, 1], ends[:, 0]] = 0
    kept.eliminate_zeros()
    return kept
