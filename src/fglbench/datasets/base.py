"""The canonical graph: the output of every loader and the input of every later stage."""

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from fglbench.errors import DataError
from fglbench.storage import hash_arrays


@dataclass(frozen=True)
class Graph:
    """An undirected graph with node features and labels.

    Attributes:
        edges: [2, num_entries] int64, both directions of every edge, each pair once, sorted by (row, column), without
            self-loops.
        features: [num_nodes, num_features] float32, a dense array or a CSR matrix with sorted indices and no stored
            zeros.
        labels: [num_nodes] int64 class ids, -1 for a node without a class.
        classes: number of classes of the dataset.
        masks: official split, from "train", "val", "test" to [num_nodes] bool; empty if there is none.
        cleaning: counts of directed entries from canonicalisation: `stored_entries`, `duplicates_removed`,
            `self_loops_removed`, `reverse_added` (entries whose reverse was missing). Loaders may add further counts.
        clients: [num_nodes] int64, the client of each node, counted from 0; None if the dataset has no clients of its
            own.
    """

    edges: np.ndarray
    features: np.ndarray | sp.csr_matrix
    labels: np.ndarray
    classes: int
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    cleaning: dict[str, int] = field(default_factory=dict)
    clients: np.ndarray | None = None

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.labels)

    @property
    def num_edges(self) -> int:
        """Number of undirected edges, half the stored entries."""
        return self.edges.shape[1] // 2

    @property
    def num_features(self) -> int:
        """Number of columns of the features."""
        return self.features.shape[1]

    def adjacency(self) -> sp.csr_matrix:
        """Make the symmetric adjacency matrix, without self-loops.

        Returns:
            [num_nodes, num_nodes] float32 CSR of ones.
        """
        ones = np.ones(self.edges.shape[1], dtype=np.float32)
        return sp.csr_matrix((ones, (self.edges[0], self.edges[1])), shape=(self.num_nodes, self.num_nodes))

    def induced(self, nodes: np.ndarray) -> "Graph":
        """Make the subgraph of some nodes.

        Args:
            nodes: [n] int64 ascending node ids; they are renumbered from 0 in this order.

        Returns:
            The induced subgraph, with the same `classes` and `cleaning`.
        """
        new_ids = np.full(self.num_nodes, -1, dtype=np.int64)
        new_ids[nodes] = np.arange(len(nodes))
        edges = new_ids[self.edges]
        return replace(
            self,
            edges=edges[:, (edges >= 0).all(axis=0)],
            features=self.features[nodes],
            labels=self.labels[nodes],
            masks={name: mask[nodes] for name, mask in self.masks.items()},
            clients=None if self.clients is None else self.clients[nodes],
        )


def canonical_edges(pairs: np.ndarray, num_nodes: int) -> tuple[np.ndarray, dict[str, int]]:
    """Convert edges to canonical form: both directions, each pair once, sorted, without self-loops.

    Args:
        pairs: [2, num_entries] integers in any order, directed or not.
        num_nodes: exclusive upper bound of the ids.

    Returns:
        [2, num_entries] int64 edges, and the counts of `Graph.cleaning`.
    """
    pairs = np.asarray(pairs, dtype=np.int64).reshape(2, -1)
    loops = pairs[0] == pairs[1]
    keys = pairs[0, ~loops] * num_nodes + pairs[1, ~loops]
    once = _distinct(keys)
    both = _distinct(np.concatenate([once, once % num_nodes * num_nodes + once // num_nodes]))
    cleaning = {
        "stored_entries": int(pairs.shape[1]),
        "self_loops_removed": int(loops.sum()),
        "duplicates_removed": int(len(keys) - len(once)),
        "reverse_added": int(len(both) - len(once)),
    }
    return np.stack([both // num_nodes, both % num_nodes]), cleaning


def _distinct(keys: np.ndarray) -> np.ndarray:
    """Return the sorted distinct values of non-negative integers.

    On edges this is many times faster than numpy's `unique`, which uses hashing.
    """
    ordered = np.sort(keys)
    return ordered[np.diff(ordered, prepend=-1) != 0]


def feature_arrays(features: np.ndarray | sp.csr_matrix, prefix: str = "x") -> dict[str, np.ndarray]:
    """Convert a feature matrix to plain arrays.

    Args:
        features: [rows, num_features], a dense array or a CSR matrix.
        prefix: of the names.

    Returns:
        `x` float32 if dense; else `x_indptr` int64, `x_indices` int32, `x_data` float32 and `x_shape` int64.
    """
    if not isinstance(features, np.ndarray):
        return {
            f"{prefix}_indptr": features.indptr.astype(np.int64),
            f"{prefix}_indices": features.indices.astype(np.int32),
            f"{prefix}_data": features.data.astype(np.float32),
            f"{prefix}_shape": np.asarray(features.shape, dtype=np.int64),
        }
    return {prefix: np.ascontiguousarray(features, dtype=np.float32)}


def features_from(arrays: dict[str, np.ndarray], prefix: str = "x") -> np.ndarray | sp.csr_matrix:
    """Convert plain arrays to a feature matrix; the inverse of `feature_arrays`.

    Args:
        arrays: as `feature_arrays` returns them; other names are ignored.
        prefix: of the names.

    Returns:
        [rows, num_features], a dense array or a CSR matrix.
    """
    if prefix in arrays:
        return arrays[prefix]
    parts = tuple(arrays[f"{prefix}_{name}"] for name in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, shape=tuple(arrays[f"{prefix}_shape"]))


def graph_arrays(graph: Graph) -> dict[str, np.ndarray]:
    """Convert a graph to the arrays of `graph.npz`; their hash is the content hash of the dataset.

    Args:
        graph: the canonical graph.

    Returns:
        `edges`, `labels`, the arrays of `feature_arrays`, `mask_<role>` for each mask, and `clients` if the graph has
        them.
    """
    return {
        "edges": graph.edges.astype(np.int64),
        "labels": graph.labels.astype(np.int64),
        **feature_arrays(graph.features),
        **{f"mask_{name}": mask.astype(bool) for name, mask in graph.masks.items()},
        **({} if graph.clients is None else {"clients": graph.clients.astype(np.int64)}),
    }


def content_hash(graph: Graph) -> str:
    """Compute the checksum of the canonical arrays, which does not depend on archive, compression and file order.

    Args:
        graph: the canonical graph.

    Returns:
        64 hexadecimal digits (SHA-256).
    """
    return hash_arrays(graph_arrays(graph))


def check_ids(named: list[np.ndarray], nodes: int) -> None:
    """Check that all node ids exist.

    Args:
        named: integer arrays of node ids.
        nodes: number of nodes.

    Raises:
        DataError: an id is negative or not below `nodes`.
    """
    for ids in named:
        if ids.size and not 0 <= ids.min() <= ids.max() < nodes:
            invalid = ids.max() if ids.max() >= nodes else ids.min()
            raise DataError(f"a file contains the node id {invalid}; the graph has the nodes 0 to {nodes - 1}.")


def mask_of(nodes: np.ndarray, size: int) -> np.ndarray:
    """Convert node ids to a mask.

    Args:
        nodes: integer ids.
        size: number of nodes.

    Returns:
        [size] bool, true at these ids.
    """
    mask = np.zeros(size, dtype=bool)
    mask[nodes] = True
    return mask
