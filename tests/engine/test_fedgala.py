"""Fed-GALA: numbers by hand on seven nodes, the plain loop beside it, and its laws."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import plain_gala
import pytest
import scipy.sparse as sp
import torch
from federations import NONE, TASK, TRAIN, Case, backbone_of, beyond_a_cover, method_of, schedule_of
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GAE

from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import stack
from fglbench.methods import base
from fglbench.methods.common.adaptive_mu import AdaptiveMu
from fglbench.methods.common.holders import mean_of_holders
from fglbench.methods.fedavg import client_weights
from fglbench.methods.fedgala import anchor_links
from fglbench.seeding import torch_stream
from fglbench.tasks.common.combined import WithLinks
from fglbench.tasks.common.links import SampledPairs
from fglbench.tasks.node_classification import CrossEntropy

SEED = 3


def seven_nodes() -> Federation:
    """Client 0 owns 0 1 2 3, a row; client 1 owns 4 5 6 and has a copy of 3, its only anchor: 3-4, 4-5, 5-6."""
    edges = np.array([[0, 1], [1, 2], [2, 3], [4, 5], [5, 6], [6, 7]])
    both = np.concatenate([edges, edges[:, ::-1]])
    return Federation(
        ptr=np.array([0, 4, 8]),
        labels=np.array([0, 1, 0, 1, 1, 0, 0, 1]),
        role=np.array([TRAIN, TRAIN, NONE, NONE, NONE, TRAIN, NONE, NONE], dtype=np.int8),
        classes=2,
        adjacency=sp.csr_matrix((np.ones(len(both), dtype=np.float32), both.T), shape=(8, 8)),
        x=np.eye(8, 3, dtype=np.float32),
        nodes=np.array([0, 1, 2, 3, 3, 4, 5, 6]),
        copy=np.array([False] * 4 + [True] + [False] * 3),
    )


def test_seven_nodes_by_hand() -> None:
    federation = seven_nodes()
    z = np.array([[4, 0], [0, 1], [1, 1], [2, 0], [0, 2], [0, 9], [3, 1], [1, 4]], dtype=np.float32)
    anchors = np.flatnonzero(federation.share < 1)
    assert anchors.tolist() == [3, 4]
    mean = mean_of_holders(np.array([0, 0]), np.ones(2, dtype=np.float32)) @ z[anchors]
    assert mean.tolist() == [[1, 1], [1, 1]]
    # Client 0: 4 and 1 of nodes 0 and 1; node 2 is a neighbour. Client 1: 4 and 5 of nodes 5 and 6; 4 is a neighbour.
    assert anchor_links(z, anchors, mean, federation).tolist() == [[3, 0], [4, 7]]
    # By their own embeddings: 8 of node 0; 2 and 8 of nodes 5 and 6.
    assert anchor_links(z, anchors, z[anchors], federation).tolist() == [[3, 0], [4, 7]]
    # Two of four nodes have a label, and one of four.
    by_product = client_weights("labelled_times_nodes", torch.ones(2), federation)
    assert by_product.tolist() == [8, 4]
    assert client_weights("labelled", torch.ones(2), federation).tolist() == [2, 1]
    assert client_weights("nodes", torch.tensor([1.0, 0.0]), federation).tolist() == [4, 0]


def test_anchors_choose_one_after_another_and_a_link_is_there_once() -> None:
    """Three anchors without an edge: the first two would choose each other, the third has no one else left."""
    federation = Federation(
        ptr=np.array([0, 3]),
        labels=np.zeros(3, dtype=np.int64),
        role=np.zeros(3, dtype=np.int8),
        classes=2,
        adjacency=sp.csr_matrix((3, 3), dtype=np.float32),
        x=np.zeros((3, 1), dtype=np.float32),
    )
    z = np.array([[2, 0], [2, 0], [1, 0]], dtype=np.float32)
    links = anchor_links(z, np.arange(3), z, federation)
    assert links.tolist() == [[0, 1], [1, 2], [2, 0]]
    full = federation.with_edges(sp.csr_matrix(np.ones((3, 3), dtype=np.float32) - np.eye(3, dtype=np.float32)))
    assert anchor_links(z, np.arange(3), z, full).shape == (0, 2)


@pytest.fixture(scope="module")
def anchored(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Three clients with a dozen shared nodes, owned by the first of their holders."""
    return beyond_a_cover("copies", tmp_path_factory.mktemp("anchored"))


def trained(case: Case, name: str, *, rounds: int = 12, chunk: int | None = None, **settings: Any) -> Result:
    federation = case.federation()
    backbone = backbone_of(federation, "gcn", hidden=8, dropout=0.0)
    own = settings.pop("schedule", {})
    method = method_of(federation, backbone, name, **settings)
    return train(federation, method, TASK, schedule_of(rounds=rounds, **own), SEED, chunk_clients=chunk)


def plan_of(federation: Federation, **changes: Any) -> plain_gala.Plan:
    settings = {"hidden": 8, "depth": 2, "dropout": 0.0}
    return plain_gala.Plan(settings, federation.classes, **{"rounds": 12, **changes})


def assert_weights(result: Result, expected: list[dict[str, torch.Tensor]]) -> None:
    for name, own in result.parameters["last"].items():
        for client, weights in enumerate(expected):
            torch.testing.assert_close(own[client], weights[name], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("augment", ["anchors", "local", "none"])
@pytest.mark.parametrize(("name", "mu", "alpha"), [("fedgala", 0.0, 0.006), ("fedgalap", 1.0, 0.005)])
def test_plain_loop(anchored: Case, name: str, mu: float, alpha: float, augment: str, chunk: int | None) -> None:
    federation = anchored.federation()
    links = SampledPairs(federation)
    start = backbone_of(federation, "gcn", hidden=8, dropout=0.0).initial(torch_stream(SEED, "initialisation"))
    plan = plan_of(federation, augment=augment, mu=mu, alpha=alpha)
    trace = plain_gala.run(
        plain_gala.clients_of(federation),
        start,
        plan,
        lambda number, epoch, client: links.negatives(SEED, number, epoch, np.array([client]))[0],
    )
    combined, last = trace.phases
    assert 2 < len(combined) < 12 and len(set(map(len, combined))) > 1  # clients leave one after another
    result = trained(anchored, name, chunk=chunk, augment=augment, alpha=plan.alpha)
    assert [(own["name"], own["rounds"]) for own in result.phases] == [
        ("combined", len(combined)),
        ("train", len(last)),
    ]
    assert result.history["phase"].tolist() == ["combined"] * len(combined) + ["train"] * len(last)
    active = [np.flatnonzero(~np.isnan(own)).tolist() for own in result.history["train_loss"]]
    assert active == combined + last
    for client, new in enumerate(trace.chosen):
        start_of, stop = federation.ptr[client : client + 2]
        block = (result.graphs["last"].adjacency - federation.adjacency)[start_of:stop, start_of:stop]
        assert {(int(u), int(v)) for u, v in zip(*block.nonzero(), strict=True) if u < v} == new
    assert_weights(result, trace.weights)


def test_every_anchor_of_every_client_gets_one_link_and_its_embedding_travels(anchored: Case) -> None:
    federation = anchored.federation()
    anchors = np.bincount(federation.client_of[federation.share < 1], minlength=3)
    up = {}
    for augment in ("anchors", "local", "none"):
        result = trained(anchored, "fedgala", augment=augment, alpha=0.006)
        more = (result.graphs["last"].adjacency - federation.adjacency).tocsr()
        assert set(more.data.tolist()) <= {1.0}
        added = np.bincount(federation.client_of[more.nonzero()[0]], minlength=3) / 2
        assert added.tolist() == (anchors.tolist() if augment != "none" else [0, 0, 0])
        up[augment] = sum(own["bytes_up"] for own in result.phases)
    assert up["anchors"] - up["local"] == 4 * federation.classes * anchors.sum()
    assert up["local"] == up["none"]


@pytest.mark.parametrize("weights", ["labelled_times_nodes", "nodes", "labelled"])
def test_without_links_and_phases_it_is_fedavg_with_the_same_weights(anchored: Case, weights: str) -> None:
    own = trained(anchored, "fedgala", augment="none", alpha=0.0, link_share=0.0, weights=weights)
    plain = trained(anchored, "fedavg", weights=weights)
    assert [(phase["name"], phase["rounds"]) for phase in own.phases] == [("combined", 12), ("train", 0)]
    for name, parameters in plain.parameters["last"].items():
        assert torch.equal(parameters, own.parameters["last"][name])
    assert np.array_equal(plain.history["train_loss"], own.history["train_loss"])
    assert np.array_equal(plain.history["bytes_up"], own.history["bytes_up"])


def test_weights_that_clients_count_by(anchored: Case) -> None:
    """Labelled nodes are what fedavg counts by; nodes give another mean."""
    plain, labelled, nodes = (trained(anchored, "fedavg", weights=by) for by in (None, "labelled", "nodes"))
    for name, parameters in plain.parameters["last"].items():
        assert torch.equal(parameters, labelled.parameters["last"][name])
    assert any(not torch.equal(own, nodes.parameters["last"][name]) for name, own in plain.parameters["last"].items())


def test_half_the_link_loss_is_pygs_and_half_the_cross_entropy(anchored: Case) -> None:
    federation = anchored.federation()
    backbone = backbone_of(federation, "gcn", hidden=8, dropout=0.0)
    objective, links = WithLinks(federation, CrossEntropy, 0.5), SampledPairs(federation)
    clients = np.arange(3)
    parameters = stack(backbone.initial(torch_stream(0, "start")), 3)
    batch = backbone.batch(federation, clients, objective.targets)
    output = backbone.forward(parameters, batch, no_dropout)
    step = base.Step(0, 1, 2, clients, parameters, {}, {}, output, batch, schedule_of())
    found = objective.loss(step)
    recon = GAE(torch.nn.Identity())
    for client, (own, start, stop) in enumerate(
        zip(plain_gala.clients_of(federation), federation.ptr, federation.ptr[1:], strict=False)
    ):
        z = output.logits[start:stop]
        negatives = torch.from_numpy(links.negatives(0, 1, 2, np.array([client]))[0].T.copy())
        of_links = recon.recon_loss(z, torch.tensor(sorted(own.edges)).T, negatives)
        expected = 0.5 * of_links + 0.5 * cross_entropy(z[own.train], own.labels[own.train])
        torch.testing.assert_close(found[client], expected, atol=1e-5, rtol=1e-5)


def test_a_client_without_labels_learns_links_and_does_not_count(tmp_path: Path) -> None:
    case = beyond_a_cover("copies", tmp_path)
    owner = np.repeat(np.arange(3), np.diff(case.ptr))
    nodes = case.nodes[owner == 1]
    role = np.where(np.isin(case.nodes, nodes), NONE, case.role).astype(np.int8)
    unlabelled = Case(case.graph, case.nodes, case.ptr, role, tmp_path / "unlabelled", False, case.copy)
    result = trained(unlabelled, "fedgala", rounds=4, alpha=0.0)
    assert not np.isnan(result.history["train_loss"]).any()
    only = trained(unlabelled, "fedgala", rounds=4, alpha=0.0, link_share=0.0)
    assert np.isnan(only.history["train_loss"][:, 1]).all()
    assert client_weights("labelled_times_nodes", torch.ones(3), unlabelled.federation())[1] == 0


def test_adaptive_mu_by_hand() -> None:
    """It falls after five falling rounds, counts anew, rises with the loss, stays with an equal loss, and ends at 0."""
    mu, seen = AdaptiveMu(0.15, 0.1), []
    for loss in (9, 8, 7, 6, 5, 4, 3, 2, 1, 2, 2, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0):
        mu.see(loss)
        seen.append(round(mu.value, 6))
    expected = [0.15] * 5 + [0.05] * 4 + [0.15] * 2 + [0.15] * 4 + [0.05] * 5 + [0.0]
    assert seen == expected
    assert math.isclose(mu.value, 0.0)
    mu.begin()
    mu.see(100.0)
    assert mu.value == 0.0  # another loss: it did not rise


def test_fedprox_adapts_mu_and_counts_what_that_sends(anchored: Case) -> None:
    plain, adapted = trained(anchored, "fedprox", mu=1.0), trained(anchored, "fedprox", mu=1.0, mu_step=0.5)
    losses = np.average(adapted.history["train_loss"], axis=1, weights=anchored.federation().count(TRAIN))
    assert (np.diff(losses)[:5] < 0).all()  # so that mu fell within the rounds
    assert any(not torch.equal(own, adapted.parameters["last"][name]) for name, own in plain.parameters["last"].items())
    assert np.array_equal(plain.history["train_loss"][:6], adapted.history["train_loss"][:6])
    assert adapted.history["bytes_up"][0] - plain.history["bytes_up"][0] == 3 * 4
    assert adapted.history["bytes_down"][0] - plain.history["bytes_down"][0] == 3 * 4


def test_converged_clients_leave_any_method_and_go_on_counting(anchored: Case) -> None:
    result = trained(anchored, "fedavg", rounds=40, schedule={"tolerance": 0.03})
    ran = (~np.isnan(result.history["train_loss"])).sum(axis=0)
    assert len(result.history["round"]) < 40 and ran.max() == len(result.history["round"])
    losses = result.history["train_loss"]
    for client, rounds in enumerate(ran):
        changes = np.abs(np.diff(losses[:rounds, client]))
        assert (changes[:-1] >= 0.03).all() and (rounds == len(losses) or changes[-1] < 0.03)
    everyone = trained(anchored, "fedavg", rounds=40)
    assert not np.isnan(everyone.history["train_loss"]).any()


def test_what_clients_count_by_is_kept_where_the_mean_is_weighted_by_it(anchored: Case) -> None:
    federation = anchored.federation()
    products = federation.count(TRAIN) * np.diff(federation.ptr)
    own = trained(anchored, "fedgala", rounds=4, schedule={"selection_mean": "weighted"})
    assert set(own.weights) == {"val", "last", "test"}
    np.testing.assert_allclose(own.weights["last"], products / products.sum(), rtol=1e-6)
    alone = trained(anchored, "local", rounds=2, schedule={"selection_mean": "weighted"})
    assert alone.weights["last"].tolist() == federation.count(TRAIN).tolist()  # no server says otherwise
    assert trained(anchored, "fedavg", rounds=2).weights == {}


def test_the_order_of_clients_changes_nothing(anchored: Case, tmp_path: Path) -> None:
    order = [2, 0, 1]
    bounds = np.split(np.arange(len(anchored.nodes)), anchored.ptr[1:-1])
    rows = np.concatenate([bounds[client] for client in order])
    ptr = np.cumsum([0, *(len(bounds[client]) for client in order)])
    assert anchored.copy is not None
    of_rows = anchored.nodes[rows], ptr, anchored.role[rows], tmp_path, False, anchored.copy[rows]
    own = {"link_share": 0.0, "alpha": 1e3, "rounds": 5}
    straight, permuted = trained(anchored, "fedgala", **own), trained(Case(anchored.graph, *of_rows), "fedgala", **own)
    for name, tensor in straight.parameters["last"].items():
        torch.testing.assert_close(permuted.parameters["last"][name], tensor[order], rtol=0, atol=1e-5)
    assert np.array_equal(permuted.history["test_correct"], straight.history["test_correct"][:, order])


def test_phases_share_the_rounds_also_where_rounds_pass_without_clients(anchored: Case) -> None:
    """Drawn clients may all have left: such a round counts as well."""
    for seed in range(6):
        federation = anchored.federation()
        method = method_of(federation, backbone_of(federation, "gcn", hidden=8, dropout=0.0), "fedgala", alpha=1e3)
        result = train(federation, method, TASK, schedule_of(rounds=9, participation=0.34), seed)
        assert sum(own["rounds"] for own in result.phases) == 9


def test_a_phase_1_of_all_rounds_has_no_phase_2(anchored: Case) -> None:
    result = trained(anchored, "fedgala", rounds=3, alpha=0.0)
    assert result.graphs["last"].adjacency.nnz == anchored.federation().adjacency.nnz
    assert sum(own["bytes_up"] for own in result.phases) == result.history["bytes_up"][-1]


def test_clients_keep_what_they_received_where_nobody_counts(tmp_path: Path) -> None:
    case = beyond_a_cover("copies", tmp_path)
    others = case.nodes[: case.ptr[2]]
    role = np.where(np.isin(case.nodes, others), NONE, case.role).astype(np.int8)
    alone = Case(case.graph, case.nodes, case.ptr, role, tmp_path / "alone", False, case.copy)
    federation = alone.federation()
    role_of = federation.count(TRAIN)
    assert role_of[:2].tolist() == [0, 0] and role_of[2] > 0
    method = method_of(federation, backbone_of(federation, "gcn", hidden=8, dropout=0.0), "fedgala", alpha=0.0)
    result = train(federation, method, TASK, schedule_of(rounds=6, participation=0.34), SEED)
    for parameters in result.parameters["last"].values():
        assert torch.equal(parameters, parameters[:1].expand_as(parameters))
