"""Node datasets of the Open Graph Benchmark, read from the raw files of its archives without the library `ogb`.

The library asks on standard input before large downloads, and stores a pickle that torch 2.6 and later refuse to read.
Citations are directed in the files; the canonical graph drops the direction. A node whose label is missing (most papers
of papers100m) gets the label -1. Masks are the official ones: by year, or by sales rank.

The published files were not available during development. The tests read files of the same layout and compare the
result with the library's reader.
"""

from pathlib import Path, PurePosixPath

import numpy as np

from fglbench.datasets.base import Graph, canonical_edges, check_ids, mask_of
from fglbench.datasets.raw import read_raw
from fglbench.datasets.spec import DatasetSpec
from fglbench.settings import ComponentSettings

_ROLES = {"train": "train.csv.gz", "val": "valid.csv.gz", "test": "test.csv.gz"}


def load(spec: DatasetSpec, settings: ComponentSettings, root: Path) -> Graph:
    """Load a dataset.

    Args:
        spec: row of the catalogue.
        settings: not used.
        root: a folder with the layout of a mirror, which holds the raw files of the dataset.

    Returns:
        The canonical graph, with the official masks.

    Raises:
        DataError: a file is damaged, or refers to nodes that the features do not have.
    """
    paths = {PurePosixPath(path).name: root / path for path in spec.raw_files}
    if "data.npz" in paths:
        arrays = read_raw(paths["data.npz"])
        pairs, features, labels = arrays.pop("pairs"), arrays.pop("values"), read_raw(paths["node-label.npz"])
    else:
        pairs = read_raw(paths["edge.csv.gz"])["pairs"]
        features, labels = read_raw(paths["node-feat.csv.gz"])["values"], read_raw(paths["node-label.csv.gz"])
    roles = {role: read_raw(paths[name])["values"][:, 0].astype(np.int64) for role, name in _ROLES.items()}
    check_ids([pairs, *roles.values()], len(features))
    edges, cleaning = canonical_edges(pairs, len(features))
    return Graph(
        edges=edges,
        features=features.astype(np.float32, copy=False),
        labels=np.nan_to_num(labels["values"].reshape(-1), nan=-1).astype(np.int64),
        classes=spec.classes,
        masks={role: mask_of(nodes, len(features)) for role, nodes in roles.items()},
        cleaning=cleaning,
    )
