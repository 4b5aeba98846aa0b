"""The canonical graph of a dataset: `graph.npz`, and its data card `graph.json`, which is written last."""

from pathlib import Path
from typing import cast

import numpy as np
import scipy.sparse as sp

from fglbench.datasets.base import Graph, features_from, graph_arrays
from fglbench.datasets.card import DataCard
from fglbench.records.checksums import check_file
from fglbench.storage import hash_file, hash_npz, read_json, read_npz, write_json, write_npz

GRAPH_ARRAYS, GRAPH_CARD = "graph.npz", "graph.json"


def save_graph(graph: Graph, folder: Path, card: DataCard) -> None:
    """Write `graph.npz`, then `graph.json`, which marks the graph as complete.

    Args:
        graph: a canonical graph.
        folder: of the dataset.
        card: the data card; `classes`, `cleaning` and the checksum `sha256` are added.
    """
    write_npz(folder / GRAPH_ARRAYS, graph_arrays(graph))
    content = {"classes": graph.classes, "cleaning": graph.cleaning, "sha256": hash_file(folder / GRAPH_ARRAYS)}
    write_json(folder / GRAPH_CARD, {**card, **content})


def read_card(folder: Path) -> DataCard:
    """Read the data card of a graph.

    Args:
        folder: of the dataset.

    Returns:
        The content of `graph.json`. Cards of older versions lack keys that were added later.

    Raises:
        StorageError: the file is missing or damaged.
    """
    return cast(DataCard, read_json(folder / GRAPH_CARD))


def load_graph(folder: Path, features: bool = True) -> Graph:
    """Load a graph that `save_graph` wrote.

    Args:
        folder: of the dataset.
        features: whether to read the features; otherwise the graph has zero columns of features, and most of the file
            is not read.

    Returns:
        The graph.

    Raises:
        StorageError: a file is missing or damaged, or does not match its checksum.
    """
    card = read_card(folder)
    skipped = () if features else ("x", "x_indptr", "x_indices", "x_data", "x_shape")
    check_graph(folder)
    arrays = read_npz(folder / GRAPH_ARRAYS, skipped=skipped)
    masks = {name.removeprefix("mask_"): array for name, array in arrays.items() if name.startswith("mask_")}
    return Graph(
        edges=arrays["edges"],
        features=features_from(arrays) if features else np.zeros((len(arrays["labels"]), 0), dtype=np.float32),
        labels=arrays["labels"],
        classes=card["classes"],
        masks=masks,
        cleaning=card["cleaning"],
        clients=arrays.get("clients"),
    )


def check_graph(folder: Path) -> None:
    """Compare the graph of a dataset with the checksum in its data card.

    Args:
        folder: of the dataset.

    Raises:
        StorageError: a file is missing or damaged, or does not match its checksum.
    """
    archive, path = folder / GRAPH_ARRAYS, folder / GRAPH_CARD
    card = read_card(folder)
    if "sha256" in card:
        check_file(archive, card["sha256"], path)
    elif "content_hash" in card:  # the only checksum in cards of older versions
        check_file(archive, card["content_hash"], path, hash_npz)


def read_features(folder: Path) -> np.ndarray | sp.csr_matrix:
    """Load only the features of a graph.

    Args:
        folder: of the dataset.

    Returns:
        [num_nodes, num_features] float32, dense or CSR.

    Raises:
        StorageError: as `load_graph`.
    """
    check_graph(folder)
    return features_from(read_npz(folder / GRAPH_ARRAYS))


def read_labels(folder: Path) -> np.ndarray:
    """Load only the labels of a graph.

    Args:
        folder: of the dataset.

    Returns:
        [num_nodes] int64, -1 for a node without a label.

    Raises:
        StorageError: as `load_graph`.
    """
    check_graph(folder)
    return read_npz(folder / GRAPH_ARRAYS, ["labels"])["labels"]


def graph_checksum(folder: Path) -> str | None:
    """Return the checksum of a graph, from its data card.

    Args:
        folder: of the dataset.

    Returns:
        64 hexadecimal digits (SHA-256 of `graph.npz`); None if the card is of an older version without it.
    """
    return read_card(folder).get("sha256")
