"""METIS: parts of nearly equal size with few edges between them.

Karypis, Kumar: A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs, SIAM J. Sci. Comput. 1998.
METIS may end its process on input that it does not like, so it runs in a child process.
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
    """Partitions the graph; parts that METIS leaves empty are filled from the largest one, and that is noted.

    Raises:
        PartitionError: the graph is not canonical; METIS crashed or was not done in time.
    """
    starts, adjacent = compressed(graph)
    options = {"clients": clients, "recursive": settings.recursive, "seed": int(rng.integers(1, 2**31 - 1))}
    membership = in_child(metis_membership, {"starts": starts, "adjacent": adjacent}, options, TIME_LIMIT_S, "METIS")
    membership, notes = fill_empty(membership, graph.edges, clients)
    return Assignment(parts_of(membership, clients), notes)


def compressed(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Row starts [num_nodes + 1] and neighbours [num_entries], after checking what METIS takes for granted.

    Raises:
        PartitionError: ids out of range, self-loops, entries out of order or twice, or an entry without its reverse.
    """
    (rows, columns), nodes = graph.edges, graph.num_nodes
    problem = ""
    keys = rows * nodes + columns
    if rows.size and (graph.edges.min() < 0 or graph.edges.max() >= nodes):
        problem = f"its edges name nodes {graph.edges.min()} to {graph.edges.max()} of {nodes}"
    elif (rows == columns).any():
        problem = f"node {rows[rows == columns][0]} has an edge to itself"
    elif (np.diff(keys) <= 0).any():
        problem = "its edges are not sorted by row and column, or one is there twice"
    elif not np.array_equal(np.sort(columns * nodes + rows), keys):
        alone = np.setdiff1d(keys, columns * nodes + rows)
        first = alone[0] // nodes, alone[0] % nodes
        problem = f"it is not symmetric: {len(alone)} entries lack their reverse, the first {first[0]} -> {first[1]}"
    if problem:
        raise PartitionError(f"METIS needs a canonical graph, but {problem}. Run the download stage again.")
    return np.searchsorted(rows, np.arange(nodes + 1)), columns


def fill_empty(membership: np.ndarray, edges: np.ndarray, clients: int) -> tuple[np.ndarray, list[str]]:
    """Gives every empty part half of the largest part, namely the nodes with the fewest neighbours in that part.

    Ties go to the lower part and the lower node id. With clients <= nodes the largest part has two nodes or more as
    long as another is empty, so no part ends up empty.

    Returns:
        the repaired [num_nodes] membership and one note per repair.
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
