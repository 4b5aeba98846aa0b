"""METIS: parts of nearly equal size with few edges between them.

Karypis, Kumar: A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs, SIAM J. Sci. Comput. 1998.
METIS may end its process on invalid input, so it runs in a child process.
"""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment, parts_of
from fglbench.partition.child import in_child
from fglbench.partition.search import metis_membership
from fglbench.settings import ComponentSettings, Field

VERSION = 1

TIME_LIMIT_S = 3600


class Settings(ComponentSettings):
    """Settings of METIS."""

    recursive: bool = Field(False, description="Recursive bisection instead of the k-way algorithm.")


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Partition the graph; empty parts are filled from the largest part, and a note records it.

    Args:
        graph: a canonical graph.
        clients: number of clients.
        rng: draws the seed of METIS.
        settings: the variant of METIS.

    Returns:
        The assignment, with a note for each filled part.

    Raises:
        PartitionError: the graph is not canonical, or METIS crashed or exceeded the time limit.
        ResourceError: memory ran out.
        DiskError: the disk for temporary files is full.
    """
    starts, adjacent = compressed(graph)
    options = {"clients": clients, "recursive": settings.recursive, "seed": int(rng.integers(1, 2**31 - 1))}
    membership = in_child(metis_membership, {"starts": starts, "adjacent": adjacent}, options, TIME_LIMIT_S, "METIS")
    membership, notes = fill_empty(membership, graph.edges, clients)
    return Assignment(parts_of(membership, clients), notes)


def compressed(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Convert a graph to the CSR arrays of METIS, and check the properties that METIS assumes.

    Args:
        graph: a canonical graph.

    Returns:
        Row starts [num_nodes + 1] int64 and neighbours [num_entries] int64.

    Raises:
        PartitionError: ids are out of range, there are self-loops, entries are unsorted or repeated, or an entry lacks
            its reverse.
    """
    (rows, columns), nodes = graph.edges, graph.num_nodes
    problem = ""
    keys = rows * nodes + columns
    if rows.size and (graph.edges.min() < 0 or graph.edges.max() >= nodes):
        problem = f"its edges contain node ids {graph.edges.min()} to {graph.edges.max()}, and it has {nodes} nodes"
    elif (rows == columns).any():
        problem = f"node {rows[rows == columns][0]} has a self-loop"
    elif (np.diff(keys) <= 0).any():
        problem = "its edges are not sorted by row and column, or an edge is repeated"
    elif not np.array_equal(np.sort(columns * nodes + rows), keys):
        unpaired = np.setdiff1d(keys, columns * nodes + rows)
        first = unpaired[0] // nodes, unpaired[0] % nodes
        problem = f"it is not symmetric: {len(unpaired)} entries lack their reverse, the first {first[0]} -> {first[1]}"
    if problem:
        raise PartitionError(f"METIS needs a canonical graph, but {problem}. Run the download stage again.")
    return np.searchsorted(rows, np.arange(nodes + 1)), columns


def fill_empty(membership: np.ndarray, edges: np.ndarray, clients: int) -> tuple[np.ndarray, list[str]]:
    """Give every empty part half of the nodes of the largest part.

    These are the nodes with the fewest neighbours in the largest part. Ties go to the lower part and the lower node id.
    With clients <= nodes, the largest part has at least two nodes while another part is empty, so no part is empty at
    the end.

    Args:
        membership: [num_nodes] int64, the part of each node.
        edges: [2, num_entries] int64, both directions.
        clients: number of parts.

    Returns:
        The repaired membership [num_nodes] int64, and one note per repair.
    """
    membership, notes = membership.copy(), []
    for part in np.flatnonzero(np.bincount(membership, minlength=clients) == 0):
        largest = np.bincount(membership, minlength=clients).argmax()
        nodes = np.flatnonzero(membership == largest)
        inside = (membership[edges] == largest).all(axis=0)
        neighbours = np.bincount(edges[0, inside], minlength=len(membership))[nodes]
        moved = nodes[np.argsort(neighbours, kind="stable")[: len(nodes) // 2]]
        membership[moved] = part
        notes.append(
            f"METIS left part {part} empty; it received {len(moved)} of the {len(nodes)} nodes of part {largest}, "
            "those with the fewest neighbours in it."
        )
    return membership, notes
