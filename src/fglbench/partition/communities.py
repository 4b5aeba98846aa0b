"""Louvain communities of a graph, found by the library that its size needs.

Blondel et al.: Fast unfolding of communities in large networks, J. Stat. Mech. 2008. Large graphs are left to igraph,
since python-louvain needs some 80 microseconds an edge. So are resolutions other than 1: python-louvain weighs one term
of the modularity in its moves and the other in its stopping rule, and so ends after the first level. igraph's own
Louvain needs some 120 microseconds an edge on a random block model (8 on real graphs), so the largest graphs are left
to its Leiden algorithm (Traag, Waltman, van Eck: From Louvain to Leiden, 2019): Louvain's moves with a queue and a
refinement, for the same modularity.
"""

from importlib.metadata import version

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.partition.child import in_child
from fglbench.partition.search import louvain_communities
from fglbench.settings import CommunitySettings

TIME_LIMIT_S = 7200


def communities(graph: Graph, rng: np.random.Generator, settings: CommunitySettings) -> tuple[np.ndarray, str]:
    """The community of each node, [num_nodes] int64, and a sentence on how they were found.

    Raises:
        PartitionError: the search crashed or was not done in time.
    """
    algorithm = _algorithm(graph.num_edges, settings)
    options = {
        "nodes": graph.num_nodes,
        "algorithm": algorithm,
        "resolution": settings.resolution,
        "seed": int(rng.integers(2**31)),
    }
    once = graph.edges[:, graph.edges[0] < graph.edges[1]]
    found = in_child(louvain_communities, {"edges": once}, options, TIME_LIMIT_S, f"Louvain ({algorithm})")
    release = version(algorithm.removesuffix("-leiden"))
    return found, f"Louvain: {algorithm} ({release}) found {len(np.unique(found))} communities"


def _algorithm(edges: int, settings: CommunitySettings) -> str:
    if edges > settings.leiden_above_edges:
        return "igraph-leiden"
    plain = settings.resolution == 1 and edges <= settings.igraph_above_edges
    return "python-louvain" if plain else "igraph"


def nodes_of(membership: np.ndarray) -> list[np.ndarray]:
    """The nodes of each community, ascending int64, by the community's number; [num_nodes] communities of the nodes."""
    order = np.argsort(membership, kind="stable").astype(np.int64)
    return np.split(order, np.flatnonzero(np.diff(membership[order])) + 1)


def largest_first(pieces: list[np.ndarray]) -> list[np.ndarray]:
    """Sets of nodes, longest first, then by lowest node id."""
    return sorted(pieces, key=lambda piece: (-len(piece), piece[0]))
