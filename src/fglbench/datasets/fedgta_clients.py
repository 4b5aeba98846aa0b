"""Datasets with the clients and roles that the authors of FedGTA publish (Li et al., VLDB 2023).

Their archive contains the whole graph. For each client it contains the subgraph, the roles of its nodes, and masks of
these roles over the nodes of the whole graph. The three masks of a client together mark its nodes. The published order
of nodes within a client is not kept.

The authors' code could assign a community twice to one client (as it did to two clients of Cora, with two nodes each).
Such a client holds these nodes twice: a first row without edges, and a second row with the edges. Here the second row,
with its role, is the node; the first rows are counted as `copies_removed`.
"""

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fglbench.datasets.base import Graph, canonical_edges
from fglbench.datasets.raw import read_raw
from fglbench.datasets.spec import DatasetSpec
from fglbench.errors import DataError
from fglbench.settings import ComponentSettings

_ROLES = ("train", "val", "test")


def load(spec: DatasetSpec, settings: ComponentSettings, root: Path) -> Graph:
    """Load a dataset.

    Args:
        spec: row of the catalogue.
        settings: not used.
        root: a folder with the layout of a mirror, which holds the archive of the dataset.

    Returns:
        The canonical graph, with masks and clients.

    Raises:
        DataError: the archive is damaged, its clients share or leave out nodes, a client has a node more than twice, or
            a client is not the subgraph of its nodes.
    """
    (path,) = spec.raw_files
    raw = read_raw(root / path)
    labels = raw["labels"]
    edges, cleaning = canonical_edges(raw["pairs"], len(labels))
    graph = Graph(edges, sp.csr_matrix(raw["x"]), labels, spec.classes)
    clients = np.full(len(labels), -1, dtype=np.int64)
    masks = {role: np.zeros(len(labels), dtype=bool) for role in _ROLES}
    copies = 0
    for client in range(spec.native_clients):
        prefix = f"client{client}."
        arrays = {name.removeprefix(prefix): array for name, array in raw.items() if name.startswith(prefix)}
        client_masks = {role: arrays[f"global_{role}_idx"] for role in _ROLES}
        held = np.any([*client_masks.values()], axis=0)
        if (clients[held] >= 0).any():
            raise DataError(f"node {np.flatnonzero(held & (clients >= 0))[0]} is in two clients.")
        clients[held] = client
        for role in _ROLES:
            masks[role] |= client_masks[role]
        for node in np.flatnonzero(np.sum([*client_masks.values()], axis=0) > 1):
            row = _last_row(arrays, labels[node], raw["x"][node])
            for role in _ROLES:
                masks[role][node] = arrays[f"{role}_idx"][row]
        copies += len(arrays["labels"]) - int(held.sum())
        _check(arrays, graph.induced(np.flatnonzero(held)), client)
    if (clients < 0).any():
        raise DataError(f"node {clients.argmin()} is in none of the {spec.native_clients} clients.")
    cleaning["copies_removed"] = copies
    return Graph(edges, graph.features, labels, spec.classes, masks, cleaning, clients)


def _last_row(arrays: dict[str, np.ndarray], label: int, features: np.ndarray) -> int:
    """Return the second row of a node that a client holds twice, found by its label and features."""
    rows = np.flatnonzero((arrays["labels"] == label) & (arrays["x"] == features).all(axis=1))
    if len(rows) != 2:
        raise DataError(f"a node with two roles has {len(rows)} rows in its client instead of 2.")
    return int(rows[1])


def _check(arrays: dict[str, np.ndarray], expected: Graph, client: int) -> None:
    """Compare a client's rows and edges with the subgraph of its nodes, regardless of the order of the nodes."""
    x = np.concatenate([arrays["x"], sp.csr_matrix(expected.features).toarray()])
    content = np.column_stack([np.concatenate([arrays["labels"], expected.labels]), x])
    _, same = np.unique(content, axis=0, return_inverse=True)
    theirs, ours = np.split(same.ravel(), [len(arrays["labels"])])
    kinds = same.max() + 1
    surplus = np.bincount(theirs, minlength=kinds) - np.bincount(ours, minlength=kinds)
    of_archive = np.sort(theirs[arrays["pairs"][0]] * kinds + theirs[arrays["pairs"][1]])
    of_graph = np.sort(ours[expected.edges[0]] * kinds + ours[expected.edges[1]])
    if (surplus < 0).any() or not np.array_equal(of_archive, of_graph):
        raise DataError(f"client {client} is not the subgraph of the nodes in its masks.")
