"""Small federations for tests, made by the real stages in a temporary folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
import torch

from fglbench import registry
from fglbench.backbones.base import Backbone
from fglbench.config.schema import Training
from fglbench.datasets.base import Graph, canonical_edges
from fglbench.federation.federation import Federation
from fglbench.federation.propagation import Propagated, worth_propagating
from fglbench.federation.schedule import Schedule
from fglbench.methods.base import Method
from fglbench.partition.links import Pairs, draw_pairs
from fglbench.partition.ratios import Ratios
from fglbench.partition.subgraph import induced_edges
from fglbench.records.graph import save_graph
from fglbench.stages.preprocess import load_federation, preprocess
from fglbench.stages.split import split
from fglbench.storage import fingerprint, hash_file, write_json, write_npz
from fglbench.tasks import task_of

NONE, TRAIN, VAL, TEST = range(4)
SPLITTING = {"first_round": 1, "eps1": 10.0, "eps2": 0.0}  # gcfl and gcfl+ split at every opportunity
TASK = task_of({})

torch.set_num_threads(1)  # several threads are many times slower on tiny tensors


@dataclass(frozen=True)
class Case:
    """A graph, the nodes of each client and the role of every node, as `split` stores them.

    Attributes:
        graph: the whole graph.
        nodes: [N] int64, global ids, client by client.
        ptr: [C + 1] int64, start of each client in `nodes`.
        role: [N] int8, role of each node.
        folder: folder of the stages' files of this case.
        filled: whether preprocessing propagates sparse features, so that tests cover both paths on tiny graphs; None
            lets preprocessing decide.
        copy: [N] bool, whether a row is a copy; None if nodes have no owners.
        pairs: node pairs of link prediction; None for other tasks.
    """

    graph: Graph
    nodes: np.ndarray
    ptr: np.ndarray
    role: np.ndarray
    folder: Path
    filled: bool | None = None
    copy: np.ndarray | None = None
    pairs: Pairs | None = None

    @cached_property
    def graph_folder(self) -> Path:
        save_graph(self.graph, self.folder / "graph", {})
        return self.folder / "graph"

    @cached_property
    def _split_folder(self) -> Path:
        folder = self.folder / "split"
        stored = folder / "seed0" / "split.npz"
        more = {} if self.copy is None else {"copy": self.copy}
        more |= self.pairs.arrays() if self.pairs else {}
        write_npz(stored, {"nodes": self.nodes, "ptr": self.ptr, "role": self.role, **more})
        write_json(folder / "seed0" / "card.json", {"sha256": hash_file(stored)})
        return folder

    def preprocessed_folder(self, spec: dict[str, Any]) -> Path:
        """Run preprocessing for one specification and return the folder of seed 0."""
        folder = self.folder / f"prepared-{fingerprint(spec)}-{self.filled}"
        chosen = (
            worth_propagating if self.filled is None else lambda features, *_: self.filled or not sp.issparse(features)
        )
        with patch("fglbench.stages.preprocess.worth_propagating", chosen):
            preprocess(self.graph_folder, self._split_folder, spec, [0], folder)
        return folder / "seed0"

    def federation(
        self, backbone: str = "gcn", *, inductive: bool = False, propagate: bool = True, **settings: Any
    ) -> Federation:
        """Return the federation for a backbone with these settings.

        Args:
            backbone: name of the backbone.
            inductive: whether the setting is inductive.
            propagate: whether preprocessing propagates features in advance if this pays off.
            settings: settings of the backbone.
        """
        resolved: Any = registry.declaration("backbone", backbone).settings(**settings)
        spec = {**resolved.propagation().spec(), "features": "raw", **({"setting": "inductive"} if inductive else {})}
        spec |= {} if propagate else {"propagate": False}
        return load_federation(self.graph_folder, self.preprocessed_folder(spec), spec)


def case_of(
    graph: Graph, parts: Sequence[np.ndarray], role: np.ndarray, folder: Path, copy: np.ndarray | None = None
) -> Case:
    """Return the case of a graph and its clients.

    Args:
        graph: the whole graph.
        parts: global ids of each client.
        role: [num_nodes], role of each node of the whole graph.
        folder: folder of the case.
        copy: see `Case`.
    """
    nodes = np.concatenate(parts).astype(np.int64)
    ptr = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return Case(graph, nodes, ptr, role[nodes].astype(np.int8), folder, filled=False, copy=copy)


def with_links(case: Case, folder: Path, ratios: Ratios = (0.6, 0.2, 0.2)) -> Case:
    """Return the same clients for link prediction: their edges have roles instead of their nodes."""
    edges = induced_edges(case.graph, case.nodes, case.ptr, case.copy)
    stream = np.random.default_rng(11)
    pairs, _ = draw_pairs(edges, case.nodes, case.ptr, case.graph.edges, ratios, stream)
    return replace(case, role=np.zeros_like(case.role), folder=folder, pairs=pairs)


def random_graph(nodes: int, features: int, classes: int, edges: int, seed: int, *, sparse: bool) -> Graph:
    """Return a random graph with features that depend on the labels; its last node has no edge."""
    stream = np.random.default_rng(seed)
    labels = stream.permutation(np.arange(nodes) % classes).astype(np.int64)
    pairs, cleaning = canonical_edges(stream.integers(0, nodes - 1, size=(2, edges)), nodes)
    x = (stream.random((nodes, features)) < 0.3) * stream.random((nodes, features))
    x[np.arange(nodes), labels] += 0.5
    x = x.astype(np.float32)
    return Graph(pairs, sp.csr_matrix(x) if sparse else x, labels, classes, cleaning=cleaning)


def tiny_case(folder: Path, *, sparse: bool = True, sizes: Sequence[int] = (13, 10, 7)) -> Case:
    """Return interleaved clients of these sizes; the last client has no edge, others have isolated nodes."""
    nodes, last = sum(sizes), len(sizes) - 1
    graph = random_graph(nodes, 7, 3, 2 * nodes, seed=1, sparse=sparse)
    owner = np.random.default_rng(2).permutation(np.repeat(np.arange(len(sizes)), sizes))
    inside = (owner[graph.edges] != last).all(axis=0)
    graph = Graph(graph.edges[:, inside], graph.features, graph.labels, graph.classes, cleaning=graph.cleaning)
    role = np.zeros(nodes, dtype=np.int8)
    parts = [np.flatnonzero(owner == client) for client in range(len(sizes))]
    for part in parts:
        role[part] = np.resize([TRAIN, TEST, VAL, TRAIN, NONE], len(part))
    return case_of(graph, parts, role, folder)


BEYOND_A_COVER = ("overlapping", "copies", "uncovered")


def beyond_a_cover(kind: str, folder: Path) -> Case:
    """Return three clients of a graph with 48 nodes; 12 nodes belong to no client or to several.

    "overlapping": two or three clients hold each of the 12 nodes. "copies": the same, and the first holder owns the
    node. "uncovered": no client holds the 12 nodes.
    """
    graph = random_graph(48, 7, 3, 130, seed=5, sparse=True)
    stream = np.random.default_rng(6)
    nodes = stream.permutation(48)
    own, special = nodes[:36].reshape(3, 12), nodes[36:]
    held = np.ones((3, 12), dtype=bool)
    held[stream.integers(0, 3, 8), np.arange(8)] = False
    if kind == "uncovered":
        held[:] = False
    parts = [np.sort(np.concatenate([own[client], special[held[client]]])) for client in range(3)]
    role = np.zeros(48, dtype=np.int8)
    role[nodes] = np.resize([TRAIN, TEST, VAL, TRAIN, NONE], 48)
    first = held.argmax(axis=0)
    copies = [np.isin(part, special[first != client]) for client, part in enumerate(parts)]
    return case_of(graph, parts, role, folder, np.concatenate(copies) if kind == "copies" else None)


def changed_unseen(case: Case, folder: Path) -> Case:
    """Return the same clients and roles with new features, labels and edges of all validation and test nodes."""
    stream = np.random.default_rng(5)
    graph, role = case.graph, np.zeros(case.graph.num_nodes, dtype=np.int8)
    role[case.nodes] = case.role
    unseen = np.flatnonzero(np.isin(role, (VAL, TEST)))
    x = graph.features if isinstance(graph.features, np.ndarray) else graph.features.toarray()
    x = x.copy()
    x[unseen] = 5 * stream.random((len(unseen), x.shape[1]))
    labels = graph.labels.copy()
    labels[unseen] = stream.integers(0, graph.classes, len(unseen))
    kept = graph.edges[:, ~np.isin(graph.edges, unseen).any(axis=0)]
    other = np.stack([np.repeat(unseen, 4), stream.integers(0, graph.num_nodes, 4 * len(unseen))])
    edges, cleaning = canonical_edges(np.concatenate([kept, other], axis=1), graph.num_nodes)
    features = x if isinstance(graph.features, np.ndarray) else sp.csr_matrix(x)
    changed = Graph(edges, features, labels, graph.classes, cleaning=cleaning)
    return Case(changed, case.nodes, case.ptr, case.role, folder, case.filled)


def make_split(
    graph: Graph, folder: Path, *, clients: int, held_out: float | None = None, scheme: str = "random"
) -> tuple[Path, Path]:
    """Store a graph, split it for seed 0 with the real stage, and return the folders of graph and split."""
    save_graph(graph, folder / "graph", {})
    spec = {"dataset": "tiny", "scheme": scheme, "clients": clients, "settings": {}, "split": {"held_out": held_out}}
    split(folder / "graph", spec, [0], folder / "split")
    return folder / "graph", folder / "split"


def made_of(federation: Federation) -> Propagated:
    """Return preprocessing's answer to its only request."""
    (answer,) = federation.precomputed.values()
    return answer


def backbone_of(federation: Federation, name: str, **settings: Any) -> Backbone:
    """Return a registered backbone for a federation."""
    resolved = registry.declaration("backbone", name).settings(**settings)
    return registry.module("backbone", name).Backbone(resolved, federation.num_features, federation.classes)


def method_of(federation: Federation, backbone: Backbone, name: str, **settings: Any) -> Method:
    """Return a registered method for a federation."""
    resolved = registry.declaration("method", name).settings(**settings)
    return registry.module("method", name).Method(resolved, backbone, federation)


def schedule_of(**changes: Any) -> Schedule:
    """Return a schedule of 3 rounds and 2 local epochs, with the configuration's other defaults."""
    training = {**Training().model_dump(exclude={"hidden", "dropout"}), "rounds": 3, "local_epochs": 2}
    return Schedule(**{**training, "evaluate": "aggregated", "selection_mean": "pooled", **changes})
