"""Datasets in the layout of GraphSAINT (Zeng et al., ICLR 2020): adjacency, features, classes and roles in four files.

Features stay as in the files, dense; the public code of GraphSAINT standardises them by the training nodes. The
published files were not available during development. The tests read files of the same layout and compare the result
with torch_geometric's loader.
"""

from pathlib import Path, PurePosixPath

import numpy as np

from fglbench.datasets.base import Graph, canonical_edges, check_ids, mask_of
from fglbench.datasets.raw import read_raw
from fglbench.datasets.spec import DatasetSpec
from fglbench.settings import ComponentSettings

_ROLES = {"train": "tr", "val": "va", "test": "te"}


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
    raw = {PurePosixPath(path).name: read_raw(root / path) for path in spec.raw_files}
    features = raw["feats.npy"]["values"].astype(np.float32, copy=False)
    nodes, classes = raw["class_map.json"], raw["class_map.json"]["values"]
    named = [raw["adj_full.npz"]["pairs"], nodes["nodes"], *raw["role.json"].values()]
    check_ids(named, len(features))
    labels = np.full(len(features), -1, dtype=np.int64)
    labels[nodes["nodes"]] = classes
    edges, cleaning = canonical_edges(named[0], len(features))
    return Graph(
        edges=edges,
        features=features,
        labels=labels,
        classes=spec.classes,
        masks={role: mask_of(raw["role.json"][short], len(features)) for role, short in _ROLES.items()},
        cleaning=cleaning,
    )
