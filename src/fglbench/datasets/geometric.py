"""Loader of the datasets that torch_geometric reads, from a folder of verified raw files.

Features stay as torch_geometric returns them, without normalisation: counts or tf-idf for Planetoid, presence of a word
for the others. PolBlogs has no features; each node's feature is its one-hot id.
"""

import io
import warnings
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
import torch_geometric.datasets
from torch_geometric.data import Data

from fglbench.datasets.base import Graph, canonical_edges
from fglbench.datasets.components import largest_component
from fglbench.datasets.raw import read_raw
from fglbench.datasets.spec import DatasetSpec
from fglbench.settings import ComponentSettings

SPARSE_BELOW = 0.25
"""Fraction of non-zero features below which they are stored as a CSR matrix.

On a CPU, dense and sparse products with the weights (and their gradients) take the same time at a fraction of 0.3 for
64 columns of weights, and at 0.2 for 256 columns (`benchmarks/first_product.py`).
"""


def load(spec: DatasetSpec, settings: ComponentSettings, root: Path) -> Graph:
    """Load a dataset.

    Args:
        spec: row of the catalogue.
        settings: not used.
        root: a private folder with the layout of a mirror, which holds the verified raw files of the dataset;
            torch_geometric also writes its processed files there.

    Returns:
        The canonical graph, or its largest connected component if the row says so.
    """
    kind, name = spec.pyg
    arguments = {"name": name} if name else {}
    with warnings.catch_warnings():
        # The loaders unpickle files of old numpy and scipy versions, whose modules have been renamed since. They also
        # make tensors of read-only pandas arrays, which is safe because no code here writes to them.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        loader = getattr(torch_geometric.datasets, kind)
        with redirect_stderr(io.StringIO()):  # because it prints every file that it processes
            dataset = loader(str(root / kind), pre_transform=_sparse_features, **arguments)
    data = dataset[0]
    labels = data.y.numpy().astype(np.int64)
    edges, _ = canonical_edges(data.edge_index.numpy(), len(labels))
    graph = Graph(
        edges=edges,
        features=_features(data, len(labels)),
        labels=labels,
        classes=spec.classes,
        masks={role: data[f"{role}_mask"].numpy() for role in ("train", "val", "test") if f"{role}_mask" in data},
        cleaning=_cleaning(spec, root, len(labels)),
    )
    return largest_component(graph) if spec.largest_component else graph


def _sparse_features(data: Data) -> Data:
    """Make the features sparse before torch_geometric stores its processed copy.

    A dense matrix would take 1.2 GB for physics.
    """
    if data.x is not None:
        matrix = sp.csr_matrix(data.x.numpy())
        data.x = None
        for part in ("data", "indices", "indptr"):
            data[f"feature_{part}"] = torch.from_numpy(getattr(matrix, part))
        data.feature_columns = matrix.shape[1]
    return data


def _features(data: Data, nodes: int) -> np.ndarray | sp.csr_matrix:
    if "feature_columns" not in data:
        return sp.identity(nodes, dtype=np.float32, format="csr")
    parts = tuple(data[f"feature_{part}"].numpy() for part in ("data", "indices", "indptr"))
    matrix = sp.csr_matrix(parts, shape=(nodes, data.feature_columns))
    return matrix if matrix.nnz < SPARSE_BELOW * nodes * data.feature_columns else matrix.toarray()


def _cleaning(spec: DatasetSpec, root: Path, nodes: int) -> dict[str, int]:
    """Count duplicates and self-loops in the raw file.

    The loaders of torch_geometric remove them, so that they cannot be counted afterwards.
    """
    for path in spec.raw_files:
        arrays = read_raw(root / path)
        if "pairs" in arrays:
            return canonical_edges(arrays["pairs"], nodes)[1]
    raise AssertionError(f"{spec.name}: no raw file contains edges")
