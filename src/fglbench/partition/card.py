"""The partition card: statistics of a partition and its split."""

from typing import Any

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.partition.base import Assignment
from fglbench.partition.split import Counts, clients_without
from fglbench.partition.subgraph import induced_edges


def partition_card(graph: Graph, assignment: Assignment, counts: Counts) -> dict[str, Any]:
    """Compute the statistics of a partition, as values that JSON can encode; edges are undirected.

    Args:
        graph: the whole graph.
        assignment: the nodes that each client holds, with the scheme's notes.
        counts: number of targets (nodes, or pairs of nodes) of each client, by role.

    Returns:
        The statistics by name.

        Lists with one value per client: `nodes`, `edges` (of its own graph), `isolated` (nodes without an edge there),
        `classes` (label histogram, one number per class of the dataset), `unlabelled`, `train`, `val`, `test`.

        Values of the whole partition: `total_nodes`; `total_edges`; `cut_edges` (edges that no client has: the missing
        links; without shared nodes, the clients' edges and the cut edges sum to all edges); `missing_link_share`
        (cut_edges / total_edges, 0 without edges); `cosine_distance` (see `mean_cosine_distance`); `without` (for
        train, val and test the clients without such a target, which do not train or are left out of that mean);
        `notes`.

        Only if there are any: `communities` per client; `copies` and `anchors` (nodes that other clients hold too) per
        client; `shared_nodes` (number of nodes that several clients hold); `holders` (number of nodes with 0, 1, 2, ...
        clients that hold them); `left_out` (number of nodes that no client has and that are not held out); `held_out`
        (number of nodes); `held_out_clients` (their numbers).
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

    return {
        "nodes": sizes.tolist(),
        "edges": (np.bincount(client, weights=degree, minlength=len(parts)).astype(np.int64) // 2).tolist(),
        "isolated": per_client(degree == 0),
        "classes": histogram.tolist(),
        "unlabelled": per_client(~labelled),
        **{name: of_clients.tolist() for name, of_clients in counts.items()},
        "total_nodes": graph.num_nodes,
        "total_edges": graph.num_edges,
        "cut_edges": graph.num_edges - covered,
        "missing_link_share": (graph.num_edges - covered) / graph.num_edges if graph.num_edges else 0.0,
        "cosine_distance": mean_cosine_distance(histogram),
        "without": clients_without(counts),
        "notes": list(assignment.notes),
        **({} if assignment.communities is None else {"communities": assignment.communities}),
        **({} if copy is None else {"copies": per_client(copy)}),
        **_beyond_a_partition(assignment, np.bincount(nodes, minlength=graph.num_nodes)),
    }


def _beyond_a_partition(assignment: Assignment, times: np.ndarray) -> dict[str, Any]:
    """Return the statistics of shared and unassigned nodes, from the number of clients of each node [num_nodes]."""
    held_out = len(assignment.held_out)
    shared = int((times > 1).sum())
    statistics = {
        "anchors": [int((times[nodes] > 1).sum()) for nodes in assignment.parts] if shared else [],
        "shared_nodes": shared,
        "holders": np.bincount(times).tolist() if shared else [],
        "left_out": int((times == 0).sum()) - held_out,
        "held_out": held_out,
        "held_out_clients": list(assignment.held_out_clients),
    }
    return {name: value for name, value in statistics.items() if value}


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
