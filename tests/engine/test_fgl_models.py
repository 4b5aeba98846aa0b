"""FedSage+ and FedGL: pieces worked out by hand, plain loops over clients, limits in which they are another method."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import plain_strategies
import pytest
import scipy.sparse as sp
import torch
from federations import TASK, Case, backbone_of, made_of, method_of, schedule_of, tiny_case
from laws import assert_same, make_five, run
from sklearn.metrics.pairwise import cosine_similarity
from test_strategies import SEED, SETTINGS, assert_oracle, plan_of
from torch.nn.functional import cross_entropy, smooth_l1_loss

from fglbench.engine.evaluation import Evaluator
from fglbench.engine.loop import train
from fglbench.errors import ComponentError
from fglbench.federation.chunks import clients_at_once
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, no_dropout
from fglbench.federation.parameters import Parameters, stack
from fglbench.federation.partly_dense import PartlyDense, PartlyDenseRows
from fglbench.methods import base, fedsage_plus
from fglbench.methods.common.generator import Generator
from fglbench.methods.common.hidden import Hidden, vectors_of
from fglbench.methods.common.holders import mean_of_holders
from fglbench.methods.common.mending import MEAN, impair, mend
from fglbench.methods.common.nearest import Candidates, others_mean
from fglbench.methods.common.phases import Phase
from fglbench.methods.common.recovery import Recovery
from fglbench.methods.fedgl import nearest, pseudo_labels
from fglbench.partition.ratios import TRAIN
from fglbench.seeding import derive, torch_stream


def paths() -> Federation:
    """Two clients: the path 0 - 1 - 2, and the path 3 - 4."""
    edges = np.array([[0, 1, 3], [1, 2, 4]])
    both = np.concatenate([edges, edges[::-1]], axis=1)
    adjacency = sp.csr_matrix((np.ones(6, dtype=np.float32), tuple(both)), shape=(5, 5))
    return Federation(
        ptr=np.array([0, 3, 5]),
        labels=np.array([0, 1, 0, 1, 0]),
        role=np.array([1, 2, 3, 1, 3], dtype=np.int8),
        classes=2,
        adjacency=adjacency,
        x=sp.csr_matrix(np.arange(10, dtype=np.float32).reshape(5, 2)),
    )


@pytest.fixture
def tiny(tmp_path: Path) -> Case:
    return tiny_case(tmp_path)


# ---- mending


def filled(features: Any) -> np.ndarray:
    return features if isinstance(features, np.ndarray) else features.toarray()


@pytest.mark.parametrize("sparse", [True, False])
def test_added_neighbours_stand_behind_their_client_and_change_the_mean(sparse: bool) -> None:
    own = paths() if sparse else replace(paths(), x=filled(paths().features))
    generated = np.array([[10, 0], [20, 0], [30, 0]], dtype=np.float32)
    mended, added = mend(own, np.array([1, 1, 3]), generated)
    assert mended.ptr.tolist() == [0, 5, 8]
    assert added.tolist() == [3, 4, 7]
    assert mended.original is not None
    assert mended.original.tolist() == [0, 1, 2, 5, 6]
    assert mended.labels.tolist() == [0, 1, 0, -1, -1, 1, 0, -1]
    assert mended.role.tolist() == [1, 2, 3, 0, 0, 1, 3, 0]
    assert isinstance(mended.features, PartlyDense if sparse else np.ndarray)
    x = filled(mended.features)
    assert x[:, 0].tolist() == [0, 2, 4, 10, 20, 6, 8, 30]
    # Node 1 has 0, 2 and the two added ones, (0 + 4 + 10 + 20) / 4; node 3, at 5, has 4 and an added one.
    mean = mended.propagated(MEAN)
    assert (mean.operator @ x)[:, 0].tolist() == [2, 8.5, 2, 2, 2, 19, 6, 6]
    ahead = mend(own, np.array([1, 1, 3]), generated, ahead=True)[0].propagated(MEAN)
    np.testing.assert_allclose(filled(ahead.features[1]), mean.operator @ x, rtol=1e-6)
    assert (mean.hops, ahead.hops) == (0, 1)
    assert filled(mend(own, np.array([1]), None)[0].features)[:, 0].tolist() == [0, 2, 4, 0, 6, 8]


def test_rows_that_read_a_dense_one_are_dense_after_propagation() -> None:
    sparse = sp.csr_matrix(np.array([[1, 0], [0, 0], [0, 2]], dtype=np.float32))
    x = PartlyDense(sparse, np.array([[3, 4]], dtype=np.float32), np.array([1]))
    operator = sp.csr_matrix(np.array([[0.5, 0.5, 0], [1, 0, 0], [0, 0, 1]], dtype=np.float32))
    made = x.propagated(operator)
    assert (made.dense_index.tolist(), made.dense.tolist()) == ([0], [[2, 2]])
    assert made.sparse.toarray().tolist() == [[0, 0], [1, 0], [0, 2]]
    assert made.sparse.nnz == 2
    last = x[np.array([1, 2])]
    assert (last.shape, last.dense_index.tolist(), last.toarray().tolist()) == ((2, 2), [0], [[3, 4], [0, 2]])


@pytest.mark.parametrize("places", [[], [0, 3, 4], [3], [0, 1, 2, 3, 4]])
def test_partly_dense_rows_multiply_stacked_weights_as_dense_ones(places: list[int]) -> None:
    """Of three clients, one without rows; gradients to the weights and to the dense rows."""
    ptr, stream = [0, 2, 2, 5], torch.Generator().manual_seed(0)
    x = torch.randn(5, 4, generator=stream)
    weight = torch.randn(3, 4, 6, generator=stream, requires_grad=True)
    by_client = np.zeros((5, 12), dtype=np.float32)
    for row, client in enumerate([0, 0, 2, 2, 2]):
        if row not in places:
            by_client[row, 4 * client : 4 * client + 4] = x[row]
    dense = x[places].clone().requires_grad_()
    rows = PartlyDenseRows.of(SparseOperator(sp.csr_matrix(by_client)), dense, np.array(places, dtype=np.int64), ptr)
    whole = x.clone().requires_grad_()
    expected = torch.cat([whole[:2] @ weight[0], whole[2:] @ weight[2]])
    coefficients = torch.randn(5, 6, generator=stream)
    product = rows.times(weight)
    torch.testing.assert_close(product, expected)
    found = torch.autograd.grad((product * coefficients).sum(), [weight, dense])
    to_weight, to_x = torch.autograd.grad((expected * coefficients).sum(), [weight, whole])
    torch.testing.assert_close(found, (to_weight, to_x[places]))


@pytest.mark.parametrize("share", [0.0, 0.4, 0.99])
def test_missing_neighbours_are_those_that_the_hidden_nodes_were(tiny: Case, share: float) -> None:
    federation = tiny.federation("sage")
    clients = np.arange(3)
    found = impair(federation, share, 5, clients)
    before = np.diff(federation.adjacency.indptr)
    sizes = np.diff(federation.ptr)
    hidden = [min(int(share * size), size - 1) for size in sizes]
    assert np.diff(found.federation.ptr).tolist() == (sizes - hidden).tolist()
    known = {row.tobytes(): degree for row, degree in zip(filled(federation.features), before, strict=True)}
    total = np.array([known[row.tobytes()] for row in filled(found.federation.features)])
    np.testing.assert_array_equal(found.missing, total - np.diff(found.federation.adjacency.indptr))
    assert (found.missing.sum() > 0) == (share > 0)


# ---- the generator


def test_vectors_of_counts_go_by_client_number_and_node() -> None:
    owners, slots = vectors_of(np.array([2, 0, 3, 1, 2]), np.array([0, 3, 3, 5]))
    assert owners.tolist() == [0, 2, 0, 2, 2, 3, 4, 4]
    assert slots.tolist() == [0, 0, 1, 1, 2, 0, 0, 1]


@pytest.mark.parametrize("sparse", [True, False])
def test_nearest_of_other_clients_against_all_distances(monkeypatch: pytest.MonkeyPatch, sparse: bool) -> None:
    federation = paths()
    dense = np.array([[0, 0], [4, 0], [0, 4], [1, 1], [5, 5]], dtype=np.float32)
    federation = replace(federation, x=sp.csr_matrix(dense) if sparse else dense)
    vectors = torch.tensor([[1.0, 0.0], [3.5, 3.5], [0.0, 3.0]])
    monkeypatch.setattr("fglbench.methods.common.nearest._BLOCK", {"cpu": 4})
    monkeypatch.setattr("fglbench.methods.common.nearest._FEWEST", 1)
    found = others_mean(
        Candidates(federation.features, federation.ptr, "cpu"), federation, vectors, np.array([0, 0, 1])
    )
    # From the first client's vectors, the second's nodes (1, 1) and (5, 5); from the last vector (0, 4) is closest.
    assert found.tolist() == [[1, 1], [5, 5], [0, 4]]
    three = replace(federation, ptr=np.array([0, 1, 3, 5]))
    mean = others_mean(Candidates(three.features, three.ptr, "cpu"), three, vectors[:1], np.array([0]))
    assert mean.tolist() == [[2.5, 0.5]]  # of (4, 0), at a squared distance of 9 and not 17, and (1, 1)


def plain_losses(parameters: Parameters, settings: Any, federation: Federation, others: bool) -> list[float]:
    """One client after another, with dense matrices and a loop over vectors."""
    found = []
    x_all = torch.from_numpy(filled(federation.features))
    whole = impair(federation, settings.hidden_share, 3, np.arange(3))
    for client in range(3):
        start, stop = whole.federation.ptr[client : client + 2]
        a = torch.from_numpy(whole.federation.adjacency[start:stop, start:stop].toarray())
        x = torch.from_numpy(filled(whole.federation.features)[start:stop])
        lost = whole.lost[start:stop].toarray()
        one: dict[str, Parameters] = {"encoder": {}, "head": {}, "classifier": {}}
        for name, own in parameters.items():
            part, _, rest = name.partition(".")
            one[part][rest] = own[client]

        def sage(p: Any, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            mean = a / a.sum(1, keepdim=True).clamp(min=1)
            h = (mean @ x @ p["0.neighbours.weight"] + x @ p["0.own.weight"] + p["0.bias"]).relu()
            return mean @ h @ p["1.neighbours.weight"] + h @ p["1.own.weight"] + p["1.bias"]

        z, head = sage(one["encoder"], a, x), one["head"]
        counts = torch.from_numpy(lost.sum(1))
        loss = smooth_l1_loss((z @ head["0.weight"] + head["0.bias"]).squeeze(1), counts).item()
        stream = torch.Generator().manual_seed(derive(3, "fedsage+ noise", client))
        noise = iter(torch.randn(int((counts > 0).sum()), z.shape[1], generator=stream))
        added: list[torch.Tensor] = []
        owners: list[int] = []
        for node in np.flatnonzero(lost.sum(1)):
            hidden = ((z[node] + next(noise)) @ head["1.weight"] + head["1.bias"]).relu()
            vectors = (hidden @ head["2.weight"] + head["2.bias"]).tanh().reshape(settings.neighbours, -1)
            for vector in vectors[: int(lost[node].sum())]:
                added.append(vector)
                owners.append(node)
                loss += (x_all[lost[node] > 0] - vector).square().sum(1).min().item() / len(x)
                if others:
                    pulls = [
                        x_all[a:b][(x_all[a:b] - vector).square().sum(1).argmin()]
                        for other, (a, b) in enumerate(zip(federation.ptr, federation.ptr[1:], strict=False))
                        if other != client
                    ]
                    loss += (torch.stack(pulls).mean(0) - vector).square().sum().item() / len(x)
        size = len(x) + len(added)
        wider = torch.zeros(size, size)
        wider[: len(x), : len(x)] = a
        for position, owner in enumerate(owners, start=len(x)):
            wider[owner, position] = wider[position, owner] = 1.0
        trained = np.flatnonzero(whole.federation.role[start:stop] == TRAIN)
        if len(trained):
            logits = sage(one["classifier"], wider, torch.cat([x, *(v.unsqueeze(0) for v in added)]))[trained]
            labels = torch.from_numpy(whole.federation.labels[start:stop][trained])
            loss += cross_entropy(logits, labels).item()
        found.append(loss)
    return found


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("sparse", [True, False])
def test_losses_of_the_generator_against_a_plain_loop(tmp_path: Path, others: bool, sparse: bool) -> None:
    federation = tiny_case(tmp_path, sparse=sparse).federation("sage", propagate=False)
    clients = np.arange(3)
    settings = fedsage_plus.Settings(hidden_share=0.4, neighbours=2, width=5)
    generator = Generator(settings, federation, 3, "cpu")
    parameters = stack(generator.initial(torch_stream(3, "fedsage+ initialisation")), 3)
    hidden = generator.batch(federation, clients)
    output = generator.forward(parameters, hidden, no_dropout)
    number = settings.epochs if others else settings.epochs - 1  # the first federated epoch, and the one before it
    step: Any = base.Step(0, number, 0, clients, parameters, parameters, {}, output, hidden, schedule_of())  # type: ignore[arg-type]
    losses = Recovery(settings, generator, federation).loss(step)
    expected = plain_losses(parameters, settings, federation, others)
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-4)


def test_generator_learns_how_many_neighbours_are_missing(tiny: Case) -> None:
    federation = tiny.federation("sage")
    backbone = backbone_of(federation, "sage")
    method: Any = method_of(federation, backbone, "fedsage+", hidden_share=0.4, epochs=40, federated_epochs=0)
    hidden, errors = Hidden(federation, np.arange(3), 5, 0.4, 3), []
    finish = method.finish

    def measured(phase: Phase, parameters: Parameters) -> base.Prepared | None:
        if phase.name == "generator":
            start = stack(method._generator.initial(torch_stream(3, "fedsage+ initialisation")), 3)
            for own in (start, parameters):
                found = method._generator.forward(own, hidden, no_dropout).degrees
                errors.append(smooth_l1_loss(found, hidden.missing).item())
        return finish(phase, parameters)

    method.finish = measured
    train(federation, method, TASK, schedule_of(rounds=1), 3)
    before, after = errors
    assert after < before / 2


# ---- FedSage+


def test_without_hidden_nodes_fedsage_plus_is_fedsage(tiny: Case) -> None:
    federation = tiny.federation("sage")
    plain = run(federation, "fedsage", "sage")
    same = run(federation, "fedsage+", "sage", own={"hidden_share": 0.0, "epochs": 150, "federated_epochs": 0})
    assert_same(same, plain)


@pytest.mark.parametrize("sparse", [False, True])
def test_memory_limit_counts_generated_nodes_as_if_they_were_there(tmp_path: Path, sparse: bool) -> None:
    case = make_five(tmp_path, [0, 1, 2, 3, 4], sparse=sparse)
    federation = case.federation("sage")
    backbone = backbone_of(federation, "sage")
    added = method_of(federation, backbone, "fedsage+", neighbours=4).added_rows
    owners = np.repeat(np.arange(len(federation.labels)), 4)
    features = np.ones((len(owners), federation.features.shape[1]), dtype=np.float32)
    mended, _ = mend(federation, owners, features, ahead=True)
    counted: Any = clients_at_once  # limits below one MiB, for graphs as small as these
    for width, memory in product((1, 1000), np.geomspace(1e-3, 10, 60)):
        with_added = counted(federation, MEAN, width, 10, memory, added_rows=added)
        assert with_added == counted(mended, MEAN, width, 10, memory)
    assert counted(federation, MEAN, 1000, 10, 1, added_rows=added) < counted(federation, MEAN, 1000, 10, 1)


def test_fedsage_plus_predicts_the_split_and_counts_its_exchange(tiny: Case) -> None:
    federation = tiny.federation("sage")
    own = {"hidden_share": 0.5, "epochs": 10, "federated_epochs": 2}
    result = run(federation, "fedsage+", "sage", own=own)
    assert result.predictions["last"].shape == federation.labels.shape
    assert len(result.graphs["last"].labels) > len(federation.labels)
    silent = run(federation, "fedsage+", "sage", own={**own, "federated_epochs": 0})
    hidden = Hidden(federation, np.arange(3), 5, 0.5, 3)
    head = 64 * 64 + 64 + 64 * 5 * 7 + 5 * 7
    with_vectors = np.count_nonzero(np.diff(hidden.vector_ptr))
    assert with_vectors == 2  # the third client has no edge
    shown = 4 * (len(np.unique(hidden.owners)) * 64 + with_vectors * head)
    for name in ("bytes_up", "bytes_down"):
        assert result.history[name][0] - silent.history[name][0] == 2 * 3 * shown
    alone = run(federation, "fedsage+", "sage", own={**own, "cross_weight": 0.0})
    assert alone.history["bytes_up"].tolist() == silent.history["bytes_up"].tolist()


# ---- FedGL


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("optimiser", "lr"), [("sgd", 0.5), ("adam", 0.02)])
def test_fedgl(tmp_path: Path, optimiser: str, lr: float, participation: float, chunk: int | None) -> None:
    five = make_five(tmp_path, [0, 1, 2, 3, 4])
    nodes = five.nodes.copy()
    nodes[[12, 13, 39]] = nodes[:3]  # held by two clients each
    federation = replace(five.federation(**SETTINGS), nodes=nodes)
    backbone = backbone_of(federation, "gcn", **SETTINGS)
    own = {"label_weight": 0.7, "confidence": 0.4, "edge_weight": 0.3}
    method: Any = method_of(federation, backbone, "fedgl", neighbours=12, **own)
    schedule = {"rounds": 5, "local_epochs": 3, "participation": participation, "optimiser": optimiser, "lr": lr}
    result = train(federation, method, TASK, schedule_of(**schedule), SEED, chunk_clients=chunk)
    plan = plan_of(5, participation, local_epochs=3, lr=lr)
    plain = plain_strategies.FedGL(np.split(nodes, five.ptr[1:-1]), **own)
    assert_oracle(five, result, plan, plain, optimiser)
    np.testing.assert_array_equal(method._labels, torch.cat(plain.labels))
    assert np.count_nonzero(method._labels >= 0) > 3
    clients = oracle.clients_of(five.graph, five.nodes, five.ptr, five.role)
    expected = torch.block_diag(*(plain.operator(i, client) for i, client in enumerate(clients)))
    np.testing.assert_allclose(
        result.graphs["last"].propagated(backbone.propagation).operator.toarray(), expected, atol=1e-6
    )
    assert max(own.sum() for own in plain.joined) > 0


@pytest.mark.parametrize("aggregation", ["fedavg", "moon", "feddc", "fedgta"])
def test_without_its_terms_fedgl_is_its_aggregation(tmp_path: Path, aggregation: str) -> None:
    federation = make_five(tmp_path, [0, 1, 2, 3, 4]).federation()
    own = {"label_weight": 0.0, "neighbours": 0, "aggregation": aggregation}
    assert_same(run(federation, "fedgl", own=own, dropout=0.5), run(federation, aggregation, dropout=0.5))
    assert_same(run(federation, "fedsage", own={"aggregation": aggregation}), run(federation, aggregation))


@pytest.mark.parametrize(("own", "width"), [({"label_weight": 0.0}, 8), ({"neighbours": 0}, 3), ({}, 11)])
def test_fedgl_sends_what_its_terms_need(tiny: Case, own: dict[str, Any], width: int) -> None:
    """Predictions of 3 classes, representations of 8, or both, of all 30 nodes."""
    federation = tiny.federation("gcn")
    plain, result = (run(federation, name, own=settings) for name, settings in (("fedavg", {}), ("fedgl", own)))
    each = 4 * 30 * width
    assert (result.history["bytes_up"] - plain.history["bytes_up"]).tolist() == [each, 2 * each, 3 * each]


def test_graphs_that_change_need_features_as_they_are(tmp_path: Path) -> None:
    case = tiny_case(tmp_path, sparse=False)
    with pytest.raises(ComponentError, match=r"fedgl: its class changes graphs by `rebuild`.*own file"):
        run(case.federation("gcn"), "fedgl")
    raw = case.federation("gcn", propagate=False)
    sparse = tiny_case(tmp_path / "sparse").federation("gcn")
    assert made_of(raw).hops == 0
    assert isinstance(made_of(raw).features[0], np.ndarray)
    dense, same = run(raw, "fedgl"), run(sparse, "fedgl")
    assert len(np.unique(dense.predictions["last"])) > 1
    for name, tensor in dense.parameters["last"].items():
        torch.testing.assert_close(same.parameters["last"][name], tensor, rtol=0, atol=1e-5)


def test_mean_over_holders_and_pseudo_labels_by_hand() -> None:
    # Node 0 is held by two clients with 1 and 3 training nodes, node 1 by the second alone.
    average = mean_of_holders(np.array([0, 0, 1]), np.array([1, 3, 3], dtype=np.float32))
    predictions = average @ np.array([[0.2, 0.8], [0.8, 0.2], [0.4, 0.6]], dtype=np.float32)
    np.testing.assert_allclose(predictions, [[0.65, 0.35], [0.65, 0.35], [0.4, 0.6]], rtol=1e-6)
    assert pseudo_labels(predictions, 0.62).tolist() == [0, 0, -1]


def test_pseudo_graph_against_all_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    cosine = cosine_similarity(embeddings) - 2 * np.eye(9)
    expected = np.zeros((9, 9))
    for node in range(9):
        for other in np.argsort(-cosine[node])[:3]:
            if cosine[node, other] > 0:
                expected[node, other] = expected[other, node] = 1
    monkeypatch.setattr("fglbench.methods.fedgl._BLOCK", 20)
    np.testing.assert_array_equal(nearest(torch.from_numpy(embeddings), 3).toarray(), expected)
    assert nearest(torch.ones(1, 4), 3).nnz == 0


def test_fedgl_labels_no_training_node_and_agrees_on_shared_nodes(tiny: Case) -> None:
    federation = tiny.federation("gcn")
    nodes = np.arange(30)
    nodes[13:15] = nodes[:2]  # the first two nodes of the second client are those of the first
    role = federation.role.copy()
    role[[0, 1, 13, 14]] = 0
    federation = replace(federation, nodes=nodes, role=role)
    backbone = backbone_of(federation, "gcn", hidden=8)
    method: Any = method_of(federation, backbone, "fedgl", confidence=0.0)
    result = train(federation, method, TASK, schedule_of(), 0)
    assert (method._labels[role == TRAIN] == -1).all()
    assert (method._labels[role != TRAIN] >= 0).all()
    assert method._labels[[0, 1]].tolist() == method._labels[[13, 14]].tolist()
    joined = result.graphs["last"].adjacency
    assert joined.nnz > federation.adjacency.nnz
    assert (federation.client_of[joined.tocoo().row] == federation.client_of[joined.tocoo().col]).all()


def test_fedgl_needs_a_backbone_that_reads_all_neighbours_for_its_weights(tiny: Case) -> None:
    federation = tiny.federation("sage", neighbours=2)
    backbone = backbone_of(federation, "sage", neighbours=2)
    reason = method_of(federation, backbone, "fedgl").not_applicable()
    assert reason is not None
    assert "edge_weight" in reason
    for own in ({"neighbours": 0}, {"edge_weight": 0.0}):
        assert method_of(federation, backbone, "fedgl", **own).not_applicable() is None
    assert method_of(federation, backbone_of(federation, "sage"), "fedgl").not_applicable() is None


def test_batches_to_score_a_rebuilt_graph_on_are_time_of_evaluation(
    tiny: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    build = Evaluator._batches

    def slowly(*arguments: Any) -> Any:
        seconds[0] += 1.0
        return build(*arguments)

    monkeypatch.setattr(Evaluator, "_batches", slowly)
    monkeypatch.setattr("fglbench.engine.loop.time.perf_counter", lambda: seconds[0])
    result = run(tiny.federation(), "fedgl", rounds=4)
    assert (result.train_seconds, result.eval_seconds) == (0.0, 4.0)


def test_who_sits_out_keeps_pseudo_labels_and_edges(tiny: Case) -> None:
    federation = tiny.federation("gcn")
    method: Any = method_of(federation, backbone_of(federation, "gcn", hidden=8), "fedgl", confidence=0.0)
    train(federation, method, TASK, schedule_of(rounds=1), 0)
    labels, edges = method._labels.copy(), method._edges.copy()
    drawn = np.array([1])
    away = ~np.isin(federation.client_of, drawn)
    other = np.where(federation.role == TRAIN, -1, 2)  # predicted next, unlike what is there
    assert (labels != other).any(where=away)
    size = int((~away).sum())
    weights = torch.zeros(3).index_fill(0, torch.from_numpy(drawn), 1.0)
    sent = {"predictions": torch.eye(3)[[2] * size], "embeddings": torch.ones(size, 4)}
    round = base.Round(1, drawn, weights.long().numpy(), weights, {}, {}, schedule_of(), sent)
    method.server_update(round, {})
    np.testing.assert_array_equal(method._labels, np.where(away, labels, other))
    assert (method._edges != edges)[away].nnz == 0
    assert (method._edges != edges)[~away].nnz > 0
