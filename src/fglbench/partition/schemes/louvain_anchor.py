"""Louvain communities dealt in turn, and a copy of every neighbour across a cut (Fed-GALA, section 4.1.1).

Communities are dealt to the clients one after another, largest first, each whole. Then a client gets a copy of every
node of another client that one of its own nodes is joined to, so that no edge is lost. A node that several clients hold
is an anchor.

The copies have owners, so that an edge between two copies is in neither of these clients. The text has it so ("while
nodes are duplicated, their local graph structure is not"), but the edges of table 4.2 are those of all nodes that a
client holds: `between_copies` keeps them, and nodes then have no owners.

Ties of size are broken by the lowest node id, which the thesis leaves open. `partition/communities.py` says which
library finds the communities; the card names the one used.
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
    """Settings of Louvain, and of the copies."""

    between_copies: bool = Field(False, description="Keep the edges between two copies; nodes then have no owners.")


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Finds communities, deals them and copies the neighbours across cuts.

    Raises:
        PartitionError: there are fewer communities than clients, or the search crashed or was not done in time.
    """
    found, note = communities(graph, rng, settings)
    dealt = largest_first(nodes_of(found))
    if len(dealt) < clients:
        raise PartitionError(
            f"Louvain found {len(dealt)} communities. Ask for at most as many clients, or raise the scheme's "
            "'resolution'."
        )
    owner = np.empty(graph.num_nodes, dtype=np.int64)
    for number, nodes in enumerate(dealt):
        owner[nodes] = number % clients
    parts, copies = with_neighbours(graph, owner, clients)
    counts = np.bincount(np.arange(len(dealt)) % clients).tolist()
    owned = None if settings.between_copies else copies
    return Assignment(parts, [f"{note}, dealt in turn."], owned, communities=counts)


def with_neighbours(graph: Graph, owner: np.ndarray, clients: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The nodes that each client owns and copies of their neighbours at other clients.

    Args:
        graph: the whole graph.
        owner: [num_nodes] int64 client of each node.
        clients: number of clients.

    Returns:
        Per client its nodes, ascending int64, and which of them are copies, bool.
    """
    nodes = np.arange(graph.num_nodes)
    source, target = graph.edges
    holders = np.concatenate([owner, owner[source]])
    held = np.unique(np.stack([holders, np.concatenate([nodes, target])]), axis=1)
    parts = [part.astype(np.int64) for part in np.split(held[1], np.searchsorted(held[0], range(1, clients)))]
    return parts, [owner[part] != client for client, part in enumerate(parts)]
