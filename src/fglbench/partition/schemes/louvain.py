"""Louvain communities, cut to at most n / clients nodes and dealt so that clients have nearly equal sizes.

Blondel et al.: Fast unfolding of communities in large networks, J. Stat. Mech. 2008. Cutting and dealing as in FedGTA
(Li et al., VLDB 2023): communities longer than n / clients are cut, then dealt to clients, largest first. Large graphs
are left to igraph, since python-louvain needs some 80 microseconds an edge. So are resolutions other than 1:
python-louvain weighs one term of the modularity in its moves and the other in its stopping rule, and so ends after the
first level. igraph's own Louvain needs some 120 microseconds an edge on a random block model (8 on real graphs), so the
largest graphs are left to its Leiden algorithm (Traag, Waltman, van Eck: From Louvain to Leiden, 2019): Louvain's moves
with a queue and a refinement, for the same modularity. The card names what was used.
"""

import heapq
from importlib.metadata import version

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.partition._child import in_child
from fglbench.partition._search import louvain_communities
from fglbench.partition.base import Assignment
from fglbench.settings import ComponentSettings, Field

VERSION = 1

TIME_LIMIT_S = 7200


class Settings(ComponentSettings):
    """Settings of Louvain."""

    resolution: float = Field(1.0, gt=0, description="Above 1 gives more and smaller communities, below 1 fewer.")
    igraph_above_edges: int = Field(100_000, ge=0, description="Graphs with more undirected edges are left to igraph.")
    leiden_above_edges: int = Field(2_000_000, ge=0, description="And those with more than this to igraph's Leiden.")


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Finds communities, cuts and deals them.

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
    limit = graph.num_nodes // clients
    pieces = cut(found, limit)
    release = version(algorithm.removesuffix("-leiden"))
    notes = [
        f"Louvain: {algorithm} ({release}) found {len(np.unique(found))} communities; cut to at most {limit} nodes "
        f"they are {len(pieces)} pieces."
    ]
    return Assignment(deal(pieces, clients), notes)


def _algorithm(edges: int, settings: Settings) -> str:
    if edges > settings.leiden_above_edges:
        return "igraph-leiden"
    plain = settings.resolution == 1 and edges <= settings.igraph_above_edges
    return "python-louvain" if plain else "igraph"


def cut(membership: np.ndarray, limit: int) -> list[np.ndarray]:
    """Cuts each community, in ascending node ids, into pieces of `limit` nodes and a rest.

    Returns:
        the pieces, longest first, then by lowest node id; at least `clients` many where limit = n // clients.
    """
    order = np.argsort(membership, kind="stable").astype(np.int64)
    whole = np.split(order, np.flatnonzero(np.diff(membership[order])) + 1)
    pieces = [nodes[at : at + limit] for nodes in whole for at in range(0, len(nodes), limit)]
    return sorted(pieces, key=lambda piece: (-len(piece), piece[0]))


def deal(pieces: list[np.ndarray], clients: int) -> list[np.ndarray]:
    """Gives each piece, in the order given, to the client that has the fewest nodes (the first of them)."""
    hands: list[list[np.ndarray]] = [[] for _ in range(clients)]
    heap = [(0, client) for client in range(clients)]
    for piece in pieces:
        size, client = heap[0]
        hands[client].append(piece)
        heapq.heapreplace(heap, (size + len(piece), client))
    return [np.sort(np.concatenate(hand)) for hand in hands]
