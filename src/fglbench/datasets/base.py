"""The canonical graph: what every loader makes and every later stage reads."""

from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from fglbench.errors import DataError
from fglbench.storage import hash_arrays


@dataclass(frozen=True)
class Graph:
    """An undirected graph with node features and labels.

    Attributes:
        edges: [2, num_entries] int64, both directions of every edge, each pair once, sorted by (row, column), no
            self-loops.
        features: [num_nodes, num_features] float32, a dense array or a CSR matrix with sorted indices and no stored
            zeros.
        labels: [num_nodes] int64 class ids, -1 where a node has none.
        classes: the dataset's own number of classes.
        masks: official split, names from {"train", "val", "test"} to [num_nodes] bool; empty where there is none.
        cleaning: what canonicalisation did: `stored_entries`, `duplicates_removed`, `self_loops_removed`,
            `reverse_added` (entries whose reverse was missing), all counts of directed entries.
        clients: [num_nodes] int64, the client of each node, counted from 0; None where the dataset does not come split.
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
        return len(self.labels)

    @property
    def num_edges(self) -> int:
        """Undirected edges: half the stored entries."""
        return self.edges.shape[1] // 2

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    def adjacency(self) -> sp.csr_matrix:
        """[num_nodes, num_nodes] float32 CSR of ones, symmetric, without self-loops."""
        ones = np.ones(self.edges.shape[1], dtype=np.float32)
        return sp.csr_matrix((ones, (self.edges[0], self.edges[1])), shape=(self.num_nodes, self.num_nodes))

    def induced(self, nodes: np.ndarray) -> "Graph":
        """The subgraph of ascending node ids, renumbered from 0 in their order."""
        place = np.full(self.num_nodes, -1, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        edges = place[self.edges]
        return replace(
            self,
            edges=edges[:, (edges >= 0).all(axis=0)],
            features=self.features[nodes],
            labels=self.labels[nodes],
            masks={name: mask[nodes] for name, mask in self.masks.items()},
            clients=None if self.clients is None else self.clients[nodes],
        )


def canonical_edges(pairs: np.ndarray, num_nodes: int) -> tuple[np.ndarray, dict[str, int]]:
    """Both directions, each once, sorted, no self-loops; and what had to be done for it.

    Args:
        pairs: [2, num_entries] integers in any order, directed or not.
        num_nodes: exclusive upper bound of the ids.
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
    """Sorted distinct values of non-negative integers: many times faster than numpy's hashing `unique` on edges."""
    ordered = np.sort(keys)
    return ordered[np.diff(ordered, prepend=-1) != 0]


def feature_arrays(features: np.ndarray | sp.csr_matrix, prefix: str = "x") -> dict[str, np.ndarray]:
    """The plain arrays of a feature matrix: `x`, or `x_indptr`, `x_indices`, `x_data`, `x_shape` where it is sparse."""
    if not isinstance(features, np.ndarray):
        return {
            f"{prefix}_indptr": features.indptr.astype(np.int64),
            f"{prefix}_indices": features.indices.astype(np.int32),
            f"{prefix}_data": features.data.astype(np.float32),
            f"{prefix}_shape": np.asarray(features.shape, dtype=np.int64),
        }
    return {prefix: np.ascontiguousarray(features, dtype=np.float32)}


def features_from(arrays: dict[str, np.ndarray], prefix: str = "x") -> np.ndarray | sp.csr_matrix:
    """The inverse of `feature_arrays`."""
    if prefix in arrays:
        return arrays[prefix]
    parts = tuple(arrays[f"{prefix}_{name}"] for name in ("data", "indices", "indptr"))
    return sp.csr_matrix(parts, shape=tuple(arrays[f"{prefix}_shape"]))


def graph_arrays(graph: Graph) -> dict[str, np.ndarray]:
    """The arrays that `graph.npz` holds; their hash is the dataset's content hash."""
    return {
        "edges": graph.edges.astype(np.int64),
        "labels": graph.labels.astype(np.int64),
        **feature_arrays(graph.features),
        **{f"mask_{name}": mask.astype(bool) for name, mask in graph.masks.items()},
        **({} if graph.clients is None else {"clients": graph.clients.astype(np.int64)}),
    }


def content_hash(graph: Graph) -> str:
    """SHA-256 of the canonical arrays: independent of archive, compression and file order."""
    return hash_arrays(graph_arrays(graph))


def check_ids(named: list[np.ndarray], nodes: int) -> None:
    """Raises a DataError where an array of node ids names one that is not there."""
    for ids in named:
        if ids.size and not 0 <= ids.min() <= ids.max() < nodes:
            raise DataError(f"a file names node {ids.max() if ids.max() >= nodes else ids.min()} of {nodes} nodes.")


def mask_of(nodes: np.ndarray, size: int) -> np.ndarray:
    """[size] bool, true at these ids."""
    mask = np.zeros(size, dtype=bool)
    mask[nodes] = True
    return mask
