"""Reduction of a graph to its largest connected component."""

from dataclasses import replace

import numpy as np
from scipy.sparse.csgraph import connected_components

from fglbench.datasets.base import Graph


def largest_component(graph: Graph) -> Graph:
    """Return the subgraph of the largest connected component; nodes keep their order.

    Among components of equal size, the one with the lowest node id is taken.

    Args:
        graph: the canonical graph.

    Returns:
        The subgraph; its `cleaning` also has `nodes_removed` and `edges_removed` (undirected), counted after the other
        steps.
    """
    _, component = connected_components(graph.adjacency(), directed=False)
    largest = graph.induced(np.flatnonzero(component == np.bincount(component).argmax()))
    removed = {
        "nodes_removed": graph.num_nodes - largest.num_nodes,
        "edges_removed": graph.num_edges - largest.num_edges,
    }
    return replace(largest, cleaning={**graph.cleaning, **removed})
