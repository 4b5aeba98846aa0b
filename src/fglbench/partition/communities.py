"""Louvain communities of a graph, with a library that fits the size of the graph.

Louvain: Blondel et al., Fast unfolding of communities in large networks, J. Stat. Mech. 2008. Small graphs use
python-louvain. It needs about 80 microseconds per edge, so larger graphs use igraph. Resolutions other than 1 also use
igraph, because python-louvain then weights one term of the modularity in its moves and the other term in its stopping
rule, and stops after the first level. igraph's Louvain needs about 120 microseconds per edge on a random block model (8
on real graphs), so the largest graphs use igraph's Leiden algorithm (Traag, Waltman, van Eck: From Louvain to Leiden,
2019). Leiden optimises the same modularity with Louvain's moves, a queue and a refinement.
"""

from importlib.metadata import version

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.partition.child import in_child
from fglbench.partition.search import louvain_communities
from fglbench.settings import CommunitySettings

TIME_LIMIT_S = 7200


def communities(graph: Graph, rng: np.random.Generator, settings: CommunitySettings) -> tuple[np.ndarray, str]:
    """Find the communities of a graph.

    Args:
        graph: a canonical graph.
        rng: draws the seed of the search.
        settings: resolution, and the limits that select the library.

    Returns:
        [num_nodes] int64, the community of each node; and a sentence for the partition card that names the library.

    Raises:
        PartitionError: the search crashed or exceeded the time limit.
        ResourceError: memory ran out.
        DiskError: the disk for temporary files is full.
    """
    algorithm = _algorithm(graph.num_edges, settings)
    options = {
        "nodes": graph.num_nodes,
        "algorithm": algorithm,
        "resolution": settings.resolution,
        "seed": int(rng.integers(2**31)),
    }
    edges = graph.edges[:, graph.edges[0] < graph.edges[1]]
    membership = in_child(louvain_communities, {"edges": edges}, options, TIME_LIMIT_S, f"Louvain ({algorithm})")
    release = version(algorithm.removesuffix("-leiden"))
    return membership, f"Louvain: {algorithm} ({release}) found {len(np.unique(membership))} communities"


def _algorithm(edges: int, settings: CommunitySettings) -> str:
    if edges > settings.leiden_above_edges:
        return "igraph-leiden"
    plain = settings.resolution == 1 and edges <= settings.igraph_above_edges
    return "python-louvain" if plain else "igraph"


def nodes_of(membership: np.ndarray) -> list[np.ndarray]:
    """Convert the community of each node to the nodes of each community.

    Args:
        membership: [num_nodes] int64, the community of each node.

    Returns:
        For each community its ascending node ids, int64, in the order of the communities' numbers.
    """
    order = np.argsort(membership, kind="stable").astype(np.int64)
    return np.split(order, np.flatnonzero(np.diff(membership[order])) + 1)


def largest_first(pieces: list[np.ndarray]) -> list[np.ndarray]:
    """Sort sets of nodes by size, the largest first; ties are broken by the lowest node id.

    Args:
        pieces: ascending node ids of each set.

    Returns:
        The sorted sets.
    """
    return sorted(pieces, key=lambda piece: (-len(piece), piece[0]))
