"""Louvain communities, cut to at most n / clients nodes and assigned so that clients have nearly equal sizes.

Cutting and assignment as in FedGTA (Li et al., VLDB 2023): communities with more than n / clients nodes are cut; then
the pieces are assigned to clients, largest first. `partition/communities.py` selects the library that finds the
communities, and the partition card names it.
"""

import heapq

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.partition.base import Assignment
from fglbench.partition.communities import communities, largest_first, nodes_of
from fglbench.settings import CommunitySettings

VERSION = 1


class Settings(CommunitySettings):
    """Settings of Louvain."""


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Find communities, cut them and assign the pieces to clients.

    Args:
        graph: a canonical graph.
        clients: number of clients.
        rng: draws the seed of the search.
        settings: resolution, and the limits that select the library.

    Returns:
        The assignment, with a note on the library and the number of pieces.

    Raises:
        PartitionError: the search crashed or exceeded the time limit.
        ResourceError: memory ran out.
        DiskError: the disk for temporary files is full.
    """
    membership, note = communities(graph, rng, settings)
    limit = graph.num_nodes // clients
    pieces = cut(membership, limit)
    return Assignment(deal(pieces, clients), [f"{note}; cut to at most {limit} nodes they are {len(pieces)} pieces."])


def cut(membership: np.ndarray, limit: int) -> list[np.ndarray]:
    """Cut each community, in ascending order of node ids, into pieces of `limit` nodes and a rest.

    Args:
        membership: [num_nodes] int64, the community of each node.
        limit: largest number of nodes in a piece.

    Returns:
        Node ids of the pieces, largest piece first, then by lowest node id. With a limit of n // clients there are at
        least as many pieces as clients.
    """
    whole = nodes_of(membership)
    return largest_first([nodes[at : at + limit] for nodes in whole for at in range(0, len(nodes), limit)])


def deal(pieces: list[np.ndarray], clients: int) -> list[np.ndarray]:
    """Give each piece, in the given order, to the client with the fewest nodes (the first of equal ones).

    Args:
        pieces: int64 node ids of each piece; at least as many pieces as clients.
        clients: number of clients.

    Returns:
        For each client its ascending node ids, int64.
    """
    by_client: list[list[np.ndarray]] = [[] for _ in range(clients)]
    heap = [(0, client) for client in range(clients)]
    for piece in pieces:
        size, client = heap[0]
        by_client[client].append(piece)
        heapq.heapreplace(heap, (size + len(piece), client))
    return [np.sort(np.concatenate(assigned)) for assigned in by_client]
