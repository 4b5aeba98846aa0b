"""Stage preprocess: the block-diagonal operator and propagated features of a partition, shared by seeds and methods.

A = D^(r-1) (A + I) D^(-r) of every client's own graph (FedGTA, eq. 1). A backbone says what it needs by `prepared()`:

    r: kernel coefficient.
    hops: applications of A in its first linear map that may be made here.
    self_loops: whether A has self-loops; true where it is left out.
    combine: "last" (A^hops X; also where it is left out), "each" (X, A X, ..., A^hops X) or a list of hops + 1
        coefficients c (sum over l of c_l A^l X).
    fill: false where sparse features are never to be propagated here; left out where `pays` decides.

A method that changes graphs while it trains (`rebuild`) has nothing propagated here, which `propagate: false` says.

Under the inductive setting all of it is made twice: of the whole client graphs, on which models are scored, and of
these without validation and test nodes, on which they are trained (as GraphSAINT does, Zeng et al., ICLR 2020).

Dense features are propagated here, once. Sparse ones would fill up, so the engine propagates their product with the
weights instead, which is the same by associativity; but for several hops it is faster to fill them up where they have
few columns (`pays`). A backbone whose hops share their weights is better served without (`fill`): one product that is
propagated once for each hop, against a product for each hop.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from fglbench.checksums import check_file, check_graph, check_listed
from fglbench.datasets.base import Graph, features_from, load_graph
from fglbench.errors import DataError, PartitionError, StorageError
from fglbench.federation.adjacency import normalised
from fglbench.partition.split import NONE, TEST, TRAIN, VAL
from fglbench.partition.subgraph import induced_edges
from fglbench.stages.split import Split, load_split
from fglbench.storage import exclusive, hash_arrays, hash_npz, read_json, read_npz, write_npz

if TYPE_CHECKING:
    from fglbench.federation.federation import Federation

FILE = "federation.npz"
CONTENT = "content"
"""The array with the checksum of all others."""
TRAINING = "training_"
"""Prefix of the arrays of the graphs without validation and test nodes."""

_MOST_FILLED_BYTES = 2**30
_DENSE_PER_SPARSE = 4  # entries of dense matrices that a product reads in the time of one sparse entry, on a CPU


def row_normalised(features: np.ndarray | sp.csr_matrix) -> np.ndarray | sp.csr_matrix:
    """Each row divided by its sum; rows that sum to zero stay zero.

    Raises:
        DataError: a feature is negative, so that sums near zero would blow rows up.
    """
    if features.min() < 0:
        raise DataError("protocol.features: row needs features without negative values; use features: raw here.")
    total = np.asarray(features.sum(axis=1), dtype=np.float32).reshape(-1, 1)
    factor = np.divide(1.0, total, out=np.zeros_like(total), where=total != 0)
    return features * factor if isinstance(features, np.ndarray) else sp.csr_matrix(features.multiply(factor))


def preprocess(graph_folder: Path, split_folder: Path, spec: dict[str, Any], seeds: list[int], folder: Path) -> None:
    """Writes `seed<k>/federation.npz` for each seed; those that were made from the same split and graph are kept.

    Args:
        graph_folder, split_folder: results of download and split.
        spec: what the backbone needs, `features` ("raw" or "row"), and `setting` where it is "inductive".
        seeds: cell seeds.
        folder: where to write.
    """
    graph: Graph | None = None
    for seed in seeds:
        source, target = split_folder / f"seed{seed}", folder / f"seed{seed}" / FILE
        with exclusive(target):
            if is_current(target, source, graph_folder):
                continue
            graph = graph or load_graph(graph_folder)
            split = load_split(source)
            arrays = prepared_arrays(graph, split, spec)
            if spec.get("setting") == "inductive":
                own = prepared_arrays(graph, training_split(split), spec)
                arrays |= {f"{TRAINING}{name}": array for name, array in own.items()}
            arrays["split"] = _as_bytes(split_checksum(source))
            if made_from := graph_checksum(graph_folder):
                arrays["graph"] = _as_bytes(made_from)
            write_npz(target, {**arrays, CONTENT: _as_bytes(hash_arrays(arrays))})


def _as_bytes(checksum: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(checksum), dtype=np.uint8)


def check_prepared(path: Path) -> None:
    """Compares a federation file with the checksum that it holds itself; files of older versions, which hold none, with
    the lists of the jobs.

    Raises:
        StorageError: the file is missing, damaged or altered.
    """
    expected = _checksum(path, CONTENT)
    if expected:
        check_file(path, expected, path, _content_hash)
    else:
        check_listed(path)


def _content_hash(path: Path) -> str:
    return hash_npz(path, skipped=(CONTENT,))


def is_unharmed(path: Path) -> bool:
    """Whether `check_prepared` has nothing to say."""
    try:
        check_prepared(path)
    except StorageError:
        return False
    return True


def is_current(prepared: Path, split_folder: Path, graph_folder: Path) -> bool:
    """Whether a federation file is there, unharmed, and made from this split and this graph."""
    graph = _checksum(prepared, "graph")  # files of older versions do not say
    return (
        split_of(prepared) == split_checksum(split_folder)
        and graph in (None, graph_checksum(graph_folder))
        and is_unharmed(prepared)
    )


def graph_checksum(graph_folder: Path) -> str | None:
    """SHA-256 of a graph's file, from its data card; None where a card of an older version has none."""
    return read_json(graph_folder / "graph.json").get("sha256")


def split_checksum(split_folder: Path) -> str:
    """SHA-256 of a seed's split, from its card."""
    return read_json(split_folder / "card.json")["sha256"]


def split_of(prepared: Path) -> str | None:
    """The checksum of the split that a federation file was made from; None where there is no such file."""
    return _checksum(prepared, "split")


def _checksum(prepared: Path, name: str) -> str | None:
    try:
        return read_npz(prepared, [name])[name].tobytes().hex()
    except StorageError:
        return None


def training_split(split: Split) -> Split:
    """The same clients without their validation and test nodes; a client may be left without any node.

    Nodes without a role (of no label, or in none of the official masks) stay.
    """
    kept = ~np.isin(split.role, (VAL, TEST))
    ptr = np.concatenate([[0], np.cumsum(kept)])[split.ptr]
    copy = None if split.copy is None else split.copy[kept]
    return Split(split.nodes[kept], ptr, split.role[kept], copy=copy)


def prepared_arrays(graph: Graph, split: Split, spec: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of one federation: clients, labels, roles, operator, and features where they are propagated."""
    edges = induced_edges(graph, split.nodes, split.ptr, split.copy)
    operator = normalised(edges, spec["r"], spec.get("self_loops", True))
    arrays = {
        "nodes": split.nodes,
        "ptr": split.ptr,
        "role": split.role,
        "labels": graph.labels[split.nodes],
        "operator_indptr": operator.indptr.astype(np.int64),
        "operator_indices": operator.indices.astype(np.int32),
        "operator_data": operator.data,
    }
    if len(split.held_out):
        arrays["held_out"] = split.held_out
    if split.copy is not None:
        arrays["copy"] = split.copy
    rows = int((split.role == TRAIN).sum()) or len(split.nodes)  # the graph of a global test has no training nodes
    if spec["hops"] and spec.get("propagate", True) and pays(graph.features, operator, rows, spec):
        x = graph.features if spec["features"] == "raw" else row_normalised(graph.features)
        arrays |= propagated(_filled(x[split.nodes]), operator, spec)  # without a name here, so that it can go
    return arrays


def _filled(x: np.ndarray | sp.csr_matrix) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else x.toarray()


def pays(features: np.ndarray | sp.csr_matrix, operator: sp.csr_matrix, rows: int, spec: dict[str, Any]) -> bool:
    """Whether features are propagated here rather than their product with the weights in every step.

    Dense ones always are, and sparse ones never where the backbone asks not to. Else training reads nearly every entry
    of sparse ones, and the operator once for each hop; of filled ones it reads the rows of the training nodes, where an
    entry costs about a quarter.

    Args:
        features, operator: of the graph.
        rows: training nodes.
        spec: what the backbone needs.
    """
    if isinstance(features, np.ndarray):
        return True
    if not spec.get("fill", True):
        return False
    columns, hops = features.shape[1], spec["hops"]
    size_bytes = 4 * columns * operator.shape[0] * (hops if spec.get("combine") == "each" else 1)
    entries = features.nnz + hops * operator.nnz
    return hops > 1 and rows * columns < _DENSE_PER_SPARSE * entries and size_bytes <= _MOST_FILLED_BYTES


def propagated(x: np.ndarray, operator: sp.csr_matrix, spec: dict[str, Any]) -> dict[str, np.ndarray]:
    """What `spec["combine"]` makes of [N, num_features] features.

    Returns:
        `x` [N, num_features]; with "each", `hop_x` [hops, N, num_features] instead: A X, ..., A^hops X.
    """
    combine, hops = spec.get("combine", "last"), spec["hops"]
    if combine == "each":
        filled = np.empty((hops, *x.shape), dtype=np.float32)
        for hop in range(hops):
            filled[hop] = operator @ (filled[hop - 1] if hop else x)
        return {"hop_x": filled}
    total = None if combine == "last" else np.float32(combine[0]) * x
    for hop in range(1, hops + 1):
        x = operator @ x
        if total is not None:
            total += np.float32(combine[hop]) * x
    return {"x": x if total is None else total}


def load_federation(graph_folder: Path, prepared_folder: Path, spec: dict[str, Any]) -> "Federation":
    """The federation of one seed to train on; under the inductive setting with the `evaluated` one to score on.

    Args:
        graph_folder: result of download.
        prepared_folder: the seed's folder of `preprocess`.
        spec: as given to `preprocess`.
    """
    arrays = _read(prepared_folder)
    whole = _federation(arrays, graph_folder, spec)
    if spec.get("setting") != "inductive":
        return whole
    own = {name.removeprefix(TRAINING): array for name, array in arrays.items() if name.startswith(TRAINING)}
    return replace(_federation(own, graph_folder, spec), evaluated=whole)


def load_global_test(graph_folder: Path, prepared_folder: Path, spec: dict[str, Any], kind: str) -> "Federation":
    """The graph of the global test as a federation of one client whose test nodes are the tested ones.

    Args:
        graph_folder, prepared_folder, spec: as in `load_federation`.
        kind: "whole": the whole graph, no edge cut, tested on what is a test node of some client; "held_out": the graph
            of the nodes held out from all clients, tested on all of them that have a label.

    Raises:
        PartitionError: "held_out", and the partition holds no nodes out.
    """
    graph = load_graph(graph_folder)
    stored = _read(prepared_folder)
    if kind == "whole":
        nodes = np.arange(graph.num_nodes)
        role = np.zeros(graph.num_nodes, dtype=np.int8)
        role[stored["nodes"]] = stored["role"]
    elif "held_out" not in stored:
        raise PartitionError(
            "protocol.global_test: 'held_out' needs nodes that no client gets, and this partition has none. Set "
            "protocol.split.held_out, take a scheme that names held-out nodes, or 'whole'."
        )
    else:
        nodes = stored["held_out"]
        role = np.where(graph.labels[nodes] >= 0, TEST, NONE).astype(np.int8)
    split = Split(nodes, np.array([0, len(nodes)]), role)
    return _federation(prepared_arrays(graph, split, spec), graph_folder, spec)


def _read(prepared_folder: Path) -> dict[str, np.ndarray]:
    check_prepared(prepared_folder / FILE)
    return read_npz(prepared_folder / FILE)


def _federation(arrays: dict[str, np.ndarray], graph_folder: Path, spec: dict[str, Any]) -> "Federation":
    from fglbench.federation.federation import Federation

    size = len(arrays["nodes"])
    parts = tuple(arrays[f"operator_{name}"] for name in ("data", "indices", "indptr"))
    if "x" in arrays:
        features = arrays["x"]
    else:
        check_graph(graph_folder)
        features = features_from(read_npz(graph_folder / "graph.npz"))
        if spec["features"] == "row":
            features = row_normalised(features)
        features = features[arrays["nodes"]]
        if "hop_x" in arrays and not isinstance(features, np.ndarray):
            features = features.toarray()
    combine = spec.get("combine", "last")
    return Federation(
        ptr=arrays["ptr"],
        labels=arrays["labels"],
        role=arrays["role"],
        classes=read_json(graph_folder / "graph.json")["classes"],
        operator=sp.csr_matrix(parts, shape=(size, size)),
        features=features,
        propagated=spec["hops"] if "x" in arrays or "hop_x" in arrays else 0,
        combine=tuple(combine) if isinstance(combine, list) else combine,
        hop_features=list(arrays["hop_x"]) if "hop_x" in arrays else None,
        nodes=arrays["nodes"],
        copy=arrays.get("copy"),
    )
