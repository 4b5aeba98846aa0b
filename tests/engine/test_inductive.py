"""The inductive setting: training sees the graphs without validation and test nodes, scores are of the whole ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from federations import (
    TASK,
    TEST,
    TRAIN,
    VAL,
    Case,
    backbone_of,
    case_of,
    changed_unseen,
    made_of,
    method_of,
    schedule_of,
    tiny_case,
)
from test_oracle import BACKBONES
from torch_geometric.nn import GCNConv, SAGEConv

from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.federation.propagation import normalised
from fglbench.methods import base
from fglbench.partition.subgraph import induced_edges
from fglbench.seeding import torch_stream
from fglbench.stages.preprocess import load_global_test


def run(federation: Federation, backbone_name: str, method_name: str, own: dict[str, Any], **settings: Any) -> Result:
    backbone = backbone_of(federation, backbone_name, **settings)
    method = method_of(federation, backbone, method_name, **own)
    return train(federation, method, TASK, schedule_of(), seed=3)


@pytest.fixture
def tiny(tmp_path: Path) -> Case:
    return tiny_case(tmp_path)


@pytest.mark.parametrize("sparse", [True, False])
def test_the_graphs_of_training_are_induced_and_the_others_whole(tmp_path: Path, *, sparse: bool) -> None:
    case = tiny_case(tmp_path, sparse=sparse)
    federation = case.federation("gcn", inductive=True)
    whole = federation.scored
    assert whole is federation.evaluated
    assert federation.nodes is not None
    assert whole.nodes is not None
    seen = ~np.isin(case.role, (VAL, TEST))
    assert federation.nodes.tolist() == case.nodes[seen].tolist()
    assert federation.role.tolist() == case.role[seen].tolist()
    assert whole.nodes.tolist() == case.nodes.tolist()
    assert federation.ptr.tolist() == [int(seen[:stop].sum()) for stop in case.ptr]
    expected = induced_edges(case.graph, case.nodes, case.ptr)[seen][:, seen]
    assert (federation.adjacency != expected).nnz == 0
    assert (whole.adjacency != induced_edges(case.graph, case.nodes, case.ptr)).nnz == 0
    for graphs in (federation, whole):
        made, x = made_of(graphs), case.graph.features[graphs.nodes]
        np.testing.assert_allclose(made.operator.toarray(), normalised(graphs.adjacency, 0.5).toarray())
        if sparse:
            assert (made.features[0] != x).nnz == (graphs.features != x).nnz == 0  # type: ignore[union-attr]
        else:
            np.testing.assert_allclose(made.features[0], made.operator @ x, rtol=0, atol=1e-6)
            np.testing.assert_array_equal(graphs.features, x)


def test_the_whole_graphs_are_those_of_the_transductive_setting(tiny: Case) -> None:
    one, other = tiny.federation("sage"), tiny.federation("sage", inductive=True).scored
    assert one.evaluated is None
    assert one.scored is one
    for name in ("ptr", "labels", "role"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.adjacency != other.adjacency).nnz == 0
    assert (made_of(one).operator != made_of(other).operator).nnz == 0


@pytest.mark.parametrize("method", ["fedavg", "fedgta", "fedsage+"])
@pytest.mark.parametrize("backbone", ["mlp", "gcn", "gat", "sage", "sgc", "sign", "s2gc", "gbp", "gamlp"])
def test_unseen_nodes_change_no_parameter_where_features_are_propagated_ahead(
    tmp_path: Path, backbone: str, method: str
) -> None:
    if method == "fedsage+" and backbone != "sage":
        pytest.skip("FedSage+ is for sage")
    case = tiny_case(tmp_path / "one", sparse=False)
    other = changed_unseen(case, tmp_path / "other")
    own = {"epsilon": -1.0} if method == "fedgta" else {}
    first, second = (run(each.federation(backbone, inductive=True), backbone, method, own) for each in (case, other))
    for name, tensor in first.parameters["last"].items():
        assert torch.equal(tensor, second.parameters["last"][name])
    np.testing.assert_array_equal(first.history["train_loss"], second.history["train_loss"])
    seen = ~np.isin(case.role, (VAL, TEST))
    assert len(first.predictions["last"]) == len(case.nodes) > seen.sum()


def test_unseen_nodes_are_in_no_batch_and_no_drawn_neighbourhood(tmp_path: Path) -> None:
    case = tiny_case(tmp_path / "one")
    found = []
    for each in (case, changed_unseen(case, tmp_path / "other")):
        federation = each.federation("sage", inductive=True, neighbours=2)
        backbone = backbone_of(federation, "sage", neighbours=2)
        method = method_of(federation, backbone, "fedavg")
        found.append(train(federation, method, TASK, schedule_of(batch_size=2), seed=3).parameters["last"])
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())


def test_unseen_nodes_count_in_training_under_the_transductive_setting(tmp_path: Path) -> None:
    """The change above is one that matters where it may."""
    case = tiny_case(tmp_path / "one", sparse=False)
    other = changed_unseen(case, tmp_path / "other")
    first, second = (run(each.federation("gcn"), "gcn", "fedavg", {}) for each in (case, other))
    assert any(
        not torch.equal(tensor, second.parameters["last"][name]) for name, tensor in first.parameters["last"].items()
    )


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("backbone", "settings"), BACKBONES)
def test_the_plain_loop_on_induced_graphs_agrees(
    tmp_path: Path, backbone: str, settings: dict[str, Any], *, sparse: bool
) -> None:
    """Plain clients train on PyG subgraphs of their seen nodes and are scored on their whole graphs."""
    case = tiny_case(tmp_path, sparse=sparse)
    settings = {**settings, "hidden": 16, "dropout": 0.0}
    federation = case.federation(backbone, inductive=True, **settings)
    result = run(federation, backbone, "fedavg", {}, **settings)
    model = backbone_of(federation, backbone, **settings)
    plan = oracle.Plan(backbone=backbone, settings=model.settings.model_dump())
    seen = ~np.isin(case.role, (VAL, TEST))
    clients = oracle.clients_of(case.graph, case.nodes[seen], federation.ptr, case.role[seen])
    expected = oracle.run(clients, federation.classes, model.initial(torch_stream(3, "initialisation")), plan)
    for name, stack in result.parameters["last"].items():
        torch.testing.assert_close(
            stack.detach(), torch.stack([own[name] for own in expected.weights]), rtol=0, atol=1e-4
        )
    np.testing.assert_allclose(result.history["train_loss"], expected.losses, rtol=0, atol=1e-4)
    loop = oracle.Loop(
        oracle.clients_of(case.graph, case.nodes, case.ptr, case.role), federation.classes, expected.weights[0], plan
    )
    predicted = torch.cat(loop.logits()).argmax(1).numpy()
    np.testing.assert_array_equal(result.predictions["last"], predicted)
    for name, role in (("val", VAL), ("test", TEST)):
        right = (predicted == case.graph.labels[case.nodes]) & (case.role == role)
        assert result.history[f"{name}_correct"][-1].sum() == right.sum()


@pytest.mark.parametrize("layer", [GCNConv, SAGEConv])
def test_one_layer_of_pyg_trained_on_the_induced_graph(tiny: Case, layer: Any) -> None:
    """Written out once: one client, PyG's layer and Adam, the training graph for steps, the whole one for scores."""
    held = np.arange(30)
    role = np.zeros(30, dtype=np.int8)
    role[tiny.nodes] = tiny.role
    case = case_of(tiny.graph, [held], role, tiny.folder / "one")
    name = "gcn" if layer is GCNConv else "sage"
    settings = {"depth": 1, "dropout": 0.0}
    federation = case.federation(name, inductive=True, **settings)
    result = run(federation, name, "local", {}, **settings)

    x = torch.from_numpy(tiny.graph.features.toarray())  # type: ignore[union-attr]
    labels, edges = torch.from_numpy(tiny.graph.labels), torch.from_numpy(tiny.graph.edges)
    seen, training = torch.from_numpy(~np.isin(role, (VAL, TEST))), torch.from_numpy(role == TRAIN)
    seen_edges = edges[:, seen[edges].all(0)]  # isolated rows that stay are never read by a training node
    conv = layer(7, 3)
    start = backbone_of(federation, name, **settings).initial(torch_stream(3, "initialisation"))
    theirs = {"gcn": {"0.weight": "lin.weight", "0.bias": "bias"}}.get(
        name, {"0.neighbours.weight": "lin_l.weight", "0.bias": "lin_l.bias", "0.own.weight": "lin_r.weight"}
    )
    conv.load_state_dict({theirs[key]: tensor.mT if tensor.dim() > 1 else tensor for key, tensor in start.items()})
    optimiser = torch.optim.Adam(conv.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(6):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(conv(x, seen_edges)[training], labels[training]).backward()
        optimiser.step()
    state = conv.state_dict()
    for key, tensor in result.parameters["last"].items():
        one = state[theirs[key]]
        torch.testing.assert_close(tensor[0].detach(), one.mT if one.dim() > 1 else one, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(result.predictions["last"], conv(x, edges).argmax(1).numpy())


def test_fedgta_sends_what_the_graphs_of_training_say(tiny: Case) -> None:
    """A federation that never had the other nodes sends the same."""
    federation = tiny.federation("gcn", inductive=True)
    bare = replace(federation, evaluated=None)
    inductive, alone = (run(each, "gcn", "fedgta", {"epsilon": 0.9}) for each in (federation, bare))
    np.testing.assert_array_equal(inductive.mixing["mixing"], alone.mixing["mixing"])
    assert len(np.unique(inductive.mixing["mixing"])) > 2


def test_fedgl_keeps_its_edges_among_seen_nodes(tiny: Case) -> None:
    federation = tiny.federation("gcn", inductive=True)
    result = run(federation, "gcn", "fedgl", {})
    scored, whole = result.graphs["last"], federation.scored
    added = scored.adjacency - whole.adjacency
    assert added.nnz
    seen = ~np.isin(whole.role, (VAL, TEST))
    assert not added[~seen].nnz
    assert not added[:, ~seen].nnz


def test_fedsage_plus_mends_both_graphs(tiny: Case) -> None:
    federation = tiny.federation("sage", inductive=True)
    backbone = backbone_of(federation, "sage")
    method, found = method_of(federation, backbone, "fedsage+", epochs=3), []
    finish = method.finish

    def keep(*arguments: Any) -> base.Prepared | None:
        found.append(finish(*arguments))
        return found[-1]

    method.finish = keep  # type: ignore[method-assign]
    result = train(federation, method, TASK, schedule_of(rounds=1), 0)
    mended, last = found[0].federation, found[1]
    assert last is None
    assert mended.scored is result.graphs["last"]
    assert mended.original is not None
    assert mended.scored.original is not None
    assert (len(mended.original), len(mended.scored.original)) == (len(federation.labels), len(tiny.nodes))
    np.testing.assert_array_equal(mended.role[mended.original], federation.role)
    np.testing.assert_array_equal(mended.scored.role[mended.scored.original], tiny.role)


def test_a_client_without_a_graph_to_learn_from_gets_no_neighbours(tiny: Case) -> None:
    role = tiny.role.copy()
    role[: tiny.ptr[1]] = TEST
    federation = replace(tiny, role=role).federation("sage", inductive=True)
    assert np.diff(federation.ptr)[0] == 0
    backbone = backbone_of(federation, "sage")
    for chunk in (3, 1):
        method = method_of(federation, backbone, "fedsage+", epochs=3)
        result = train(federation, method, TASK, schedule_of(rounds=1), 0, chunk_clients=chunk)
        scored = result.graphs["last"]
        assert np.diff(scored.ptr)[0] == tiny.ptr[1]
        assert len(scored.labels) > len(tiny.nodes)


def test_the_global_test_is_the_same_graph_in_both_settings(tiny: Case) -> None:
    found = []
    for setting in ({}, {"setting": "inductive"}):
        spec = {"r": 0.5, "hops": 1, "features": "raw", **setting}
        found.append(load_global_test(tiny.graph_folder, tiny.preprocessed_folder(spec), spec, "whole"))
    assert (made_of(found[0]).operator != made_of(found[1]).operator).nnz == 0
    np.testing.assert_array_equal(found[0].role, found[1].role)
