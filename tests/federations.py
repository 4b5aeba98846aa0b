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
SPLITTING = {"first_round": 1, "eps1": 10.0, "eps2": 0.0}  # gcfl and gcfl+ split whenever they can
TASK = task_of({})

torch.set_num_threads(1)  # threads that wait for each other on tiny tensors are many times slower


@dataclass(frozen=True)
class Case:
    """A graph, who holds which node, and every node's role, as `split` stores them.

    Attributes:
        graph: the whole graph.
        nodes: [N] global ids, client by client.
        ptr: [C + 1].
        role: [N].
        folder: where the stages' files of this case are.
        filled: whether sparse features are propagated in preprocessing, so that tiny graphs take both ways; None leaves
            it to preprocessing.
        copy: [N] bool, which rows are copies; None: nodes have no owners.
        pairs: of links, where these are predicted.
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
        """Runs preprocessing for one specification."""
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
        """The federation that a backbone with these settings trains on; `propagate`: whether ahead, where that pays."""
        resolved: Any = registry.declaration("backbone", backbone).settings(**settings)
        spec = {**resolved.propagation().spec(), "features": "raw", **({"setting": "inductive"} if inductive else {})}
        spec |= {} if propagate else {"propagate": False}
        return load_federation(self.graph_folder, self.preprocessed_folder(spec), spec)


def case_of(
    graph: Graph, parts: Sequence[np.ndarray], role: np.ndarray, folder: Path, copy: np.ndarray | None = None
) -> Case:
    """Args: parts, the global ids of each client; role [num_nodes] of the whole graph; copy, see `Case`."""
    nodes = np.concatenate(parts).astype(np.int64)
    ptr = np.cumsum([0, *map(len, parts)]).astype(np.int64)
    return Case(graph, nodes, ptr, role[nodes].astype(np.int8), folder, filled=False, copy=copy)


def with_links(case: Case, folder: Path, ratios: Ratios = (0.6, 0.2, 0.2)) -> Case:
    """The same clients, whose edges have roles instead of their nodes."""
    edges = induced_edges(case.graph, case.nodes, case.ptr, case.copy)
    stream = np.random.default_rng(11)
    pairs, _ = draw_pairs(edges, case.nodes, case.ptr, case.graph.edges, ratios, stream)
    return replace(case, role=np.zeros_like(case.role), folder=folder, pairs=pairs)


def random_graph(nodes: int, features: int, classes: int, edges: int, seed: int, *, sparse: bool) -> Graph:
    """A random graph whose labels show in its features; its last node has no edge."""
    stream = np.random.default_rng(seed)
    labels = stream.permutation(np.arange(nodes) % classes).astype(np.int64)
    pairs, cleaning = canonical_edges(stream.integers(0, nodes - 1, size=(2, edges)), nodes)
    x = (stream.random((nodes, features)) < 0.3) * stream.random((nodes, features))
    x[np.arange(nodes), labels] += 0.5
    x = x.astype(np.float32)
    return Graph(pairs, sp.csr_matrix(x) if sparse else x, labels, classes, cleaning=cleaning)


def tiny_case(folder: Path, *, sparse: bool = True, sizes: Sequence[int] = (13, 10, 7)) -> Case:
    """Interleaved clients of so many nodes; the last client has no edge, others have isolated nodes."""
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
    """Three clients of 48 nodes, 12 of them in no client or in several.

    "overlapping": each of the 12 is at two clients, or at all three. "copies": the same, the first of them owns it.
    "uncovered": no client has them.
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
    """The same clients and roles with other features, labels and edges of all validation and test nodes."""
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
    """Stores a graph and splits it for seed 0 by the real stage; returns the folders of both."""
    save_graph(graph, folder / "graph", {})
    spec = {"dataset": "tiny", "scheme": scheme, "clients": clients, "settings": {}, "split": {"held_out": held_out}}
    split(folder / "graph", spec, [0], folder / "split")
    return folder / "graph", folder / "split"


def made_of(federation: Federation) -> Propagated:
    """The answer to the one request that preprocessing answered."""
    (answer,) = federation.made.values()
    return answer


def backbone_of(federation: Federation, name: str, **settings: Any) -> Backbone:
    """A registered backbone for a federation."""
    resolved = registry.declaration("backbone", name).settings(**settings)
    return registry.module("backbone", name).Backbone(resolved, federation.num_features, federation.classes)


def method_of(federation: Federation, backbone: Backbone, name: str, **settings: Any) -> Method:
    """A registered method for a federation."""
    resolved = registry.declaration("method", name).settings(**settings)
    return registry.module("method", name).Method(resolved, backbone, federation)


def schedule_of(**changes: Any) -> Schedule:
    """3 rounds of 2 epochs, else the configuration's defaults."""
    training = {**Training().model_dump(exclude={"hidden", "dropout"}), "rounds": 3, "local_epochs": 2}
    return Schedule(**{**training, "evaluate": "aggregated", "selection_mean": "pooled", **changes})
