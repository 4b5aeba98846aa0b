"""Louvain communities assigned in turn, with copies of neighbours across cut edges (Fed-GALA, section 4.1.1).

Whole communities are assigned to the clients one after another, largest first. These clients own their nodes. Then each
client gets copies of all neighbours of its own nodes, so that no edge is lost. A node that several clients hold is an
anchor.

A client's graph has no edge between two copies. The text says so ("while nodes are
duplicated, their local graph structure is not"). But the edges in table 4.2 are those between all nodes that a client
holds: `between_copies` keeps them, and then nodes have no owners.

Ties of size are broken by the lowest node id, which the thesis leaves open. `partition/communities.py` selects the
library that finds the communities, and the partition card names it.
"""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment
from fglbench.partition.communities import communities, largest_first, nodes_of
from fglbench.settings import CommunitySettings, Field

VERSION = 1
OVERLAPS = True


class Settings(CommunitySettings):
    """Settings of Louvain and of the copies."""

    between_copies: bool = Field(False, description="Keep the edges between two copies; nodes then have no owners.")


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Find communities, assign them and copy the neighbours across cut edges.

    Args:
        graph: a canonical graph.
        clients: number of clients.
        rng: draws the seed of the search.
        settings: of Louvain, and whether to keep edges between copies.

    Returns:
        The assignment, without owners if `between_copies`, and with the number of communities of each client.

    Raises:
        PartitionError: there are fewer communities than clients, or the search crashed or exceeded the time limit.
        ResourceError: memory ran out.
        DiskError: the disk for temporary files is full.
    """
    membership, note = communities(graph, rng, settings)
    ordered = largest_first(nodes_of(membership))
    if len(ordered) < clients:
        raise PartitionError(
            f"Louvain found {len(ordered)} communities for {clients} clients. Request at most {len(ordered)} clients, "
            "or raise the scheme's 'resolution'."
        )
    owner = np.empty(graph.num_nodes, dtype=np.int64)
    for number, nodes in enumerate(ordered):
        owner[nodes] = number % clients
    parts, copies = with_neighbours(graph, owner, clients)
    counts = np.bincount(np.arange(len(ordered)) % clients).tolist()
    owned = None if settings.between_copies else copies
    return Assignment(parts, [f"{note}, dealt in turn."], owned, communities=counts)


def with_neighbours(graph: Graph, owner: np.ndarray, clients: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the nodes that each client owns, with copies of their neighbours at other clients.

    Args:
        graph: the whole graph.
        owner: [num_nodes] int64, the client of each node.
        clients: number of clients.

    Returns:
        For each client its nodes, ascending int64; and for each client which of them are copies, bool.
    """
    nodes = np.arange(graph.num_nodes)
    source, target = graph.edges
    holders = np.concatenate([owner, owner[source]])
    held = np.unique(np.stack([holders, np.concatenate([nodes, target])]), axis=1)
    parts = [part.astype(np.int64) for part in np.split(held[1], np.searchsorted(held[0], range(1, clients)))]
    return parts, [owner[part] != client for client, part in enumerate(parts)]
