"""Batches of samples: a model on them against a plain loop over clients, and what must hold for every batch."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import TASK, TRAIN, Case, case_of, random_graph
from torch import Tensor
from torch.nn.functional import cross_entropy

from fglbench.engine import samples as samples_module
from fglbench.engine.samples import SampleBatch, Samples, evaluation_samples, sample_batch
from fglbench.federation.federation import Federation
from fglbench.federation.partly_dense import PartlyDense
from fglbench.samplers.tree import Sampler, Settings, level_sizes
from fglbench.seeding import numpy_stream

SEED, SIZE, HIDDEN, LR = 3, 3, 8, 0.5
FANOUTS = [3, 2]
EVERY = np.arange(3)


@pytest.fixture(scope="module", params=[True, False], ids=["sparse", "dense"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients with 7, 5 and 4 training nodes (13, 10 and 7 nodes); the last node has no edge."""
    graph = random_graph(30, 7, 3, 200, seed=1, sparse=request.param)
    role = np.resize([TRAIN, 0], 30)
    role[29] = TRAIN
    return case_of(graph, np.split(np.arange(30), [13, 23]), role, tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def federation(tiny: Case) -> Federation:
    return tiny.federation("sage", neighbours=1)  # whose features are not propagated


def sampler_of(adjacency: sp.csr_matrix, redraw: str = "epoch") -> Sampler:
    return Sampler(Settings(fanouts=FANOUTS, redraw=redraw), adjacency)  # type: ignore[arg-type]


def samples_of(federation: Federation, redraw: str = "epoch", batch_size: int | None = None) -> Samples:
    samples = Samples(partial(sampler_of, redraw=redraw), batch_size, SEED, federation.num_clients, "cpu")
    samples.use(federation, TASK.objective(federation))
    return samples


def evaluated(federation: Federation, clients: np.ndarray = EVERY) -> list[SampleBatch]:
    sampler = sampler_of(federation.adjacency)
    return list(evaluation_samples(federation, sampler, clients, SEED))


def read(batch: SampleBatch) -> np.ndarray:
    """[T, k] positions in the federation."""
    return batch.rows[batch.positions].numpy()


def reads(batches: list[SampleBatch]) -> dict[int, list[int]]:
    """What each target reads."""
    pairs = [pair for one in batches for pair in zip(one.targets.tolist(), read(one).tolist(), strict=True)]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def start(features: int, classes: int) -> dict[str, Tensor]:
    """One client's parameters of a reduction layer, two layers of GraphSAGE over trees, and biases."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"in": (features, HIDDEN), "0.own": (HIDDEN, HIDDEN), "0.mean": (HIDDEN, HIDDEN)}
    shapes |= {"1.own": (HIDDEN, classes), "1.mean": (HIDDEN, classes)}
    found = {name: torch.randn(shape, generator=generator) / 2 for name, shape in shapes.items()}
    biases = {"in.bias": HIDDEN, "0.bias": HIDDEN, "1.bias": classes}
    return found | {name: torch.randn(width, generator=generator) / 2 for name, width in biases.items()}


def forward(p: dict[str, Tensor], batch: SampleBatch) -> Tensor:
    """[T, classes] under stacked parameters."""

    def layer(number: int, parents: Tensor, children: Tensor) -> Tensor:
        mean = children.unflatten(1, (parents.shape[1], -1)).mean(2)
        own = batch.linear(parents, p[f"{number}.own"])
        return batch.bias(own + batch.linear(mean, p[f"{number}.mean"]), p[f"{number}.bias"])

    reduced = batch.row_bias(batch.input_linear(p["in"]), p["in.bias"]).relu()
    root, first, second = batch.gather(reduced).split(level_sizes(FANOUTS), dim=1)
    return layer(1, layer(0, root, first).relu(), layer(0, first, second).relu()).squeeze(1)


def plain_forward(p: dict[str, Tensor], x: Tensor, tree: list[int]) -> Tensor:
    """[classes] of one tree of one client."""
    h = [torch.relu(x[node] @ p["in"] + p["in.bias"]) for node in tree]

    def layer(number: int, own: Tensor, children: list[Tensor]) -> Tensor:
        mean = sum(children[1:], children[0]) / len(children)
        return own @ p[f"{number}.own"] + mean @ p[f"{number}.mean"] + p[f"{number}.bias"]

    root = layer(0, h[0], h[1:4]).relu()
    first = [layer(0, h[1 + child], h[4 + 2 * child : 6 + 2 * child]).relu() for child in range(3)]
    return layer(1, root, first)


def plain_steps(
    federation: Federation, client: int, redraw: str, batch_size: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Targets and trees of a client's steps in two epochs, drawn on its graph alone; nodes count from its first one."""
    begin, end = federation.ptr[client : client + 2]
    sampler = sampler_of(federation.adjacency[begin:end, begin:end])
    nodes = np.flatnonzero(federation.role[begin:end] == TRAIN)
    order, stream = (numpy_stream(SEED, name, client) for name in ("batches", "sampling"))
    once = sampler.draw(nodes, [0, len(nodes)], [stream]) if redraw == "never" else None
    for _ in range(2):
        shuffled = order.permutation(nodes) if batch_size else nodes
        trees = sampler.draw(nodes, [0, len(nodes)], [stream]) if redraw == "epoch" else once
        for first in range(0, len(nodes), batch_size or len(nodes)):
            own = np.sort(shuffled[first : first + (batch_size or len(nodes))])
            if trees is None:
                yield own, sampler.draw(own, [0, len(own)], [stream])
            else:
                yield own, trees[np.isin(nodes, own)]


@pytest.mark.parametrize("redraw", ["never", "epoch", "step"])
@pytest.mark.parametrize("batch_size", [None, SIZE])
def test_training_in_one_pass_is_that_of_a_plain_loop(
    tiny: Case, federation: Federation, redraw: str, batch_size: int | None
) -> None:
    initial = start(7, federation.classes)
    stacked = {name: tensor.repeat(3, *[1] * tensor.dim()).requires_grad_() for name, tensor in initial.items()}
    samples = samples_of(federation, redraw, batch_size)
    for _ in range(2):
        for batch in samples.epoch(EVERY):
            own = {name: tensor[batch.clients] for name, tensor in stacked.items()}
            losses = cross_entropy(forward(own, batch), batch.labels, reduction="none")
            loss = (batch.client_mean @ losses[:, None]).sum()
            gradients = torch.autograd.grad(loss, list(stacked.values()))
            with torch.no_grad():
                for tensor, gradient in zip(stacked.values(), gradients, strict=True):
                    tensor -= LR * gradient
    features: Any = tiny.graph.features
    dense = torch.from_numpy(features if isinstance(features, np.ndarray) else features.toarray())
    for client in range(3):
        begin, end = tiny.ptr[client : client + 2]
        plain = {name: tensor.clone().requires_grad_() for name, tensor in initial.items()}
        x, labels = dense[tiny.nodes[begin:end]], torch.from_numpy(tiny.graph.labels[tiny.nodes[begin:end]])
        for targets, trees in plain_steps(federation, client, redraw, batch_size):
            logits = torch.stack([plain_forward(plain, x, tree) for tree in trees.tolist()])
            gradients = torch.autograd.grad(cross_entropy(logits, labels[targets]), list(plain.values()))
            with torch.no_grad():
                for tensor, gradient in zip(plain.values(), gradients, strict=True):
                    tensor -= LR * gradient
        for name, tensor in plain.items():
            torch.testing.assert_close(stacked[name][client], tensor, rtol=0, atol=1e-5)
            assert not torch.allclose(tensor, initial[name], atol=1e-3)


def test_rows_are_read_once_each_and_grouped_by_client(federation: Federation) -> None:
    for batch in samples_of(federation, batch_size=SIZE).epoch(EVERY):
        rows, drawn = batch.rows.numpy(), read(batch)
        np.testing.assert_array_equal(rows, np.unique(drawn))
        np.testing.assert_array_equal(drawn[:, 0], batch.targets.numpy())
        for positions, ptr in ((rows, batch.row_ptr), (batch.targets.numpy(), batch.target_ptr)):
            sizes = np.bincount(federation.client_of[positions], minlength=3)
            np.testing.assert_array_equal(np.diff(ptr), sizes[batch.clients])
        np.testing.assert_array_equal(batch.labels.numpy(), federation.labels[batch.targets.numpy()])


def test_every_training_node_is_in_one_batch_and_clients_with_fewer_sit_out(federation: Federation) -> None:
    batches = list(samples_of(federation, batch_size=SIZE).epoch(EVERY))
    assert [batch.clients.tolist() for batch in batches] == [[0, 1, 2], [0, 1, 2], [0]]
    assert [np.diff(batch.target_ptr).tolist() for batch in batches] == [[3, 3, 3], [3, 2, 1], [1]]
    assert sorted(reads(batches)) == np.flatnonzero(federation.role == TRAIN).tolist()


@pytest.mark.parametrize("batch_size", [None, SIZE])
@pytest.mark.parametrize(("redraw", "stays"), [("never", True), ("epoch", False), ("step", False)])
def test_draws_stay_or_change_as_the_setting_says(
    federation: Federation, redraw: str, stays: bool, batch_size: int | None
) -> None:
    samples = samples_of(federation, redraw, batch_size)
    assert (reads(list(samples.epoch(EVERY))) == reads(list(samples.epoch(EVERY)))) is stays


def test_a_draw_for_an_epoch_is_made_before_its_batches(federation: Federation) -> None:
    """So it is that of the whole epoch, and one for each step is another one."""
    whole = reads(list(samples_of(federation, "epoch").epoch(EVERY)))
    assert reads(list(samples_of(federation, "epoch", SIZE).epoch(EVERY))) == whole
    assert reads(list(samples_of(federation, "step").epoch(EVERY))) == whole
    assert reads(list(samples_of(federation, "step", SIZE).epoch(EVERY))) != whole


@pytest.mark.parametrize("batch_size", [None, SIZE])
@pytest.mark.parametrize("redraw", ["never", "epoch", "step"])
def test_chunks_and_clients_that_are_absent_change_no_draw(
    federation: Federation, redraw: str, batch_size: int | None
) -> None:
    together, alone = samples_of(federation, redraw, batch_size), samples_of(federation, redraw, batch_size)
    for _ in range(2):
        whole = reads(list(together.epoch(EVERY)))
        some = reads(list(alone.epoch(np.array([0, 2]))))
        assert some | reads(list(alone.epoch(np.array([1])))) == whole


def test_a_batch_that_stays_is_made_once_for_the_same_clients(federation: Federation) -> None:
    samples = samples_of(federation, "never")
    (one,), (again,) = (list(samples.epoch(EVERY)) for _ in range(2))
    assert one is again
    (other,) = samples.epoch(np.array([0, 1]))
    assert other.clients.tolist() == [0, 1]
    assert reads([other]) == {target: tree for target, tree in reads([one]).items() if target < federation.ptr[2]}


def test_other_graphs_are_drawn_anew(federation: Federation) -> None:
    samples = samples_of(federation, "never")
    list(samples.epoch(EVERY))
    bare = federation.with_edges(sp.csr_matrix(federation.adjacency.shape, dtype=np.float32))
    samples.use(bare, TASK.objective(bare))
    (batch,) = samples.epoch(EVERY)
    assert (read(batch) == batch.targets.numpy()[:, None]).all()


def test_evaluation_draws_for_all_nodes_the_same_at_every_call(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    (batch,) = evaluated(federation)
    assert batch.targets.tolist() == list(range(30))
    whole = reads([batch])
    assert reads(evaluated(federation)) == whole
    assert reads(evaluated(federation, np.array([0, 2]))) | reads(evaluated(federation, np.array([1]))) == whole
    (trained,) = samples_of(replace(federation, role=np.full(30, TRAIN, dtype=np.int8))).epoch(EVERY)
    assert reads([trained]) != whole  # whose streams are others
    monkeypatch.setattr(samples_module, "_EVALUATED_AT_ONCE", 11)
    pieces = evaluated(federation)
    assert [piece.clients.tolist() for piece in pieces] == [[0], [0, 1], [1, 2]]
    assert [piece.target_ptr for piece in pieces] == [[0, 11], [0, 2, 11], [0, 1, 8]]
    assert reads(pieces) == whole


def test_evaluation_leaves_out_rows_that_a_method_added(federation: Federation) -> None:
    given = np.array([0, 4, 5, 25])
    (batch,) = evaluated(replace(federation, original=given))
    assert batch.targets.tolist() == given.tolist()
    assert batch.clients.tolist() == [0, 2]


def test_input_linear_multiplies_the_rows_by_their_clients_weights(federation: Federation, tiny: Case) -> None:
    features: Any = tiny.graph.features
    sparse = sp.csr_matrix(features)
    mixed = sparse.toarray()
    places = np.array([1, 2, 20, 28])
    mixed[places] = np.random.default_rng(0).random((4, 7))
    rest = sparse.tolil()
    rest[places] = 0
    partly = PartlyDense(rest.tocsr(), mixed[places], places)
    weight = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0))
    targets = np.array([0, 3, 28])
    drawn = np.array([[0, 1, 2], [3, 3, 1], [28, 24, 24]])
    for stored, dense in ((federation.features, sparse.toarray()), (partly, mixed)):
        batch = sample_batch(replace(federation, x=stored), np.array([0, 2]), targets, drawn)
        assert batch.rows.tolist() == [0, 1, 2, 3, 24, 28]
        rows = torch.from_numpy(dense)
        expected = torch.cat([rows[[0, 1, 2, 3]] @ weight[0], rows[[24, 28]] @ weight[1]])
        torch.testing.assert_close(batch.input_linear(weight), expected)


def test_the_gradient_of_gather_sums_the_copies_of_a_row(federation: Federation) -> None:
    (batch,) = samples_of(federation).epoch(EVERY)
    x = torch.randn(len(batch.rows), 4, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(*batch.positions.shape, 4, dtype=torch.float64)
    gathered = batch.gather(x)
    torch.testing.assert_close(gathered, x[batch.positions])
    (found,) = torch.autograd.grad(gathered, x, weights)
    expected = np.zeros(x.shape)
    np.add.at(expected, batch.positions.numpy(), weights.numpy())
    torch.testing.assert_close(found, torch.from_numpy(expected))


def test_maps_of_targets_take_any_number_of_copies(federation: Federation) -> None:
    (batch,) = samples_of(federation).epoch(EVERY)
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(3, 4, 5, generator=generator), torch.randn(3, 5, generator=generator)
    client = torch.from_numpy(federation.client_of)[batch.targets]
    for shape in ((), (6,), (2, 3)):
        x = torch.randn(len(batch.targets), *shape, 4, generator=generator)
        expected = torch.stack([own @ weight[c] + bias[c] for own, c in zip(x, client, strict=True)])
        torch.testing.assert_close(batch.bias(batch.linear(x, weight), bias), expected)
    x = torch.randn(len(batch.rows), 4, generator=generator)
    client = torch.from_numpy(federation.client_of)[batch.rows]
    expected = torch.stack([own @ weight[c] + bias[c] for own, c in zip(x, client, strict=True)])
    torch.testing.assert_close(batch.row_bias(batch.row_linear(x, weight), bias), expected)
