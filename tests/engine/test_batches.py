"""Mini-batches of nodes and drawn neighbours: against a plain loop, and what must hold for both."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
import torch
from federations import (
    TASK,
    TEST,
    TRAIN,
    VAL,
    Case,
    backbone_of,
    case_of,
    made_of,
    method_of,
    random_graph,
    schedule_of,
)
from torch.nn.functional import cross_entropy

from fglbench import registry
from fglbench.backbones.base import Backbone
from fglbench.engine.batches import Batches, batches_of, sampled_mean
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.seeding import numpy_stream, torch_stream

SIZE = 3
BACKBONES = ["mlp", "gcn", "sgc", "sign", "gamlp", "sage", "gat"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients with 5, 5 and 3 training nodes (13, 10 and 7 nodes), many edges inside of them."""
    graph = random_graph(30, 7, 3, 400, seed=1, sparse=True)
    role = np.resize([TRAIN, VAL, TRAIN, TEST], 30)
    role[[2, 4]] = TEST
    parts = np.split(np.arange(30), [13, 23])
    return case_of(graph, parts, role, tmp_path_factory.mktemp("tiny"))


def run(
    federation: Federation, name: str, chunk: int | None = None, settings: dict[str, Any] | None = None, **schedule: Any
) -> Result:
    backbone = backbone_of(federation, name, **{"hidden": 8, **(settings or {})})
    method = method_of(federation, backbone, "fedavg")
    return train(federation, method, TASK, schedule_of(**schedule), 3, chunk_clients=chunk)


def assert_close(one: Result, other: Result, tolerance: float) -> None:
    for key, tensor in one.parameters["last"].items():
        torch.testing.assert_close(tensor, other.parameters["last"][key], rtol=0, atol=tolerance)
    np.testing.assert_allclose(one.history["train_loss"], other.history["train_loss"], rtol=0, atol=tolerance)


def steps_of(federation: Federation, size: int | None, name: str, **settings: Any) -> Batches:
    """The batches of seed 0."""
    made = batches_of(backbone_of(federation, name, **settings), size, 0, federation.num_clients, "cpu")
    made.use(federation, TASK.objective(federation))
    return made


@pytest.mark.parametrize("name", BACKBONES)
def test_batches_are_those_of_a_plain_loop(tiny: Case, name: str) -> None:
    federation = tiny.federation(name)
    result = run(federation, name, settings={"dropout": 0.0}, batch_size=SIZE)
    backbone = backbone_of(federation, name, hidden=8, dropout=0.0)
    clients = oracle.clients_of(tiny.graph, tiny.nodes, tiny.ptr, tiny.role)
    plan = oracle.Plan(backbone=name, settings=backbone.settings.model_dump())
    loop = oracle.Loop(clients, federation.classes, backbone.initial(torch_stream(3, "initialisation")), plan)
    optimisers = [
        torch.optim.Adam(model.parameters(), lr=plan.lr, weight_decay=plan.weight_decay) for model in loop.models
    ]
    orders = [numpy_stream(3, "batches", client) for client in range(3)]
    sizes = [int((client.role == TRAIN).sum()) for client in clients]
    for number in range(3):
        for position, (client, model) in enumerate(zip(clients, loop.models, strict=True)):
            train_nodes = np.flatnonzero(client.role == TRAIN)
            for _ in range(2):
                order = orders[position].permutation(train_nodes)
                total = 0.0
                for first in range(0, len(order), SIZE):
                    rows = order[first : first + SIZE]
                    loss = cross_entropy(model(client.x, client.edges)[rows], client.labels[rows])
                    optimisers[position].zero_grad()
                    loss.backward()
                    optimisers[position].step()
                    total += float(loss.detach()) * len(rows)
            assert result.history["train_loss"][number, position] == pytest.approx(total / len(order), abs=1e-4)
        mean = oracle.average([model.read() for model in loop.models], sizes, list(loop.models[0].named()))
        for model in loop.models:
            model.write(mean)
    for key, stack in result.parameters["last"].items():
        torch.testing.assert_close(stack[0], loop.models[0].read()[key], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("participation", [1.0, 0.7])
def test_chunks_change_no_batch(tiny: Case, name: str, participation: float) -> None:
    federation = tiny.federation(name)
    together = run(federation, name, batch_size=SIZE, participation=participation, rounds=4)
    for chunk in (1, 2):
        alone = run(federation, name, chunk, batch_size=SIZE, participation=participation, rounds=4)
        assert_close(alone, together, 1e-5)


@pytest.mark.parametrize("name", registry.names("backbone"))
def test_a_batch_of_all_nodes_is_the_full_batch(tiny: Case, name: str) -> None:
    federation = tiny.federation(name)
    assert_close(run(federation, name, batch_size=5), run(federation, name), 1e-6)
    smaller = run(federation, name, batch_size=4).parameters["last"]
    whole = run(federation, name).parameters["last"]
    assert any(not torch.allclose(smaller[key], whole[key], atol=1e-4) for key in whole)


def test_every_training_node_is_in_one_batch_and_clients_with_fewer_sit_out(tiny: Case) -> None:
    federation = tiny.federation("mlp")
    batches = steps_of(federation, SIZE, "mlp")
    epochs = [list(batches.epoch(np.arange(3))) for _ in range(4)]
    one = epochs[0]
    assert [batch.clients.tolist() for batch in one] == [[0, 1, 2], [0, 1]]
    assert [np.diff(batch.target_ptr).tolist() for batch in one] == [[3, 3, 3], [2, 2]]
    seen = np.sort(np.concatenate([batch.targets.numpy() for batch in one]))
    np.testing.assert_array_equal(seen, np.flatnonzero(federation.role == TRAIN))
    assert len({str(epoch[0].targets.tolist()) for epoch in epochs}) > 1
    single = steps_of(federation, 4, "mlp")
    assert [batch.clients.tolist() for batch in single.epoch(np.arange(3))] == [[0, 1, 2], [0, 1]]


@pytest.mark.parametrize("participation", [1.0, 0.7])
def test_batches_of_chunks_are_not_kept(tiny: Case, monkeypatch: pytest.MonkeyPatch, participation: float) -> None:
    made: list[weakref.ref[PropagationBatch]] = []
    alive: list[int] = []
    build = Backbone.batch

    def watched(*arguments: Any, **named: Any) -> PropagationBatch:
        batch = build(*arguments, **named)
        made.append(weakref.ref(batch))
        alive.append(sum(own() is not None for own in made))
        return batch

    monkeypatch.setattr(Backbone, "batch", watched)
    run(tiny.federation("gcn"), "gcn", 1, participation=participation)
    assert len(made) > 6
    assert max(alive) <= 3  # the one in use, the last of training, the last of evaluation
    del made[:], alive[:]
    run(tiny.federation("gcn"), "gcn", participation=participation)
    assert len(made) == (2 if participation == 1.0 else 1 + 3)


def test_the_neighbours_with_the_smallest_keys_are_kept() -> None:
    operator = sp.csr_matrix(np.array([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0]], dtype=np.float32) / 3)
    keys = np.array([0.9, 0.1, 0.5, 0.3, 0.2, 0.7])
    one = sampled_mean(operator, 1, keys).toarray()
    np.testing.assert_array_equal(one, [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]])
    two = sampled_mean(operator, 2, keys).toarray()
    np.testing.assert_array_equal(two, [[0, 0.5, 0.5, 0], [0, 0, 0, 0], [0, 0.5, 0, 0.5], [1, 0, 0, 0]])


@pytest.mark.parametrize("batch_size", [None, SIZE])
def test_as_many_neighbours_as_there_are_is_full_sage(tiny: Case, batch_size: int | None) -> None:
    full = run(tiny.federation("sage"), "sage", batch_size=batch_size)
    many = {"neighbours": 30}
    drawn = tiny.federation("sage", **many)
    assert made_of(drawn).hops == 0
    assert_close(run(drawn, "sage", settings=many, batch_size=batch_size), full, 1e-5)


@pytest.mark.parametrize("batch_size", [None, SIZE])
@pytest.mark.parametrize("participation", [1.0, 0.7])
def test_chunks_change_no_draw_of_neighbours(tiny: Case, batch_size: int | None, participation: float) -> None:
    own = {"neighbours": 2}
    federation = tiny.federation("sage", **own)

    def drawn(chunk: int | None) -> Result:
        return run(federation, "sage", chunk, own, batch_size=batch_size, participation=participation, rounds=4)

    together = drawn(None)
    for chunk in (1, 2):
        assert_close(drawn(chunk), together, 1e-5)
    full = run(tiny.federation("sage"), "sage", batch_size=batch_size, participation=participation, rounds=4)
    weight = "0.neighbours.weight"
    assert not torch.allclose(full.parameters["last"][weight], together.parameters["last"][weight], atol=1e-3)


def test_neighbours_are_drawn_anew_for_every_layer_and_step_and_at_most_so_many(tiny: Case, tmp_path: Path) -> None:
    federation = tiny.federation("sage", neighbours=2, depth=3)
    batches = steps_of(federation, None, "sage", neighbours=2, depth=3)
    (one,), (other,) = (list(batches.epoch(np.arange(2))) for _ in range(2))
    first, second, third = (operator.matrix for operator in (*one.lead, *one.operators))
    degrees = np.diff(made_of(federation).operator.indptr)[: tiny.ptr[2]]
    assert degrees.max() > 2
    for operator, rows in ((first, one.levels[1]), (second, one.levels[2]), (third, one.levels[3])):
        np.testing.assert_array_equal(np.diff(operator.indptr), np.minimum(degrees[rows], 2))
    last = [batch.operators[-1].matrix for batch in (one, other)]
    sources = [batch.levels[-2] for batch in (one, other)]
    drawn = [own[operator.indices].tolist() for own, operator in zip(sources, last, strict=True)]
    assert drawn[0] != drawn[1]
    for own, operator in zip(sources, last, strict=True):
        for row, target in enumerate(one.levels[-1]):
            known = made_of(federation).operator[target].indices
            assert set(own[operator[row].indices]) <= set(known)
