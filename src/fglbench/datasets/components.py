"""The largest connected component of a graph."""

import numpy as np
from scipy.sparse.csgraph import connected_components

from fglbench.datasets.base import Graph


def largest_component(graph: Graph) -> Graph:
    """The subgraph of the largest connected component; nodes keep their order.

    Of equally large ones, the component with the lowest node id. `cleaning` gains `nodes_removed` and `edges_removed`
    (undirected), counted after the other steps.
    """
    _, component = connected_components(graph.adjacency(), directed=False)
    keep = component == np.bincount(component).argmax()
    position = np.cumsum(keep) - 1
    inside = keep[graph.edges[0]]
    return Graph(
        edges=position[graph.edges[:, inside]],
        features=graph.features[np.flatnonzero(keep)],
        labels=graph.labels[keep],
        classes=graph.classes,
        masks={role: mask[keep] for role, mask in graph.masks.items()},
        cleaning={
            **graph.cleaning,
            "nodes_removed": int((~keep).sum()),
            "edges_removed": int((~inside).sum()) // 2,
        },
    )
