"""Datasets inside scikit-learn and networkx, which need no download.

`digits` and `breast-cancer` are tables. Their graphs join every row to its 10 nearest other rows. Their features are
standardised (mean 0, population standard deviation 1; a constant column becomes 0).
"""

import math
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fglbench.datasets.base import Graph, canonical_edges
from fglbench.datasets.spec import DatasetSpec
from fglbench.settings import ComponentSettings

NEIGHBOURS = 10
_KARATE_COMMUNITIES = "1111333101311100310101002200200200"
"""Class of every member: one of the four communities by modularity that Kipf and Welling (ICLR 2017) use."""


def load(spec: DatasetSpec, settings: ComponentSettings, root: Path) -> Graph:
    """Load `digits`, `breast-cancer` or `karate`.

    Args:
        spec: row of the catalogue.
        settings: not used.
        root: not used.

    Returns:
        The canonical graph, without masks.
    """
    if spec.name == "karate":
        return _karate(spec)
    from sklearn import datasets

    reader = {"digits": datasets.load_digits, "breast-cancer": datasets.load_breast_cancer}[spec.name]
    values, labels = reader(return_X_y=True)
    values = standardise(values)
    edges, cleaning = canonical_edges(nearest_neighbours(values, NEIGHBOURS), len(values))
    return Graph(edges, values.astype(np.float32), labels.astype(np.int64), spec.classes, cleaning=cleaning)


def standardise(values: np.ndarray) -> np.ndarray:
    """Standardise columns to mean 0 and population standard deviation 1.

    Sums are exactly rounded, so that the content hash in the catalogue holds on every processor.

    Args:
        values: [rows, columns] numbers.

    Returns:
        [rows, columns] float64; a constant column is 0.
    """
    values = values.astype(np.float64)
    mean = np.array([math.fsum(column) for column in values.T]) / len(values)
    centred = values - mean
    deviation = np.sqrt(np.array([math.fsum(column) for column in (centred**2).T]) / len(values))
    return centred / np.where(deviation > 0, deviation, 1)


def nearest_neighbours(values: np.ndarray, count: int) -> np.ndarray:
    """Find the nearest other rows of each row by Euclidean distance; ties go to the lower row.

    Distances are summed column by column. The matrix products of library searches round differently on different
    processors, which changes the result in near ties.

    Args:
        values: [num_rows, columns] float64.
        count: number of neighbours of each row.

    Returns:
        [2, num_rows * count] int64 pairs (row, neighbour).
    """
    rows = len(values)
    distance = np.zeros((rows, rows))
    for column in values.T:
        distance += (column[:, None] - column[None, :]) ** 2
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :count]
    return np.stack([np.repeat(np.arange(rows), count), nearest.ravel()])


def _karate(spec: DatasetSpec) -> Graph:
    import networkx as nx

    club = nx.karate_club_graph()
    edges, cleaning = canonical_edges(np.array(club.edges).T, len(club))
    labels = np.array([int(community) for community in _KARATE_COMMUNITIES], dtype=np.int64)
    return Graph(edges, sp.identity(len(club), dtype=np.float32, format="csr"), labels, spec.classes, cleaning=cleaning)
