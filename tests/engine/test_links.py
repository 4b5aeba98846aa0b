"""Link prediction and the methods made for it: against dense formulas, PyG's losses and plain per-client loops."""

from pathlib import Path
from typing import Any

import numpy as np
import plain_links
import pytest
import scipy.sparse as sp
import torch
from federations import Case, backbone_of, case_of, method_of, random_graph, schedule_of, tiny_case, with_links
from sklearn.metrics import average_precision_score, roc_auc_score
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.nn import GAE, VGAE, InnerProductDecoder

from fglbench import registry
from fglbench.backbones.base import Backbone
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.federation.operators import ClientDropout, no_dropout
from fglbench.federation.parameters import stack
from fglbench.federation.step import Step
from fglbench.partition.ratios import TEST, VAL
from fglbench.seeding import torch_stream
from fglbench.stages.preprocess import load_federation
from fglbench.tasks import task_of
from fglbench.tasks.base import Task
from fglbench.tasks.common.links import AllPairs, InnerProducts, SampledPairs

HIDDEN = 8


def links(**settings: Any) -> Task:
    return task_of({"task": {"name": "link-prediction", "settings": settings}})


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Four clients of 110 nodes with 460 edges, of which the last client has none."""
    folder = tmp_path_factory.mktemp("links")
    graph = random_graph(110, 7, 3, 1200, 3, sparse=True)
    owner = np.random.default_rng(3).permutation(np.repeat(np.arange(4), (40, 32, 30, 8)))
    lonely = (owner[graph.edges] == 3).all(axis=0)
    graph = type(graph)(graph.edges[:, ~lonely], graph.features, graph.labels, graph.classes, cleaning=graph.cleaning)
    parts = [np.flatnonzero(owner == client) for client in range(4)]
    plain = case_of(graph, parts, np.zeros(110, dtype=np.int8), folder / "plain")
    return with_links(plain, folder / "links")


def model_of(federation: Federation, name: str, **settings: Any) -> Backbone:
    """A backbone for embeddings."""
    resolved = registry.declaration("backbone", name).settings(hidden=HIDDEN, **settings)
    made: Backbone = registry.module("backbone", name).Backbone(resolved, federation.num_features, None)
    return made


def trained(
    federation: Federation, method: str, backbone: str, chunk: int | None = None, own: Any = None, **schedule: Any
) -> Result:
    model = model_of(federation, backbone, dropout=0.0)
    federated = method_of(federation, model, method, **(own or {}))
    return train(federation, federated, links(), schedule_of(**schedule), 0, chunk_clients=chunk)


def step_of(federation: Federation, z: torch.Tensor, epoch: int = 0, clients: Any = None) -> Step:
    """A step whose outputs are these embeddings."""
    model = model_of(federation, "gcn")
    objective = SampledPairs(federation)
    clients = np.flatnonzero(objective.counts) if clients is None else clients
    batch = model.batch(federation, clients, federation.rows_of(clients))
    output: Any = type("Output", (), {"logits": z})
    return Step(0, 0, epoch, clients, {}, {}, {}, output, batch, schedule_of())


@pytest.mark.parametrize("ends", [[[0, 1], [2, 1], [0, 1], [3, 3], [4, 0]], [[1, 2]], np.zeros((0, 2), dtype=np.int64)])
def test_inner_products_and_their_gradient_are_those_of_indexing(ends: Any) -> None:
    ends = np.asarray(ends, dtype=np.int64)
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weights = torch.arange(1.0, len(ends) + 1)
    found = InnerProducts(ends, 5, "cpu")(z)
    expected = (z[ends[:, 0]] * z[ends[:, 1]]).sum(1)
    torch.testing.assert_close(found, expected)
    (gradient,), (other,) = (torch.autograd.grad((own * weights).sum(), [z]) for own in (found, expected))
    torch.testing.assert_close(gradient, other)


def test_the_sampled_loss_is_pygs(case: Case) -> None:
    federation = case.federation("gcn")
    objective = SampledPairs(federation)
    clients = np.flatnonzero(objective.counts)
    z = torch.randn(int(federation.ptr[3]), 4, generator=torch.Generator().manual_seed(1))
    found = objective.loss(step_of(federation, z))
    negatives = objective.negatives(0, 0, 0, clients)
    recon = GAE(torch.nn.Identity(), InnerProductDecoder())
    for client, own in zip(clients, plain_links.clients_of(federation), strict=False):
        rows = slice(*federation.ptr[client : client + 2])
        expected = recon.recon_loss(
            z[rows], torch.from_numpy(own.links.T.copy()), torch.from_numpy(negatives[client].T.copy())
        )
        torch.testing.assert_close(found[client], expected, atol=1e-5, rtol=0)


def test_the_loss_over_all_pairs_is_the_weighted_cross_entropy(case: Case) -> None:
    federation = case.federation("gcn")
    z = torch.randn(int(federation.ptr[3]), 4, generator=torch.Generator().manual_seed(1))
    found = AllPairs(federation).loss(step_of(federation, z))
    for client in range(3):
        rows = slice(*federation.ptr[client : client + 2])
        adjacency = torch.from_numpy(federation.adjacency[rows, rows].toarray())
        nodes, edges = len(adjacency), adjacency.sum()
        weight, norm = (nodes**2 - edges) / edges, nodes**2 / (2 * (nodes**2 - edges))
        wanted = adjacency + torch.eye(nodes)
        expected = norm * binary_cross_entropy_with_logits(z[rows] @ z[rows].T, wanted, pos_weight=weight)
        torch.testing.assert_close(found[client], expected, atol=1e-5, rtol=1e-5)


def test_negatives_are_as_many_as_edges_and_none_of_them(case: Case) -> None:
    federation = case.federation("gcn")
    objective = SampledPairs(federation)
    everyone = np.flatnonzero(objective.counts)
    drawn = objective.negatives(0, 1, 2, everyone)
    for client, own in zip(everyone, drawn, strict=True):
        assert len(own) == objective.counts[client]
        start, stop = federation.ptr[client : client + 2]
        assert 0 <= own.min() <= own.max() < stop - start
        assert (own[:, 0] != own[:, 1]).all()
        assert not federation.adjacency[own[:, 0] + start, own[:, 1] + start].any()
        np.testing.assert_array_equal(objective.negatives(0, 1, 2, np.array([client]))[0], own)
    other = objective.negatives(0, 1, 3, everyone)
    assert not all(np.array_equal(one, two) for one, two in zip(drawn, other, strict=True))


def test_a_complete_client_has_no_negatives() -> None:
    size = 4
    ones = np.ones((size, size), dtype=np.float32) - np.eye(size, dtype=np.float32)
    federation = Federation(
        ptr=np.array([0, size]),
        labels=np.zeros(size, dtype=np.int64),
        role=np.zeros(size, dtype=np.int8),
        classes=1,
        adjacency=sp.csr_matrix(ones),
        x=np.eye(size, dtype=np.float32),
    )
    objective = SampledPairs(federation)
    assert len(objective.negatives(0, 0, 0, np.array([0]))[0]) == 0
    z = torch.ones(size, 2)
    expected = torch.nn.functional.softplus(torch.tensor([-2.0]))
    torch.testing.assert_close(objective.loss(step_of(federation, z)), expected)


@pytest.mark.parametrize("variational", [False, True])
def test_autoencoders_are_pygs(case: Case, variational: bool) -> None:
    """Encoder, divergence and reconstruction of one client, under PyG's GAE and VGAE."""
    federation = case.federation("vgae")
    model = model_of(federation, "vgae" if variational else "gae")
    start = model.initial(torch_stream(0, "initialisation"))
    batch = model.batch(federation, np.array([0]))
    dropout = ClientDropout(0.0, [torch.Generator().manual_seed(7)])
    output = model.forward(stack(start, 1), batch, dropout)
    client = plain_links.clients_of(federation)[0]
    encoder = plain_links.Encoder(federation.num_features, HIDDEN, variational)
    encoder.write(start)
    convolved = encoder(client.x, client.edges)
    evaluated = model.forward(stack(start, 1), batch, no_dropout)
    torch.testing.assert_close(evaluated.logits, convolved[0], atol=1e-5, rtol=0)
    assert evaluated.penalty is None
    if not variational:
        torch.testing.assert_close(output.logits, convolved[0], atol=1e-5, rtol=0)
        assert output.penalty is None
        return
    noise = torch.empty(len(client.x), HIDDEN).normal_(generator=torch.Generator().manual_seed(7))
    mean, log_sigma = convolved
    torch.testing.assert_close(output.logits, mean + log_sigma.exp() * noise, atol=1e-5, rtol=0)
    pyg = VGAE(torch.nn.Identity())
    divergence = pyg.kl_loss(mean, log_sigma)
    assert output.penalty is not None
    torch.testing.assert_close(output.penalty[0], divergence / len(mean), atol=1e-5, rtol=0)
    of_node = model_of(federation, "vgae", kl_per="node", kl=0.5).forward(stack(start, 1), batch, dropout).penalty
    assert of_node is not None
    torch.testing.assert_close(of_node[0], 0.5 * divergence, atol=1e-5, rtol=0)


@pytest.mark.parametrize("backbone", ["gae", "vgae"])
@pytest.mark.parametrize("chunk", [None, 1])
def test_links_agree_with_a_plain_loop(case: Case, backbone: str, chunk: int | None) -> None:
    federation = case.federation(backbone)
    result = trained(federation, "fedavg", backbone, chunk)
    objective = SampledPairs(federation)
    start = model_of(federation, backbone).initial(torch_stream(0, "initialisation"))
    plan = plain_links.Plan(HIDDEN, variational=backbone == "vgae")
    trace = plain_links.run(
        plain_links.clients_of(federation),
        start,
        plan,
        lambda number, epoch, client: objective.negatives(0, number, epoch, np.array([client]))[0],
    )
    for name in start:
        expected = torch.stack([own[name] for own in trace.weights])
        torch.testing.assert_close(result.parameters["last"][name], expected, atol=1e-4, rtol=0)
    np.testing.assert_allclose(result.history["train_loss"], trace.losses, atol=1e-4)
    assert np.isnan(result.history["train_loss"][:, 3]).all()


@pytest.mark.parametrize("queue", [1, 2])
@pytest.mark.parametrize("chunk", [None, 1])
def test_fedvgae_agrees_with_a_plain_loop(case: Case, queue: int, chunk: int | None) -> None:
    federation = case.federation("vgae")
    own = {"queue": queue, "drop": 0.0, "adjustments": 2, "phi": 0.4}
    result = trained(federation, "fedvgae", "vgae", chunk, own, rounds=4, lr=0.03)
    objective, pairs = SampledPairs(federation), federation.pairs
    assert pairs is not None

    def score(client: int, z: torch.Tensor) -> float:
        mine = slice(pairs.ptr[client], pairs.ptr[client + 1])
        ends, edge = pairs.ends[mine] - federation.ptr[client], pairs.edge[mine]
        asked = pairs.role[mine] == VAL
        values = (z[ends[:, 0]] * z[ends[:, 1]]).sum(1).numpy()
        return float(roc_auc_score(edge[asked], values[asked])) if asked.any() else float("nan")

    start = model_of(federation, "vgae").initial(torch_stream(0, "initialisation"))
    plan = plain_links.Plan(
        HIDDEN, variational=True, rounds=4, lr=0.03, contrast=0.8, queue=queue, drop=0.0, adjustments=2, phi=0.4
    )
    trace = plain_links.run(
        plain_links.clients_of(federation),
        start,
        plan,
        lambda number, epoch, client: objective.negatives(0, number, epoch, np.array([client]))[0],
        score,
    )
    assert trace.adjusted > 0
    for name in start:
        expected = torch.stack([weights[name] for weights in trace.weights])
        torch.testing.assert_close(result.parameters["last"][name], expected, atol=1e-4, rtol=0)


def test_fedvgae_without_its_parts_is_fedavg(case: Case) -> None:
    federation = case.federation("vgae")
    plain = trained(federation, "fedavg", "vgae")
    ablated = trained(federation, "fedvgae", "vgae", own={"no_contrast": True, "no_fine_tuning": True})
    for name, own in plain.parameters["last"].items():
        assert torch.equal(own, ablated.parameters["last"][name])


def test_fedvgae_with_a_queue_of_one_and_no_fine_tuning_is_moon(case: Case) -> None:
    federation = case.federation("vgae")
    moon = trained(federation, "moon", "vgae", own={"mu": 0.8})
    ours = trained(federation, "fedvgae", "vgae", own={"no_fine_tuning": True})
    for name, own in moon.parameters["last"].items():
        assert torch.equal(own, ours.parameters["last"][name])


def test_rounds_and_metrics_score_pairs_as_scikit_learn_does(case: Case) -> None:
    federation, task = case.federation("gcn"), links()
    result, pairs = trained(federation, "fedavg", "gcn"), federation.pairs
    assert pairs is not None
    predicted = result.predictions["last"]
    split = {"nodes": federation.nodes, "ptr": federation.ptr, "role": federation.role, **pairs.arrays()}
    targets = task.targets(split, case.graph.labels)  # type: ignore[arg-type]
    found = task.scores(predicted, None, targets, targets.role == TEST)
    for client in range(3):
        mine = np.arange(pairs.ptr[client], pairs.ptr[client + 1])
        mine = mine[pairs.role[mine] == TEST]
        auc = roc_auc_score(pairs.edge[mine], predicted[mine])
        assert found["auc"]["clients"][client] == pytest.approx(auc)
        assert result.history["test_auc"][-1, client] == pytest.approx(auc)
        precision = average_precision_score(pairs.edge[mine], predicted[mine])
        assert found["ap"]["clients"][client] == pytest.approx(precision)
    tested = pairs.role == TEST
    assert found["auc"]["pooled"] == pytest.approx(roc_auc_score(pairs.edge[tested], predicted[tested]))
    assert found["auc"]["pooled"] == pytest.approx(result.history["test_pooled_auc"][-1])
    assert found["auc"]["macro"] == pytest.approx(np.nanmean(result.history["test_auc"][-1]))
    assert found["auc"]["evaluated"] == 3
    assert found["auc"]["of"] == 4


@pytest.mark.parametrize("method", ["fedavg", "fedvgae", "fed-pub", "scaffold", "gcfl+", "fedper"])
def test_participation_and_chunks(case: Case, method: str) -> None:
    federation = case.federation("gae")
    one, other = (trained(federation, method, "gae", chunk, rounds=4, participation=0.5) for chunk in (None, 1))
    for name, own in one.parameters["last"].items():
        torch.testing.assert_close(own, other.parameters["last"][name], atol=1e-4, rtol=0)
    assert np.isnan(one.history["train_loss"]).any(axis=1).all()


def test_one_client_is_centralised(case: Case, tmp_path: Path) -> None:
    everyone = np.arange(case.graph.num_nodes)
    whole = with_links(
        case_of(case.graph, [everyone], np.zeros(len(everyone), dtype=np.int8), tmp_path), tmp_path / "l"
    )
    federation = whole.federation("gcn")
    runs = [trained(federation, method, "gcn") for method in ("fedavg", "global", "local")]
    for name, own in runs[0].parameters["last"].items():
        assert all(torch.equal(own, other.parameters["last"][name]) for other in runs[1:])


def test_identity_features_are_an_embedding_table(tmp_path: Path) -> None:
    """X W of one-hot ids is W's row of the node, in all clients the same one."""
    case = tiny_case(tmp_path, sizes=(13, 10))
    spec = {"r": 0.5, "hops": 1, "features": "identity"}
    federation = load_federation(case.graph_folder, case.preprocessed_folder(spec), spec)
    assert federation.num_features == case.graph.num_nodes
    x: Any = federation.features
    np.testing.assert_array_equal(x.indices, case.nodes)
    assert (x.data == 1).all()
    assert x.nnz == len(case.nodes)
    model = backbone_of(federation, "mlp", depth=1)
    start = model.initial(torch_stream(0, "initialisation"))
    output = model.forward(stack(start, 2), model.batch(federation, np.arange(2)), no_dropout)
    expected = start["0.weight"][torch.from_numpy(case.nodes)] + start["0.bias"]
    torch.testing.assert_close(output.logits, expected)
