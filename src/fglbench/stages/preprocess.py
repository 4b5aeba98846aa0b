"""Make client graphs, normalised operators and propagated features. Seeds and methods share the results.

A backbone states its needs as typed requests (`fglbench.settings`), and `federation.propagation` answers them. For a
method that changes the graph while it trains, the specification has `propagate: false`, and no features are propagated
here.

In the inductive setting, everything is made twice: for the whole client graphs, on which models are scored, and for the
client graphs without validation and test nodes, on which models are trained (as in GraphSAINT, Zeng et al., ICLR
2020).
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fglbench.datasets.base import Graph
from fglbench.errors import DataError, PartitionError
from fglbench.federation.propagation import Propagated, normalised, propagated_features, worth_propagating
from fglbench.partition.links import Pairs
from fglbench.partition.ratios import NONE, TEST, TRAIN, VAL
from fglbench.partition.subgraph import induced_edges, without_edges
from fglbench.records.federation import FEDERATION, is_current, read_federation, save_federation
from fglbench.records.graph import load_graph, read_card, read_features
from fglbench.records.specs import ResolvedPreprocessing
from fglbench.records.split import Split, load_split
from fglbench.settings import Propagation
from fglbench.storage import exclusive

if TYPE_CHECKING:
    from fglbench.federation.federation import Federation

TRAINING = "training_"
"""Prefix of the arrays of the client graphs without validation and test nodes."""


def row_normalised(features: np.ndarray | sp.csr_matrix) -> np.ndarray | sp.csr_matrix:
    """Divide each row by its sum; rows that sum to zero stay zero.

    Args:
        features: [num_nodes, num_features] float32, dense or CSR.

    Returns:
        [num_nodes, num_features] float32, dense or CSR like `features`.

    Raises:
        DataError: a feature is negative. The sum of a row could then be close to zero, and its quotients very large.
    """
    if features.min() < 0:
        raise DataError("protocol.features: row needs features without negative values; use features: raw here.")
    total = np.asarray(features.sum(axis=1), dtype=np.float32).reshape(-1, 1)
    factor = np.divide(1.0, total, out=np.zeros_like(total), where=total != 0)
    return features * factor if isinstance(features, np.ndarray) else sp.csr_matrix(features.multiply(factor))


def chosen_features(features: np.ndarray | sp.csr_matrix, kind: str) -> np.ndarray | sp.csr_matrix:
    """Return the features that a backbone reads.

    Args:
        features: [num_nodes, num_features] float32, dense or CSR.
        kind: "raw" for the features themselves, "row" for each row divided by its sum, or "identity" for one-hot ids of
            the nodes, which are the same for all clients.

    Returns:
        [num_nodes, num_features] float32, dense or CSR like `features`; for "identity" [num_nodes, num_nodes] float32
        CSR.

    Raises:
        DataError: see `row_normalised`.
    """
    if kind == "identity":
        return sp.eye(features.shape[0], dtype=np.float32, format="csr")
    return row_normalised(features) if kind == "row" else features


def preprocess(
    graph_folder: Path, split_folder: Path, spec: ResolvedPreprocessing, seeds: list[int], folder: Path
) -> None:
    """Write `seed<k>/federation.npz` for each seed, and keep files that were made from the same split and graph.

    Args:
        graph_folder: result of download.
        split_folder: result of split, with a folder for each seed.
        spec: the backbone's request, `features` (see `chosen_features`), and `setting` if it is "inductive".
        seeds: the cell seeds.
        folder: where the files are written.

    Raises:
        DataError: see `federation_arrays`.
        StorageError: the graph or a split is missing, damaged or altered.
    """
    graph: Graph | None = None
    for seed in seeds:
        source, target = split_folder / f"seed{seed}", folder / f"seed{seed}"
        with exclusive(target / FEDERATION):
            if is_current(target, source, graph_folder):
                continue
            graph = graph or load_graph(graph_folder)
            split = load_split(source)
            arrays = federation_arrays(graph, split, spec)
            if spec.get("setting") == "inductive":
                training = federation_arrays(graph, training_split(split), spec)
                arrays |= {f"{TRAINING}{name}": array for name, array in training.items()}
            save_federation(target, arrays, source, graph_folder)


def training_split(split: Split) -> Split:
    """Return the split without validation and test nodes.

    Nodes without a role stay: they have no label, or are in none of the official masks.

    Args:
        split: of one seed.

    Returns:
        The same clients, without held-out nodes and pairs. A client may have no node.
    """
    kept = ~np.isin(split.role, (VAL, TEST))
    ptr = np.concatenate([[0], np.cumsum(kept)])[split.ptr]
    copy = None if split.copy is None else split.copy[kept]
    return Split(split.nodes[kept], ptr, split.role[kept], copy=copy)


def federation_arrays(graph: Graph, split: Split, spec: ResolvedPreprocessing) -> dict[str, np.ndarray]:
    """Compute the arrays of the client graphs of one seed.

    Args:
        graph: the whole graph.
        split: the nodes of all clients and their roles.
        spec: see `preprocess`.

    Returns:
        The arrays by name. `nodes`, `ptr` and `role` are those of the split, and `labels` is [N] int64. `adjacency_*`
        and `operator_*` are the CSR parts of the edges and of the normalised operator. `held_out`, `copy` and the
        arrays of the pairs are there if the split has them. If features are propagated ahead of training, there is
        also `x` [N, num_features] float32, or `hop_x` [hops, N, num_features] float32 if the request combines "each".

    Raises:
        DataError: the graph has no features, and `spec` does not ask for "identity"; or see `row_normalised`.
    """
    if not graph.num_features and spec["features"] != "identity":
        raise DataError("the graph has no features. Set protocol.features: identity, which gives one-hot ids.")
    request = Propagation.from_spec(spec)
    adjacency = induced_edges(graph, split.nodes, split.ptr, split.copy)
    if split.pairs is not None:
        adjacency = without_edges(adjacency, split.pairs.ends[split.pairs.edge])
    operator = normalised(adjacency, request.r, request.self_loops)
    arrays = {
        "nodes": split.nodes,
        "ptr": split.ptr,
        "role": split.role,
        "labels": graph.labels[split.nodes],
        "adjacency_indptr": adjacency.indptr.astype(np.int64),
        "adjacency_indices": adjacency.indices.astype(np.int32),
        "operator_indptr": operator.indptr.astype(np.int64),
        "operator_indices": operator.indices.astype(np.int32),
        "operator_data": operator.data,
    }
    if len(split.held_out):
        arrays["held_out"] = split.held_out
    if split.copy is not None:
        arrays["copy"] = split.copy
    if split.pairs is not None:
        arrays |= split.pairs.arrays()
    rows = int((split.role == TRAIN).sum()) or len(split.nodes)  # the held-out test and links have no training nodes
    if request.hops and spec.get("propagate", True):
        x = chosen_features(graph.features, spec["features"])
        if worth_propagating(x, operator, rows, request):
            name = "hop_x" if request.combine == "each" else "x"
            # The dense copy has no name here, so its memory can be freed early.
            arrays[name] = propagated_features(_filled(x[split.nodes]), operator, request)
    return arrays


def _filled(x: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Return a dense array of the features."""
    return x if isinstance(x, np.ndarray) else x.toarray()


def load_federation(graph_folder: Path, preprocessed_folder: Path, spec: ResolvedPreprocessing) -> "Federation":
    """Load the federation of one seed for training.

    Args:
        graph_folder: result of download.
        preprocessed_folder: the seed's folder of `preprocess`.
        spec: as given to `preprocess`.

    Returns:
        The client graphs. In the inductive setting they lack validation and test nodes, and `evaluated` holds the whole
        client graphs for scoring.
    """
    arrays = read_federation(preprocessed_folder)
    whole = _federation(arrays, graph_folder, spec)
    if spec.get("setting") != "inductive":
        return whole
    training = {name.removeprefix(TRAINING): array for name, array in arrays.items() if name.startswith(TRAINING)}
    return replace(_federation(training, graph_folder, spec), evaluated=whole)


def load_global_test(
    graph_folder: Path, preprocessed_folder: Path, spec: ResolvedPreprocessing, kind: str
) -> "Federation":
    """Load the graph of the global test as a federation of one client, which is scored on its test nodes.

    Args:
        graph_folder: result of download.
        preprocessed_folder: the seed's folder of `preprocess`.
        spec: as given to `preprocess`.
        kind: "whole" for the whole graph with all edges, tested on every node that is a test node of some client;
            "held_out" for the graph of the nodes that no client has, tested on those with a label.

    Returns:
        The federation of one client.

    Raises:
        PartitionError: `kind` is "held_out", and the partition has no held-out nodes.
    """
    graph = load_graph(graph_folder)
    stored = read_federation(preprocessed_folder)
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
    return _federation(federation_arrays(graph, split, spec), graph_folder, spec)


def _federation(arrays: dict[str, np.ndarray], graph_folder: Path, spec: ResolvedPreprocessing) -> "Federation":
    """Return the federation of stored arrays."""
    from fglbench.federation.federation import Federation

    request, operator = Propagation.from_spec(spec), _csr(arrays, "operator")

    def features() -> np.ndarray | sp.csr_matrix:
        return chosen_features(read_features(graph_folder), spec["features"])[arrays["nodes"]]

    # Propagated features replace X in memory; X itself is loaded on first use.
    x = None if "x" in arrays else features()
    if "x" in arrays:
        made = Propagated(operator, [arrays["x"]], request.hops)
    elif "hop_x" in arrays:
        x = _filled(x)
        made = Propagated(operator, [x, *arrays["hop_x"]], request.hops)
    else:
        made = Propagated(operator, [x])
    return Federation(
        ptr=arrays["ptr"],
        labels=arrays["labels"],
        role=arrays["role"],
        classes=read_card(graph_folder)["classes"],
        adjacency=_adjacency(arrays, operator),
        x=features if x is None else x,
        precomputed={request: made},
        nodes=arrays["nodes"],
        copy=arrays.get("copy"),
        pairs=Pairs.from_arrays(arrays),
    )


def _csr(arrays: dict[str, np.ndarray], name: str) -> sp.csr_matrix:
    """Return a stored [N, N] CSR matrix, of ones if it has no stored values."""
    size = len(arrays["nodes"])
    indptr, indices = arrays[f"{name}_indptr"], arrays[f"{name}_indices"]
    data = arrays.get(f"{name}_data", np.ones(len(indices), dtype=np.float32))
    return sp.csr_matrix((data, indices, indptr), shape=(size, size))


def _adjacency(arrays: dict[str, np.ndarray], operator: sp.csr_matrix) -> sp.csr_matrix:
    """Return the edges of the client graphs, [N, N] float32 CSR of ones.

    Older files store no adjacency, so it is taken from the operator without its diagonal.
    """
    if "adjacency_indptr" in arrays:
        return _csr(arrays, "adjacency")
    entries = operator.tocoo()
    apart = entries.row != entries.col
    ones = np.ones(apart.sum(), dtype=np.float32)
    return sp.csr_matrix((ones, (entries.row[apart], entries.col[apart])), shape=operator.shape)
