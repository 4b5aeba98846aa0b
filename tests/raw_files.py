"""Small synthetic raw files in the layouts of GraphSAINT and OGB, for datasets without local copies."""

import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from fglbench.datasets import catalogue
from fglbench.datasets.spec import Announced, Counts

NODES, FEATURES, CLASSES = 40, 6, 4


@dataclass(frozen=True)
class Content:
    """Content of the raw files.

    Attributes:
        pairs: [2, entries], edges with a duplicate and a self-loop.
        features: [nodes, features] float32.
        labels: [nodes], -1 for unknown labels.
        roles: node ids by role.
    """

    pairs: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    roles: dict[str, np.ndarray]


def content(*, both: bool, unlabelled: int = 0) -> Content:
    """Return 40 nodes in 4 classes with an official split; every edge has one direction, or both with `both`."""
    stream = np.random.default_rng(3)
    keys = np.unique(stream.integers(0, NODES * NODES, 150))
    pairs = np.stack([keys // NODES, keys % NODES])
    pairs = pairs[:, pairs[0] < pairs[1]]
    pairs = np.concatenate([pairs, pairs[::-1]] if both else [pairs, [[5, pairs[0, 0]], [5, pairs[1, 0]]]], axis=1)
    labels = np.arange(NODES) % CLASSES
    order = stream.permutation(np.arange(NODES - unlabelled))
    labels[NODES - unlabelled :] = -1
    parts = np.split(order, [len(order) // 2, len(order) * 3 // 4])
    features = stream.standard_normal((NODES, FEATURES)).astype(np.float32)
    return Content(pairs, features, labels, dict(zip(("train", "val", "test"), map(np.sort, parts), strict=True)))


def write_graphsaint(made: Content, folder: Path) -> None:
    """Write `adj_full.npz`, `feats.npy` (float64), `class_map.json` and `role.json`."""
    folder.mkdir(parents=True)
    ones = np.ones(made.pairs.shape[1], dtype=bool)
    sp.save_npz(folder / "adj_full.npz", sp.csr_matrix((ones, tuple(made.pairs)), shape=(NODES, NODES)))
    np.save(folder / "feats.npy", made.features.astype(np.float64))
    (folder / "class_map.json").write_text(json.dumps({str(node): int(own) for node, own in enumerate(made.labels)}))
    short = {"train": "tr", "val": "va", "test": "te"}
    (folder / "role.json").write_text(json.dumps({short[role]: ids.tolist() for role, ids in made.roles.items()}))


def write_ogb(made: Content, folder: Path, kind: str, *, binary: bool) -> None:
    """Write `raw/` as text tables or binary arrays, and `split/<kind>/`."""
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / kind).mkdir(parents=True)
    labels = np.where(made.labels < 0, np.nan, made.labels).reshape(-1, 1)
    if binary:
        edges, sizes = made.pairs.astype(np.int64), np.array([NODES])
        years = np.full((NODES, 1), 2019)
        arrays: dict[str, Any] = {"num_nodes_list": sizes, "num_edges_list": np.array([edges.shape[1]])}
        np.savez(folder / "raw/data.npz", edge_index=edges, node_feat=made.features, node_year=years, **arrays)
        np.savez(folder / "raw/node-label.npz", node_label=labels.astype(np.float32))
    else:
        tables = {"edge": made.pairs.T, "node-feat": made.features, "node-label": made.labels.reshape(-1, 1)}
        tables |= {"num-node-list": np.array([[NODES]]), "num-edge-list": np.array([[made.pairs.shape[1]]])}
        for name, table in tables.items():
            write_table(folder / f"raw/{name}.csv.gz", table)
    for name, role in (("train", "train"), ("valid", "val"), ("test", "test")):
        write_table(folder / f"split/{kind}/{name}.csv.gz", made.roles[role].reshape(-1, 1))


def write_table(path: Path, table: np.ndarray) -> None:
    """Write a gzipped CSV file without a header."""
    with gzip.open(path, "wt") as stream:
        np.savetxt(stream, table, delimiter=",", fmt="%.9g" if table.dtype.kind == "f" else "%d")


def announce(monkeypatch: pytest.MonkeyPatch, name: str, made: Content, **changes: Any) -> None:
    """Replace the published sizes in the catalogue by those of these files."""
    sizes = Counts(NODES, made.pairs.shape[1], FEATURES, CLASSES)
    spec = replace(catalogue.get(name), counts=sizes, announced=Announced(made.pairs.shape[1], raw_mb=1), **changes)
    monkeypatch.setitem(catalogue.CATALOGUE, name, spec)
