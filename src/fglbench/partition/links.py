"""Roles of edges: training edges pass messages, validation edges select the round, test edges are scored.

A role is drawn once for each edge. So no client trains on an edge that another client tests, even if clients share
nodes.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from fglbench.partition.ratios import NONE, TEST, TRAIN, VAL, Ratios, draw_at_ratios

_ENUMERATED = 8  # all pairs of a client are listed if they are at most this many times the requested ones
_DRAWS = 20  # maximum of random draws; it is reached if nearly all pairs are edges, and then all are listed


@dataclass(frozen=True)
class Pairs:
    """Pairs of nodes to score, client by client; the edges among them pass no messages.

    Attributes:
        ends: [P, 2] int64 rows of the client graphs, the smaller one first.
        ptr: [C + 1] int64; client c has the pairs ptr[c]:ptr[c + 1].
        role: [P] int8: 2 validation, 3 test; 0: an edge that is hidden and not scored.
        edge: [P] bool, whether the pair is an edge.
    """

    ends: np.ndarray
    ptr: np.ndarray
    role: np.ndarray
    edge: np.ndarray

    def count(self, role: int) -> np.ndarray:
        """Count the pairs of a role at each client.

        Args:
            role: code of the role, as in `role`.

        Returns:
            [C] int64.
        """
        sums = np.concatenate([[0], np.cumsum(self.role == role)])
        return np.diff(sums[self.ptr])

    def problem(self, ptr: np.ndarray) -> str | None:
        """Check the pairs against the client graphs.

        Args:
            ptr: [C + 1] integer, row boundaries of the clients.

        Returns:
            Description of the inconsistency; None if there is none.
        """
        if len(self.ptr) != len(ptr) or not len(self.ends) == len(self.role) == len(self.edge) == self.ptr[-1]:
            return "the numbers of pairs and of their roles differ"
        client = np.repeat(np.arange(len(ptr) - 1), np.diff(self.ptr))
        if (self.ends[:, 0] < ptr[client]).any() or (self.ends[:, 1] >= ptr[client + 1]).any():
            return "a pair of nodes lies outside its client"
        return None

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays as files contain them.

        Returns:
            `pairs`, `pair_ptr`, `pair_role` and `pair_edge`.
        """
        return {"pairs": self.ends, "pair_ptr": self.ptr, "pair_role": self.role, "pair_edge": self.edge}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Pairs | None":
        """Restore pairs from the arrays of a file.

        Args:
            arrays: of the file, by name.

        Returns:
            The pairs; None if the file has none.
        """
        if "pairs" not in arrays:
            return None
        return cls(*(arrays[name] for name in ("pairs", "pair_ptr", "pair_role", "pair_edge")))


def draw_pairs(
    adjacency: sp.csr_matrix,
    nodes: np.ndarray,
    ptr: np.ndarray,
    edges: np.ndarray,
    ratios: Ratios,
    stream: np.random.Generator,
) -> tuple[Pairs, np.ndarray]:
    """Draw validation and test edges of every client, and as many of its pairs of nodes without an edge (negatives).

    The ratios hold at every client (see `ratios.draw_at_ratios`). Negatives are distinct, are not edges of the whole
    graph, and are disjoint between roles and clients. If a client has fewer negatives than validation and test edges,
    the surplus edges are hidden and not scored.

    Args:
        adjacency: [N, N] CSR, the client graphs as one block-diagonal graph.
        nodes: [N] int64 global ids of its rows.
        ptr: [C + 1] int64 row boundaries of the clients.
        edges: [2, E] int64 edges of the whole graph, in both directions.
        ratios: of train, val and test edges.
        stream: draws the roles first, then the negatives of one client after another.

    Returns:
        The pairs; and [C] int64, the number of training edges of each client.
    """
    clients = len(ptr) - 1
    num_nodes = int(nodes.max(initial=0)) + 1
    upper = sp.triu(adjacency, k=1, format="csr")
    ends = np.stack(upper.nonzero(), axis=1).astype(np.int64)
    client = np.searchsorted(ptr, ends[:, 0], side="right") - 1
    keys, edge_of = np.unique(_keys(nodes[ends], num_nodes), return_inverse=True)
    bounds = np.searchsorted(client, np.arange(clients + 1))
    parts = np.split(edge_of, bounds[1:-1])
    role = draw_at_ratios(np.zeros(len(keys), dtype=np.int64), parts, ratios, stream, stratify=False)[edge_of]
    inside = (edges < num_nodes).all(axis=0) & (edges[0] < edges[1])
    taken = np.sort(_keys(edges[:, inside].T, num_nodes))
    shared = len(np.unique(nodes)) < len(nodes)
    blocks: list[_Block] = []
    counts = []
    for number in range(clients):
        part, rows = slice(*bounds[number : number + 2]), np.arange(ptr[number], ptr[number + 1])
        scored = int(np.isin(role[part], (VAL, TEST)).sum())
        absent = _absent(nodes[rows], scored, taken, num_nodes, stream)
        if shared:
            taken = np.union1d(taken, _keys(nodes[rows][absent], num_nodes))
        drawn = _blocks(ends[part], role[part], rows[absent])
        blocks += drawn
        counts.append(sum(len(block.ends) for block in drawn))
    sizes = [len(block.ends) for block in blocks]
    pairs = Pairs(
        np.concatenate([block.ends for block in blocks]),
        np.cumsum([0, *counts]),
        np.repeat(np.array([block.role for block in blocks], dtype=np.int8), sizes),
        np.repeat([block.edge for block in blocks], sizes),
    )
    return pairs, np.bincount(client[role == TRAIN], minlength=clients)


@dataclass(frozen=True)
class _Block:
    """Pairs [n, 2] of one client with the same role, either all edges or all negatives."""

    ends: np.ndarray
    role: int
    edge: bool


def _blocks(edges: np.ndarray, role: np.ndarray, absent: np.ndarray) -> list[_Block]:
    """Return the blocks of one client: validation edges and negatives, test edges and negatives, hidden edges."""
    blocks, hidden = [], []
    for code in (VAL, TEST):
        positives = edges[role == code]
        negatives, absent = absent[: len(positives)], absent[len(positives) :]
        blocks += [_Block(positives[: len(negatives)], code, True), _Block(negatives, code, False)]
        hidden.append(positives[len(negatives) :])
    return [*blocks, _Block(np.concatenate(hidden), NONE, True)]


def _keys(ends: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return one number for each pair of nodes [P, 2], independent of the order of its two nodes: [P]."""
    return ends.min(axis=1) * num_nodes + ends.max(axis=1)


def _absent(
    nodes: np.ndarray, count: int, taken: np.ndarray, num_nodes: int, stream: np.random.Generator
) -> np.ndarray:
    """Draw [count, 2] distinct pairs of positions in `nodes` whose keys are not in `taken`, which is ascending.

    In each pair the smaller position comes first. The result is shorter if there are fewer such pairs.
    """
    pairs, draws = np.zeros((0, 2), dtype=np.int64), 0
    possible = len(nodes) * (len(nodes) - 1) // 2
    while len(pairs) < count:
        if possible <= _ENUMERATED * count or draws == _DRAWS:
            every = np.stack(np.triu_indices(len(nodes), k=1), axis=1)
            free = every[~_among(_keys(nodes[every], num_nodes), taken)]
            return free[stream.permutation(len(free))[:count]]
        draws += 1
        more = stream.integers(len(nodes), size=(2 * (count - len(pairs)), 2))
        more = np.sort(more[more[:, 0] != more[:, 1]], axis=1)
        pairs = np.concatenate([pairs, more[~_among(_keys(nodes[more], num_nodes), taken)]])
        _, first = np.unique(pairs[:, 0] * len(nodes) + pairs[:, 1], return_index=True)
        pairs = pairs[np.sort(first)]
    return pairs[:count]


def _among(keys: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Return for each key whether it is in `taken`, which is ascending: [keys] bool."""
    positions = np.searchsorted(taken, keys)
    return np.append(taken, -1)[positions] == keys
