"""Loader of users' own datasets: a file with a function `load` that returns a graph; see docs/adding-a-dataset.md."""

from collections.abc import Mapping
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
import scipy.sparse as sp

from fglbench import registry
from fglbench.datasets.base import Graph, canonical_edges
from fglbench.datasets.spec import DatasetSpec
from fglbench.errors import DataError
from fglbench.settings import ComponentSettings


def load(spec: DatasetSpec, settings: ComponentSettings, root: Path) -> Graph:
    """Load a user's own dataset by its file's function `load`.

    Args:
        spec: row of the dataset.
        settings: not used.
        root: not used; the file reads from its own folder.

    Returns:
        The graph that the function returns.

    Raises:
        DataError: the file has no function `load`, or the function fails or returns no graph.
    """
    path = registry.declaration("dataset", spec.name).path
    try:
        function = getattr(registry.module("dataset", spec.name), "load", None)
        if function is None:
            raise DataError("it has no function 'load(folder)'.")
        graph = function(path.parent)
    except DataError:
        raise
    except Exception as error:  # a user's file can raise any exception; the message names its line
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{path}:{lines[-1]}" if lines else str(path)
        raise DataError(f"{where}: {type(error).__name__}: {error}.") from error
    if not isinstance(graph, Graph):
        raise DataError(f"its 'load' returned a {type(graph).__name__}, not a graph of datasets.own.from_arrays.")
    return graph


def from_arrays(
    edges: np.ndarray,
    features: np.ndarray | sp.sparray | sp.spmatrix,
    labels: np.ndarray,
    masks: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """Make the canonical graph from plain arrays, for users' own datasets.

    Args:
        edges: [2, num_entries] integer node ids from 0, in any order, in one direction or both; duplicates and
            self-loops are removed and counted.
        features: [num_nodes, num_features] finite numbers, an array or any SciPy sparse matrix.
        labels: [num_nodes] integers from 0, -1 for a node without a class; every class up to the highest must occur.
        masks: official split, from "train", "val", "test" to [num_nodes] bool; no node has two roles. None: no split.

    Returns:
        The canonical graph.

    Raises:
        DataError: an array is not as described; the message names it.
    """
    edges, labels = np.asarray(edges), np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise DataError(f"labels: expected [num_nodes] integers, not {labels.dtype} {list(labels.shape)}.")
    nodes, classes = len(labels), int(labels.max()) + 1
    if labels.min() < -1 or not 0 < classes <= nodes:
        raise DataError(
            f"labels: classes count from 0, and -1 means no class; the labels of {nodes} nodes range from "
            f"{labels.min()} to {labels.max()}."
        )
    absent = np.setdiff1d(np.arange(classes), labels)
    if len(absent):
        raise DataError(f"labels: classes count from 0 without a gap; class {absent[0]} has no node.")
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"edges: expected [2, num_entries] integers, not {edges.dtype} {list(edges.shape)}.")
    if edges.size and not 0 <= edges.min() <= edges.max() < nodes:
        raise DataError(f"edges: node ids range from {edges.min()} to {edges.max()}; labels has {nodes} nodes.")
    x, roles = _float_features(features, nodes), _masks(masks, nodes)
    pairs, cleaning = canonical_edges(edges, nodes)
    return Graph(pairs, x, labels.astype(np.int64), classes, roles, cleaning)


def _float_features(features: Any, nodes: int) -> np.ndarray | sp.csr_matrix:
    matrix = features if sp.issparse(features) else np.asarray(features)
    if matrix.ndim != 2 or matrix.shape[0] != nodes or matrix.dtype.kind not in "biuf":
        raise DataError(
            f"features: expected [{nodes}, num_features] numbers, one row per label, not {matrix.dtype} "
            f"{list(matrix.shape)}."
        )
    with np.errstate(over="ignore"):  # because values beyond float32 are refused below
        x: np.ndarray | sp.csr_matrix = (
            sp.csr_matrix(matrix, dtype=np.float32, copy=True)
            if sp.issparse(matrix)
            else np.ascontiguousarray(matrix, dtype=np.float32)
        )
    if isinstance(x, sp.csr_matrix):
        x.sum_duplicates()
        x.eliminate_zeros()
    values = x.data if isinstance(x, sp.csr_matrix) else x
    if not np.isfinite(values).all():
        raise DataError(f"features: {int((~np.isfinite(values)).sum())} values are not finite as float32.")
    return x


def _masks(masks: Mapping[str, np.ndarray] | None, nodes: int) -> dict[str, np.ndarray]:
    if not isinstance(masks, Mapping | None):
        raise DataError(f"masks: expected a mapping from 'train', 'val' and 'test', not a {type(masks).__name__}.")
    arrays = {role: np.asarray(mask) for role, mask in (masks or {}).items()}
    if arrays and set(arrays) != {"train", "val", "test"}:
        raise DataError(f"masks: expected 'train', 'val' and 'test', not {', '.join(map(repr, arrays))}.")
    for role, mask in arrays.items():
        if mask.shape != (nodes,) or mask.dtype != bool:
            raise DataError(f"masks: '{role}' must be [{nodes}] bool, not {mask.dtype} {list(mask.shape)}.")
    ambiguous = int((np.sum([*arrays.values()], axis=0) > 1).sum())
    if ambiguous:
        raise DataError(f"masks: {ambiguous} nodes have two roles.")
    return arrays
