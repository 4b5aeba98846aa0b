"""The checks that every registered component passes, with no test written by its author."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import (
    TEST,
    VAL,
    Case,
    backbone_of,
    case_of,
    changed_unseen,
    method_of,
    schedule_of,
    tiny_case,
)

from fglbench import registry
from fglbench.federation.federation import TRAIN, Federation
from fglbench.federation.loop import train
from fglbench.federation.record import Result
from fglbench.settings import ComponentSettings

COMPONENTS = [(kind, name) for kind in registry.KINDS for name in registry.names(kind)]
PAIRS = [(method, backbone) for method in registry.names("method") for backbone in registry.names("backbone")]
ROUNDS = 3


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Three clients, of which the second has no training node and the third no edge."""
    tiny = tiny_case(tmp_path_factory.mktemp("tiny"))
    second = slice(tiny.ptr[1], tiny.ptr[2])
    tiny.role[second][tiny.role[second] == TRAIN] = 0
    return tiny


@pytest.fixture(scope="module")
def whole(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Case:
    role = np.zeros(case.graph.num_nodes, dtype=np.int8)
    role[case.nodes] = case.role
    return case_of(case.graph, [np.arange(case.graph.num_nodes)], role, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_declares_what_it_is(kind: str, name: str) -> None:
    declared = registry.declaration(kind, name)
    assert declared.version >= 1
    assert declared.summary.endswith((".", "?")) or len(declared.summary) > 20
    assert issubclass(declared.settings, ComponentSettings)
    for field, info in declared.settings.model_fields.items():
        assert info.description, f"{kind} {name}: setting '{field}' has no description"
        assert not info.is_required(), f"{kind} {name}: setting '{field}' has no default"
    module = registry.module(kind, name)
    assert declared.version == module.VERSION
    assert declared.settings().model_dump() == module.Settings().model_dump()


@pytest.mark.parametrize("name", registry.names("backbone"))
def test_backbone_says_what_it_needs(name: str, case: Case) -> None:
    backbone = backbone_of(case.federation(name), name)
    names = list(backbone.initial(torch.Generator()))
    assert backbone.head
    assert set(backbone.head) <= set(names)
    one, other = (backbone.initial(torch.Generator().manual_seed(seed)) for seed in (1, 2))
    again = backbone.initial(torch.Generator().manual_seed(1))
    assert all(torch.equal(one[name], again[name]) for name in names)
    assert any(not torch.equal(one[name], other[name]) for name in names)
    needs = set(registry.declaration("backbone", name).settings().prepared())  # type: ignore[attr-defined]
    assert {"r", "hops"} <= needs <= {"r", "hops", "self_loops", "combine"}


class Pair:
    """A method and a backbone on a federation, trained in several ways."""

    def __init__(self, method: str, backbone: str, case: Case, whole: Case, *, inductive: bool = False):
        central = registry.declaration("method", method).constants.get("CENTRALISED", False)
        self._method, self._backbone = method, backbone
        self.federation: Federation = (whole if central else case).federation(backbone, inductive=inductive)
        self.run = cache(self._run)

    def _run(self, chunk: int | None = None, dropout: bool = True, **schedule: Any) -> Result:
        known = registry.declaration("backbone", self._backbone).settings.model_fields
        backbone = backbone_of(
            self.federation, self._backbone, **({} if dropout or "dropout" not in known else {"dropout": 0.0})
        )
        method = method_of(self.federation, backbone, self._method)
        if reason := method.not_applicable():
            assert len(reason) > 10
            pytest.skip(f"not applicable: {reason}")
        return train(
            self.federation, backbone, method, schedule_of(**{"rounds": ROUNDS, **schedule}), 0, chunk_clients=chunk
        )


@pytest.fixture(scope="module")
def unseen(case: Case, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """The same with a third client of validation and test nodes alone, and once more with all such nodes changed; then
    the whole graph of both."""
    role = np.zeros(case.graph.num_nodes, dtype=np.int8)
    role[case.nodes] = case.role
    parts = np.split(case.nodes, case.ptr[1:-1])
    role[parts[2]] = np.resize([VAL, TEST], len(parts[2]))
    graphs = [case.graph, changed_unseen(case_of(case.graph, parts, role, Path()), Path()).graph]
    one_part = [np.arange(case.graph.num_nodes)]
    return [
        case_of(graph, held, role, tmp_path_factory.mktemp("unseen")) for held in (parts, one_part) for graph in graphs
    ]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: "-".join(pair))
def pair(request: pytest.FixtureRequest, case: Case, whole: Case) -> Pair:
    method, backbone = request.param
    return Pair(method, backbone, case, whole)


def assert_close(one: Result, other: Result, tolerance: float) -> None:
    for name, tensor in one.parameters["last"].items():
        torch.testing.assert_close(tensor, other.parameters["last"][name], rtol=0, atol=tolerance)
    for name in ("val_correct", "test_correct", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(one.history[name], other.history[name])
    for reading in ("val", "last", "test"):
        np.testing.assert_array_equal(one.predictions[reading], other.predictions[reading])


def assert_sound(result: Result, federation: Federation, *, participation: bool = False) -> None:
    assert result.state == "ok"
    assert len(result.history["round"]) == ROUNDS
    for kept in ("val", "last"):
        for tensor in result.parameters[kept].values():
            assert torch.isfinite(tensor).all()
            assert len(tensor) == federation.num_clients
    losses = result.history["train_loss"]
    trains = federation.count(TRAIN) > 0
    assert np.isnan(losses[:, ~trains]).all()
    assert np.isfinite(losses[:, trains]).any() if participation else np.isfinite(losses[:, trains]).all()
    for predicted in result.predictions.values():
        assert predicted.shape == federation.scored.labels.shape
        assert predicted.dtype == np.int32
        assert 0 <= predicted.min() <= predicted.max() < federation.classes


def test_numbers_are_finite(pair: Pair) -> None:
    assert_sound(pair.run(), pair.federation)


def test_numbers_repeat(pair: Pair) -> None:
    assert_close(pair.run(), pair._run(), 0.0)


def test_inputs_are_not_written_to(pair: Pair) -> None:
    federation = pair.federation
    features: Any = federation.features
    parts = [federation.operator.data, federation.labels, federation.role, federation.ptr]
    parts.append(features if isinstance(features, np.ndarray) else features.data)
    before = [part.copy() for part in parts]
    pair._run()
    assert all(np.array_equal(now, then) for now, then in zip(parts, before, strict=True))


def test_chunks_agree(pair: Pair) -> None:
    assert_close(pair.run(chunk=1), pair.run(), 1e-5)


def test_half_of_the_clients_a_round(pair: Pair) -> None:
    assert_sound(pair.run(participation=0.5), pair.federation, participation=True)
    assert_close(pair.run(participation=0.5, chunk=1), pair.run(participation=0.5), 1e-5)


@pytest.mark.parametrize(("method", "backbone"), PAIRS)
def test_one_client(method: str, backbone: str, whole: Case) -> None:
    alone = Pair(method, backbone, whole, whole)
    assert_sound(alone.run(), alone.federation)


@pytest.mark.parametrize(("method", "backbone"), PAIRS)
def test_inductive(method: str, backbone: str, unseen: list[Case]) -> None:
    """Validation and test nodes are scored, and nothing of them gets into training."""
    one, other = (Pair(method, backbone, unseen[i], unseen[i + 2], inductive=True) for i in (0, 1))
    first, second = one.run(), other.run()
    assert_sound(first, one.federation)
    assert_close(one.run(chunk=1), first, 1e-5)
    for name, tensor in first.parameters["last"].items():
        assert torch.equal(tensor, second.parameters["last"][name])
    for name in ("train_loss", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(first.history[name], second.history[name])


def test_every_client_with_training_nodes_learns(pair: Pair) -> None:
    """Gradients reach the parameters, with the right sign."""
    losses = pair._run(dropout=False, lr=0.05, local_epochs=1, rounds=40).history["train_loss"]
    trains = pair.federation.count(TRAIN) > 0
    assert losses[:, trains].mean(1).min() < 0.8 * losses[0, trains].mean()


def test_this_file_sees_the_catalogue() -> None:
    assert {"global", "local", "fedavg", "fedprox", "fedper"} <= set(registry.names("method"))
    assert {"mlp", "gcn", "sgc"} <= set(registry.names("backbone"))
