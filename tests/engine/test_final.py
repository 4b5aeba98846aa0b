"""The global test and the logits of the readings, against PyG's own layers on the graphs they are about."""

from pathlib import Path

import numpy as np
import pytest
import torch
from federations import TASK, TEST, Case, backbone_of, make_split, method_of, random_graph, schedule_of, tiny_case
from torch_geometric.nn import GCNConv

from fglbench.datasets.base import Graph
from fglbench.engine.final import global_test, reading_logits
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.parameters import Parameters
from fglbench.records.split import load_split
from fglbench.stages.preprocess import load_federation, load_global_test, preprocess
from fglbench.stages.split import split

SETTINGS = {"hidden": 5, "dropout": 0.0}
SPEC = {"features": "raw", "r": 0.5, "hops": 1}


def trained(case: Case, method: str) -> tuple[Result, tuple]:
    federation = case.federation(**SETTINGS)
    backbone = backbone_of(federation, "gcn", **SETTINGS)
    result = train(federation, method_of(federation, backbone, method), TASK, schedule_of(), seed=3)
    return result, (federation, backbone)


def pyg_logits(graph: Graph, nodes: np.ndarray, parameters: Parameters, client: int) -> np.ndarray:
    """A two-layer GCN of PyG on the subgraph of some nodes, with one client's parameters."""
    part = graph.induced(nodes)
    x = part.features if isinstance(part.features, np.ndarray) else part.features.toarray()
    h, edges = torch.from_numpy(x), torch.from_numpy(part.edges)
    for layer in range(2):
        weight, bias = (parameters[f"{layer}.{name}"][client].detach() for name in ("weight", "bias"))
        convolution = GCNConv(*weight.shape)
        with torch.no_grad():
            convolution.lin.weight.copy_(weight.T)
            convolution.bias.copy_(bias)
            h = convolution(h.relu() if layer else h, edges)
    return h.numpy()


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("method", "models"), [("local", 3), ("fedavg", 1), ("fedper", 3)])
def test_every_model_is_tested_on_the_whole_graph(tmp_path: Path, method: str, models: int, sparse: bool) -> None:
    case = tiny_case(tmp_path, sparse=sparse)
    result, (_, backbone) = trained(case, method)
    whole = load_global_test(case.graph_folder, case.preprocessed_folder(SPEC), SPEC, "whole")
    found = global_test(result, whole, backbone, TASK, 3, logits=True)
    tested = np.unique(case.nodes[case.role == TEST])
    for reading in ("val", "last", "test"):
        assert found[f"{reading}_global"].shape == (models, len(tested))
        for model in range(models):
            everything = np.arange(case.graph.num_nodes)
            expected = pyg_logits(case.graph, everything, result.parameters[reading], model)[tested]
            np.testing.assert_allclose(found[f"{reading}_global_logits"][model], expected, rtol=0, atol=1e-5)
            np.testing.assert_array_equal(found[f"{reading}_global"][model], expected.argmax(1))


def test_without_logits_only_classes_are_kept(tmp_path: Path) -> None:
    case = tiny_case(tmp_path)
    result, (_, backbone) = trained(case, "fedavg")
    whole = load_global_test(case.graph_folder, case.preprocessed_folder(SPEC), SPEC, "whole")
    assert sorted(global_test(result, whole, backbone, TASK, 3, logits=False)) == [
        "last_global",
        "test_global",
        "val_global",
    ]


@pytest.mark.parametrize("chunk", [None, 1])
def test_logits_of_a_reading_belong_to_its_predictions(tmp_path: Path, chunk: int | None) -> None:
    case = tiny_case(tmp_path)
    result, (_, backbone) = trained(case, "local")
    found = reading_logits(result, backbone, TASK, 3, chunk_clients=chunk)
    for reading in ("val", "last", "test"):
        np.testing.assert_array_equal(found[f"{reading}_logits"].argmax(1), result.predictions[reading])
    for client in range(3):
        rows = slice(case.ptr[client], case.ptr[client + 1])
        expected = pyg_logits(case.graph, case.nodes[rows], result.parameters["last"], client)
        np.testing.assert_allclose(found["last_logits"][rows], expected, rtol=0, atol=1e-5)


def test_the_held_out_graph_is_tested_on_all_its_labelled_nodes(tmp_path: Path) -> None:
    graph = random_graph(60, 6, 3, 200, seed=4, sparse=True)
    graph.labels[::7] = -1
    folder, partition = make_split(graph, tmp_path, clients=3, held_out=0.25)
    preprocess(folder, partition, SPEC, [0], tmp_path / "prepared")
    federation = load_federation(folder, tmp_path / "prepared" / "seed0", SPEC)
    backbone = backbone_of(federation, "gcn", **SETTINGS)
    result = train(federation, method_of(federation, backbone, "fedavg"), TASK, schedule_of(), seed=3)
    tested = load_global_test(folder, tmp_path / "prepared" / "seed0", SPEC, "held_out")
    found = global_test(result, tested, backbone, TASK, 3, logits=True)
    held_out = load_split(partition / "seed0").held_out
    assert len(held_out) == 15
    expected = pyg_logits(graph, held_out, result.parameters["last"], 0)[graph.labels[held_out] >= 0]
    np.testing.assert_allclose(found["last_global_logits"][0], expected, rtol=0, atol=1e-5)
    assert found["last_global"].shape[1] < 15


@pytest.mark.parametrize("scheme", ["random", "louvain", "whole"])
def test_no_client_gets_a_held_out_node(tmp_path: Path, scheme: str) -> None:
    graph = random_graph(60, 6, 3, 200, seed=4, sparse=True)
    folder, partition = make_split(graph, tmp_path, clients=1 if scheme == "whole" else 4, held_out=0.3, scheme=scheme)
    made = load_split(partition / "seed0")
    np.testing.assert_array_equal(np.sort(np.concatenate([made.nodes, made.held_out])), np.arange(60))
    split(folder, {**_SPLIT, "scheme": "random", "clients": 2}, [0], tmp_path / "other")
    np.testing.assert_array_equal(load_split(tmp_path / "other" / "seed0").held_out, made.held_out)


_SPLIT = {"dataset": "tiny", "settings": {}, "split": {"held_out": 0.3}}
