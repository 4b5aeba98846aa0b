"""Five small clients, and a run on them: what the tests of the engine's laws share."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from federations import (
    NONE,
    TASK,
    TEST,
    TRAIN,
    VAL,
    Case,
    backbone_of,
    case_of,
    method_of,
    random_graph,
    schedule_of,
)

from fglbench import registry
from fglbench.datasets.base import Graph
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.methods import base
from fglbench.settings import ComponentSettings

HIDDEN = 8


def make_five(folder: Path, order: list[int], *, sparse: bool = True) -> Case:
    """40 nodes in 5 clients of 12, 10, 9, 8 and 1 nodes, in a given order.

    The third client has no edge, the fourth no training node.
    """
    graph = random_graph(40, 6, 3, 160, seed=5, sparse=sparse)
    owner = np.repeat(np.arange(5), [12, 10, 9, 8, 1])
    edges = graph.edges[:, (owner[graph.edges] != 2).any(axis=0)]
    graph = Graph(edges, graph.features, graph.labels, graph.classes, cleaning=graph.cleaning)
    role = np.resize([TRAIN, VAL, TEST, TRAIN, TEST, NONE], 40).astype(np.int8)
    role[(owner == 3) & (role == TRAIN)] = TEST
    role[39] = TRAIN
    return case_of(graph, [np.flatnonzero(owner == client) for client in order], role, folder)


def run(
    federation: Federation,
    method: str | type[base.Method] = "fedavg",
    backbone_name: str = "gcn",
    *,
    dropout: float = 0.0,
    depth: int = 2,
    chunk: int | None = None,
    seed: int = 3,
    own: dict[str, Any] | None = None,
    **schedule: Any,
) -> Result:
    """Trains; `method` is a registered name or a class written here."""
    known = registry.declaration("backbone", backbone_name).settings.model_fields
    layers = {"depth": depth} if "depth" in known else {}
    backbone = backbone_of(federation, backbone_name, hidden=HIDDEN, dropout=dropout, **layers)
    if isinstance(method, str):
        made = method_of(federation, backbone, method, **(own or {}))
    else:
        settings = getattr(sys.modules[method.__module__], "Settings", ComponentSettings)
        made = method(settings(), backbone, federation)
    return train(federation, made, TASK, schedule_of(**schedule), seed, chunk_clients=chunk)


def assert_close(one: Result, other: Result, tolerance: float) -> None:
    assert one.state == other.state == "ok"
    for kept, parameters in one.parameters.items():
        for name, tensor in parameters.items():
            torch.testing.assert_close(tensor, other.parameters[kept][name], rtol=0, atol=tolerance)
    np.testing.assert_allclose(one.history["train_loss"], other.history["train_loss"], rtol=0, atol=tolerance)
    for name in ("val_correct", "test_correct", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(one.history[name], other.history[name])
    for reading, predicted in one.predictions.items():
        np.testing.assert_array_equal(predicted, other.predictions[reading])
    assert one.rounds == other.rounds


def assert_same(one: Result, other: Result) -> None:
    assert_close(one, other, 0.0)


def logits_of(federation: Federation, result: Result, backbone_name: str = "gcn") -> torch.Tensor:
    backbone = backbone_of(federation, backbone_name, hidden=HIDDEN)
    batch = backbone.batch(federation, np.arange(federation.num_clients))
    with torch.no_grad():
        return backbone.forward(result.parameters["last"], batch, no_dropout).logits


def parameter_bytes(features: int, classes: int) -> tuple[int, int]:
    """Bytes of the first and of the last layer of a two-layer GCN with 8 hidden units."""
    return 4 * (features * HIDDEN + HIDDEN), 4 * (HIDDEN * classes + classes)
