"""The partition card: statistics of a partition and its split."""

from typing import Any, TypedDict, cast

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.partition.base import Assignment
from fglbench.partition.split import Counts, clients_without
from fglbench.partition.subgraph import induced_edges


class SharedNodes(TypedDict, total=False):
    """Statistics of shared and unassigned nodes. A key is missing if its value is 0 or empty.

    Attributes:
        anchors: for each client the number of its nodes that other clients hold too.
        shared_nodes: number of nodes that several clients hold.
        holders: number of nodes with 0, 1, 2, ... clients that hold them.
        left_out: number of nodes that no client has and that are not held out.
        held_out: number of nodes held out for the global test.
        held_out_clients: numbers of the clients that are tested but do not train.
    """

    anchors: list[int]
    shared_nodes: int
    holders: list[int]
    left_out: int
    held_out: int
    held_out_clients: list[int]


class PartitionCard(SharedNodes, total=False):
    """Statistics of a partition; edges are undirected, and lists have one entry per client.

    Attributes:
        nodes: number of nodes.
        edges: number of edges of the client's own graph.
        isolated: number of nodes without an edge there.
        classes: label histogram, one number per class of the dataset.
        unlabelled: number of nodes without a label.
        train, val, test: number of targets of this role.
        total_nodes: number of nodes of the whole graph.
        total_edges: number of edges of the whole graph.
        cut_edges: number of edges that no client has: the missing links. Without shared nodes, the clients' edges and
            the cut edges sum to all edges.
        missing_link_share: cut_edges / total_edges; 0 without edges.
        cosine_distance: see `mean_cosine_distance`.
        without: for train, val and test the clients without such a target. They do not train, or do not count in that
            mean.
        notes: of the scheme.
        communities: number of communities, if the scheme assigns communities.
        copies: number of nodes that another client owns, if the scheme defines owners.
        component_files: hashes of the file of a scheme from a components folder.
        request: everything that decides the split.
        sha256: checksum of `split.npz`.
    """

    nodes: list[int]
    edges: list[int]
    isolated: list[int]
    classes: list[list[int]]
    unlabelled: list[int]
    train: list[int]
    val: list[int]
    test: list[int]
    total_nodes: int
    total_edges: int
    cut_edges: int
    missing_link_share: float
    cosine_distance: float | None
    without: dict[str, list[int]]
    notes: list[str]
    communities: list[int]
    copies: list[int]
    component_files: dict[str, str]
    request: dict[str, Any]
    sha256: str


def partition_card(graph: Graph, assignment: Assignment, counts: Counts) -> PartitionCard:
    """Compute the statistics of a partition.

    Args:
        graph: the whole graph.
        assignment: the nodes that each client holds, with the scheme's notes.
        counts: number of targets (nodes, or pairs of nodes) of each client, by role.

    Returns:
        The statistics, as values that JSON can hold, without `component_files`, `request` and `sha256`.
    """
    parts = assignment.parts
    nodes = np.concatenate(parts)
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    client = np.repeat(np.arange(len(parts)), sizes)
    copy = None if assignment.copies is None else np.concatenate(assignment.copies)
    adjacency = induced_edges(graph, nodes, np.concatenate([[0], np.cumsum(sizes)]), copy)
    degree = np.diff(adjacency.indptr)
    covered = _covered_edges(adjacency, nodes, graph.num_nodes)
    labels = graph.labels[nodes]
    labelled = labels >= 0
    histogram = np.zeros((len(parts), graph.classes), dtype=np.int64)
    np.add.at(histogram, (client[labelled], labels[labelled]), 1)

    def per_client(which: np.ndarray) -> list[int]:
        return np.bincount(client[which], minlength=len(parts)).tolist()

    card: PartitionCard = {
        "nodes": sizes.tolist(),
        "edges": (np.bincount(client, weights=degree, minlength=len(parts)).astype(np.int64) // 2).tolist(),
        "isolated": per_client(degree == 0),
        "classes": histogram.tolist(),
        "unlabelled": per_client(~labelled),
        "train": counts["train"].tolist(),
        "val": counts["val"].tolist(),
        "test": counts["test"].tolist(),
        "total_nodes": graph.num_nodes,
        "total_edges": graph.num_edges,
        "cut_edges": graph.num_edges - covered,
        "missing_link_share": (graph.num_edges - covered) / graph.num_edges if graph.num_edges else 0.0,
        "cosine_distance": mean_cosine_distance(histogram),
        "without": clients_without(counts),
        "notes": list(assignment.notes),
        **_shared_nodes(assignment, np.bincount(nodes, minlength=graph.num_nodes)),
    }
    if assignment.communities is not None:
        card["communities"] = assignment.communities
    if copy is not None:
        card["copies"] = per_client(copy)
    return card


def _shared_nodes(assignment: Assignment, times: np.ndarray) -> SharedNodes:
    """Return the statistics of shared and unassigned nodes, from the number of clients of each node [num_nodes]."""
    held_out = len(assignment.held_out)
    shared = int((times > 1).sum())
    statistics: SharedNodes = {
        "anchors": [int((times[nodes] > 1).sum()) for nodes in assignment.parts] if shared else [],
        "shared_nodes": shared,
        "holders": np.bincount(times).tolist() if shared else [],
        "left_out": int((times == 0).sum()) - held_out,
        "held_out": held_out,
        "held_out_clients": list(assignment.held_out_clients),
    }
    return cast(SharedNodes, {name: value for name, value in statistics.items() if value})


def mean_cosine_distance(histogram: np.ndarray) -> float | None:
    """Compute the mean cosine distance between the label histograms of clients, over all unordered pairs.

    Args:
        histogram: [clients, classes] integer counts; clients without a labelled node are left out.

    Returns:
        The mean of 1 - cos, from 0 (same distribution) to 1 (no class in common); None if fewer than two clients have
        labels.
    """
    rows = histogram[histogram.sum(axis=1) > 0].astype(np.float64)
    if len(rows) < 2:
        return None
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = (unit @ unit.T)[np.triu_indices(len(rows), 1)]
    return float(np.clip(1 - cosine, 0, 1).mean())


def _covered_edges(adjacency: Any, nodes: np.ndarray, num_nodes: int) -> int:
    """Count the undirected edges of the whole graph that lie inside at least one client."""
    rows = np.repeat(nodes, np.diff(adjacency.indptr))
    keys = np.sort(rows * num_nodes + nodes[adjacency.indices])  # sorting is much faster than np.unique, which hashes
    return (int((np.diff(keys) > 0).sum()) + min(len(keys), 1)) // 2
