"""The largest connected component of a graph."""

from dataclasses import replace

import numpy as np
from scipy.sparse.csgraph import connected_components

from fglbench.datasets.base import Graph


def largest_component(graph: Graph) -> Graph:
    """The subgraph of the largest connected component; nodes keep their order.

    Of equally large ones, the component with the lowest node id. `cleaning` gains `nodes_removed` and `edges_removed`
    (undirected), counted after the other steps.
    """
    _, component = connected_components(graph.adjacency(), directed=False)
    largest = graph.induced(np.flatnonzero(component == np.bincount(component).argmax()))
    removed = {
        "nodes_removed": graph.num_nodes - largest.num_nodes,
        "edges_removed": graph.num_edges - largest.num_edges,
    }
    return replace(largest, cleaning={**graph.cleaning, **removed})
