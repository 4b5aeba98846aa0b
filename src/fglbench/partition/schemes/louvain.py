"""Louvain communities, cut to at most n / clients nodes and dealt so that clients have nearly equal sizes.

Cutting and dealing as in FedGTA (Li et al., VLDB 2023): communities longer than n / clients are cut, then dealt to
clients, largest first. `partition/communities.py` says which library finds them; the card names the one used.
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
    """Finds communities, cuts and deals them.

    Raises:
        PartitionError: the search crashed or was not done in time.
    """
    found, note = communities(graph, rng, settings)
    limit = graph.num_nodes // clients
    pieces = cut(found, limit)
    return Assignment(deal(pieces, clients), [f"{note}; cut to at most {limit} nodes they are {len(pieces)} pieces."])


def cut(membership: np.ndarray, limit: int) -> list[np.ndarray]:
    """Cuts each community, in ascending node ids, into pieces of `limit` nodes and a rest.

    Returns:
        the pieces, longest first, then by lowest node id; at least `clients` many where limit = n // clients.
    """
    whole = nodes_of(membership)
    return largest_first([nodes[at : at + limit] for nodes in whole for at in range(0, len(nodes), limit)])


def deal(pieces: list[np.ndarray], clients: int) -> list[np.ndarray]:
    """Gives each piece, in the order given, to the client that has the fewest nodes (the first of them)."""
    hands: list[list[np.ndarray]] = [[] for _ in range(clients)]
    heap = [(0, client) for client in range(clients)]
    for piece in pieces:
        size, client = heap[0]
        hands[client].append(piece)
        heapq.heapreplace(heap, (size + len(piece), client))
    return [np.sort(np.concatenate(hand)) for hand in hands]
