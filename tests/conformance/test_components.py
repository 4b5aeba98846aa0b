"""The checks that every registered component passes, with no test written by its author."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import (
    BEYOND_A_COVER,
    NONE,
    SPLITTING,
    TASK,
    TEST,
    VAL,
    Case,
    backbone_of,
    beyond_a_cover,
    case_of,
    changed_unseen,
    made_of,
    method_of,
    random_graph,
    schedule_of,
    tiny_case,
    with_links,
)
from pairs import (
    BACKBONES_OF,
    CORE,
    CORE_ON_SCHEMES,
    ON_SCHEMES,
    PAIRS,
    default_partner,
    needed,
    not_applicable,
    parameters,
)

from fglbench import registry
from fglbench.datasets.base import Graph
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.partition.base import assign_clients
from fglbench.partition.ratios import TRAIN
from fglbench.seeding import numpy_stream
from fglbench.settings import ComponentSettings
from fglbench.tasks import DEFAULT_TASK, has_own_roles, metrics_of, task_of
from fglbench.tasks import base as base_task

COMPONENTS = [(kind, name) for kind in registry.KINDS for name in registry.names(kind)]
ROUNDS = 3
# Settings under which methods that wait with what is theirs do it on a tiny federation, in few rounds.
EAGER: dict[str, dict[str, Any]] = {
    "moon": {"mu": 1.0},
    "gcfl": SPLITTING,
    "gcfl+": {**SPLITTING, "window": 2},
    "fedgl": {"confidence": 0.4, "label_weight": 1.0},
    "fedgta": {"epsilon": 0.9},
    "fedgala": {"alpha": 1e3},
    "fedgalap": {"alpha": 1e3},
}


WITHOUT_SELECTION = {"fedvgae": {"no_fine_tuning": True}}
"""Settings under which a method trains whatever the validation scores are."""

WITHOUT_LINKS = {name: {"link_share": 0.0, "alpha": 0.0} for name in ("fedgala", "fedgalap")}
"""Settings under which a method learns the task alone."""


@dataclass(frozen=True)
class Choice:
    """A method and a backbone, each with settings of its own."""

    method: str
    backbone: str
    own: dict[str, Any] = field(default_factory=dict)
    backbone_own: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        own = {**self.own, **self.own.get("aggregation_settings", {}), **self.backbone_own}
        words = [f"{key}={value}" for key, value in own.items() if not isinstance(value, dict)]
        return "-".join([self.method, self.backbone, *words])


CHOICES = parameters(
    (Choice(method, backbone, backbone_own=needed(method, backbone)) for method, backbone in PAIRS),
    lambda one: (one.method, one.backbone) in CORE,
    str,
)
AGGREGATIONS: list[dict[str, Any]] = [
    {"aggregation": "moon", "aggregation_settings": {"mu": 1.0}},
    {"aggregation": "feddc"},
    {"aggregation": "feddc", "aggregation_settings": {"variant": "paper"}},
    {"aggregation": "gcfl+", "aggregation_settings": EAGER["gcfl+"]},
    {"aggregation": "fedgta"},
    {"aggregation": "scaffold"},
]
VARIANTS = [
    *(Choice(model, "sage", own) for model in ("fedsage", "fedsage+", "fedgl") for own in AGGREGATIONS),
    Choice("fedvgae", "vgae", {"queue": 2, "share": "all", "drop": 0.0}),
    Choice("fedvgae", "vgae", {"no_contrast": True, "no_fine_tuning": True}),
    Choice("fedavg", "vgae", backbone_own={"kl_per": "node"}),
    Choice("fedgta", "gcn", {"variant": "public"}),
    Choice("fedgta", "gcn", {"moments": "central", "order": 3}),
    Choice("fedgta", "gcn", {"no_moments": True}),
    Choice("fedgta", "gcn", {"no_confidence": True}),
    Choice("feddc", "gcn", {"variant": "paper"}),
    Choice("fedavg", "sage", backbone_own={"neighbours": 1}),
    Choice("fedgta", "sage", backbone_own={"neighbours": 1}),
    Choice("fedavg", "gamlp", backbone_own={"attention": "jk"}),
    *(
        Choice("fedavg", name, backbone_own={"r": 0.2})
        for name in registry.names("backbone")
        if "r" in registry.declaration("backbone", name).settings.model_fields
    ),
]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Four clients, of which the third has no training node and the fourth no edge."""
    tiny = tiny_case(tmp_path_factory.mktemp("tiny"), sizes=(13, 13, 10, 7))
    return without_training_nodes(tiny, 2)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Three clients, of which the second has no training node and the third no edge."""
    return without_training_nodes(tiny_case(tmp_path_factory.mktemp("three")), 1)


def without_training_nodes(case: Case, client: int) -> Case:
    roles = case.role[case.ptr[client] : case.ptr[client + 1]]
    roles[roles == TRAIN] = NONE
    return case


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
    for key, info in declared.settings.model_fields.items():
        assert info.description, f"{kind} {name}: setting '{key}' has no description"
        assert not info.is_required(), f"{kind} {name}: setting '{key}' has no default"
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
    needs = set(registry.declaration("backbone", name).settings().propagation().spec())  # type: ignore[attr-defined]
    assert {"r", "hops"} <= needs <= {"r", "hops", "self_loops", "combine"}


class Pair:
    """A method and a backbone on a federation, trained in several ways."""

    def __init__(self, choice: Choice, case: Case, whole: Case, *, inductive: bool = False):
        self._choice = choice
        self.central = registry.declaration("method", choice.method).constants.get("CENTRALISED", False)
        self._case = whole if self.central else case
        self._inductive = inductive
        self.federation: Federation = self._case.federation(choice.backbone, inductive=inductive, **choice.backbone_own)
        self.run = cache(self.run_anew)

    def like(self, choice: Choice) -> "Pair":
        """Another choice on the same federation."""
        return Pair(choice, self._case, self._case, inductive=self._inductive)

    def run_anew(self, chunk: int | None = None, dropout: bool = True, eager: bool = True, **schedule: Any) -> Result:
        choice = self._choice
        known = registry.declaration("backbone", choice.backbone).settings.model_fields
        without = {} if dropout or "dropout" not in known else {"dropout": 0.0}
        backbone = backbone_of(self.federation, choice.backbone, **without, **choice.backbone_own)
        own = (EAGER.get(choice.method, {}) if eager else {}) | choice.own
        method = method_of(self.federation, backbone, choice.method, **own)
        assert method.not_applicable() is None
        made = schedule_of(**{"rounds": ROUNDS, **schedule})
        return train(self.federation, method, TASK, made, 0, chunk_clients=chunk)


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


@pytest.fixture(scope="module", params=[*CHOICES, *VARIANTS], ids=str)
def choice(request: pytest.FixtureRequest) -> Choice:
    chosen: Choice = request.param
    return chosen


@pytest.fixture(scope="module")
def pair(choice: Choice, case: Case, whole: Case) -> Pair:
    return Pair(choice, case, whole)


def assert_close(one: Result, other: Result, tolerance: float) -> None:
    for name, tensor in one.parameters["last"].items():
        torch.testing.assert_close(tensor, other.parameters["last"][name], rtol=0, atol=tolerance)
    for name in ("val_correct", "test_correct", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(one.history[name], other.history[name])
    for reading in ("val", "last", "test"):
        np.testing.assert_array_equal(one.predictions[reading], other.predictions[reading])


def distance(one: Result, other: Result) -> float:
    """The largest difference of a parameter; infinite where they have not the same ones."""
    first, second = one.parameters["last"], other.parameters["last"]
    if {name: tensor.shape for name, tensor in first.items()} != {
        name: tensor.shape for name, tensor in second.items()
    }:
        return math.inf
    return max(float((tensor - second[name]).abs().max()) for name, tensor in first.items())


def assert_sound(result: Result, federation: Federation, *, participation: bool = False) -> None:
    assert result.state == "ok"
    assert len(result.history["round"]) == ROUNDS
    for kept in ("val", "last"):
        for tensor in result.parameters[kept].values():
            assert torch.isfinite(tensor).all()
            assert len(tensor) == federation.num_clients
    losses = result.history["train_loss"]
    trains = federation.count(TRAIN) > 0
    may_train = trains.copy()
    if result.phases[0]["name"] == "combined":  # with links, which need no labels
        may_train |= np.diff(federation.adjacency.indptr[federation.ptr]) > 0
    assert np.isnan(losses[:, ~may_train]).all()
    assert np.isfinite(losses[:, trains]).any() if participation else np.isfinite(losses[:, trains]).all()
    for predicted in result.predictions.values():
        assert predicted.shape == federation.scored.labels.shape
        assert predicted.dtype == np.int32
        assert 0 <= predicted.min() <= predicted.max() < federation.classes


def test_numbers_are_finite(pair: Pair) -> None:
    assert_sound(pair.run(), pair.federation)


def test_numbers_repeat(pair: Pair) -> None:
    assert_close(pair.run(), pair.run_anew(), 0.0)


def test_inputs_are_not_written_to(pair: Pair) -> None:
    federation = pair.federation
    features: Any = federation.features
    parts = [federation.labels, federation.role, federation.ptr]
    for matrix in (federation.adjacency, made_of(federation).operator, *made_of(federation).features, features):
        parts += [matrix] if isinstance(matrix, np.ndarray) else [matrix.data, matrix.indices, matrix.indptr]
    before = [part.copy() for part in parts]
    pair.run_anew()
    assert all(np.array_equal(now, then) for now, then in zip(parts, before, strict=True))


def test_chunks_agree(pair: Pair) -> None:
    assert_close(pair.run(chunk=1), pair.run(), 1e-5)


def test_half_of_the_clients_a_round(pair: Pair) -> None:
    assert_sound(pair.run(participation=0.5), pair.federation, participation=True)
    assert_close(pair.run(participation=0.5, chunk=1), pair.run(participation=0.5), 1e-5)


def test_one_client(choice: Choice, whole: Case) -> None:
    alone = Pair(choice, whole, whole)
    assert_sound(alone.run(), alone.federation)


def test_inductive(choice: Choice, unseen: list[Case]) -> None:
    """Validation and test nodes are scored, and nothing of them gets into training but what a method selects by."""
    choice = replace(choice, own=choice.own | WITHOUT_SELECTION.get(choice.method, {}))
    one, other = (Pair(choice, unseen[i], unseen[i + 2], inductive=True) for i in (0, 1))
    first, second = one.run(), other.run()
    assert_sound(first, one.federation)
    assert_close(one.run(chunk=1), first, 1e-5)
    for name, tensor in first.parameters["last"].items():
        assert torch.equal(tensor, second.parameters["last"][name])
    for name in ("train_loss", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(first.history[name], second.history[name])


def test_does_what_sets_it_apart(choice: Choice, pair: Pair) -> None:
    """Otherwise the other checks say nothing about it."""
    if pair.central:
        pytest.skip("not federated")
    others = [replace(choice, method="fedavg", own={}), replace(choice, own={})]
    others.append(replace(choice, backbone_own=needed(choice.method, choice.backbone)))
    for other in others:
        if other == choice:
            continue
        apart = distance(pair.run(), pair.like(other).run())
        if choice.method == "fedsage" and other.method == "fedavg" and not choice.own:
            assert apart == 0
        else:
            assert apart > 1e-5, f"the same as {other}"


@pytest.mark.parametrize("choice", CHOICES, indirect=True)
def test_every_client_with_training_nodes_learns(choice: Choice, three: Case, whole: Case) -> None:
    """Gradients reach the parameters, with the right sign. Links of a random graph are not to be learned."""
    choice = replace(choice, own=choice.own | WITHOUT_LINKS.get(choice.method, {}))
    pair = Pair(choice, three, whole)
    rounds = 120 if choice.backbone == "vgae" else 40  # whose embeddings are drawn anew in every step
    losses = pair.run_anew(dropout=False, eager=False, lr=0.05, local_epochs=1, rounds=rounds).history["train_loss"]
    trains = pair.federation.count(TRAIN) > 0
    assert losses[:, trains].mean(1).min() < 0.8 * losses[0, trains].mean()


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """The graph that a scheme has divided among four clients, or left whole."""

    @cache
    def by(scheme: str) -> Case:
        graph = random_graph(60, 7, 3, 150, seed=3, sparse=True)
        parts = parts_by(scheme, graph, tmp_path_factory.mktemp("file"))
        role = np.random.default_rng(4).choice([TRAIN, TRAIN, VAL, TEST], graph.num_nodes)
        return case_of(graph, parts, role, tmp_path_factory.mktemp(scheme))

    return by


def parts_by(scheme: str, graph: Graph, folder: Path) -> list[np.ndarray]:
    graph = replace(graph, clients=np.arange(graph.num_nodes) % 4)
    (folder / "parts.json").write_text(json.dumps({"clients": [{"nodes": [*range(n, 60, 4)]} for n in range(4)]}))
    own = {"path": str(folder / "parts.json")} if scheme == "file" else {}
    return assign_clients(graph, "tiny", scheme, 1 if scheme == "whole" else 4, own, seed=0).parts


@pytest.mark.parametrize("scheme", registry.names("scheme"))
def test_scheme_repeats_and_leaves_the_graph_as_it_is(scheme: str, tmp_path: Path) -> None:
    graph, same = (random_graph(60, 7, 3, 150, seed=3, sparse=True) for _ in range(2))
    parts, again = (parts_by(scheme, graph, tmp_path) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))
    assert np.array_equal(graph.edges, same.edges)
    assert np.array_equal(graph.labels, same.labels)
    assert (graph.features != same.features).nnz == 0


@pytest.mark.parametrize(("method", "scheme"), parameters(ON_SCHEMES, CORE_ON_SCHEMES.__contains__))
def test_method_on_what_a_scheme_makes(method: str, scheme: str, divided: Callable[[str], Case]) -> None:
    partner = default_partner(BACKBONES_OF, method, "sage")
    choice = Choice(method, partner, backbone_own=needed(method, partner))
    pair = Pair(choice, divided(scheme), divided(scheme))
    assert_sound(pair.run(), pair.federation)
    assert_close(pair.run(chunk=1), pair.run(), 1e-4)  # rounding grows under Adam, in FedSage+'s generator too
    assert_close(pair.run(), pair.run_anew(), 0.0)


@pytest.mark.parametrize("task", registry.names("task"))
def test_a_task_declares_roles_of_its_own_where_it_draws_them(task: str) -> None:
    made = registry.module("task", task).Task
    assert has_own_roles(task) == (made.roles is not base_task.Task.roles)


@pytest.fixture(scope="module")
def linked(case: Case, whole: Case, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Case]:
    """The clients, and under True the whole graph as one, with roles of edges."""
    folder = tmp_path_factory.mktemp("linked")
    return {central: with_links(own, folder / str(central)) for central, own in {False: case, True: whole}.items()}


@pytest.mark.parametrize("task", sorted(set(registry.names("task")) - {DEFAULT_TASK}))
@pytest.mark.parametrize(
    ("method", "backbone"),
    sorted(
        {(method, default_partner(BACKBONES_OF, method, "gcn")) for method in BACKBONES_OF}
        | {("fedavg", backbone) for backbone in BACKBONES_OF["fedavg"]}
    ),
)
def test_task_trains_under_every_method_that_asks_for_no_classes(
    task: str, method: str, backbone: str, case: Case, whole: Case, linked: dict[bool, Case]
) -> None:
    central = registry.declaration("method", method).constants.get("CENTRALISED", False)
    chosen = linked[central] if has_own_roles(task) else whole if central else case
    federation = chosen.federation(backbone)
    made = task_of({"task": {"name": task, "settings": {}}})
    own = needed(method, backbone)
    settings = registry.declaration("backbone", backbone).settings(**own)
    model = registry.module("backbone", backbone).Backbone(settings, federation.num_features, made.outputs(federation))

    def run(chunk: int | None = None) -> Result:
        federated = method_of(federation, model, method, **EAGER.get(method, {}))
        if federated.needs_classes and not made.predicts_classes:
            pytest.skip("reads predictions as classes")
        return train(federation, federated, made, schedule_of(), 0, chunk_clients=chunk)

    found = run()
    assert found.state == "ok"
    pairs = federation.pairs.arrays() if federation.pairs else {}
    split = {"nodes": federation.nodes, "ptr": federation.ptr, "role": federation.role, **pairs}
    targets = made.targets(split, case.graph.labels)
    trains = made.objective(federation).counts > 0
    assert np.isnan(found.history["train_loss"][:, ~trains]).all()
    assert np.isfinite(found.history["train_loss"][:, trains]).all()
    if method == "fedavg":
        assert found.history["train_loss"][-1, trains].mean() < found.history["train_loss"][0, trains].mean()
    for reading, predicted in found.predictions.items():
        assert len(predicted) == len(targets.truth), reading
    np.testing.assert_allclose(run(1).history["train_loss"], found.history["train_loss"], atol=1e-3)
    scores = made.scores(found.predictions["last"], None, targets, targets.role == TEST)
    metric = next(iter(metrics_of(task)))
    kept = made.round_scores(found.predictions["last"], federation, "test")
    sizes = made.count(federation, "test")
    assert sizes.sum() == (targets.role == TEST).sum()
    for mean in ("pooled", "macro"):
        assert made.score(kept, "test", sizes, mean) == pytest.approx(scores[metric][mean], abs=1e-6)


@pytest.mark.parametrize("name", registry.names("sampler"))
def test_sampler_gives_rows_of_the_targets_client_from_its_stream_alone(name: str, case: Case) -> None:
    adjacency = case.federation("gcn").adjacency
    before = [part.copy() for part in (adjacency.data, adjacency.indices, adjacency.indptr)]
    sampler = registry.module("sampler", name).Sampler(registry.declaration("sampler", name).settings(), adjacency)

    def draw(clients: list[int]) -> list[np.ndarray]:
        rows = [np.arange(case.ptr[client], case.ptr[client + 1]) for client in clients]
        ptr = np.cumsum([0, *map(len, rows)]).tolist()
        streams = [numpy_stream(0, "sampling", client) for client in clients]
        return np.split(sampler.draw(np.concatenate(rows), ptr, streams), ptr[1:-1])

    together = draw([0, 1, 2, 3])
    for client, drawn in enumerate(together):
        start, stop = case.ptr[client : client + 2]
        assert drawn.shape == (stop - start, sampler.size)
        assert drawn.dtype == np.int64
        np.testing.assert_array_equal(drawn[:, 0], np.arange(start, stop))
        assert start <= drawn.min() <= drawn.max() < stop
        np.testing.assert_array_equal(draw([client])[0], drawn)
    assert all(np.array_equal(one, other) for one, other in zip(draw([0, 1, 2, 3]), together, strict=True))
    now = (adjacency.data, adjacency.indices, adjacency.indptr)
    assert all(np.array_equal(one, other) for one, other in zip(now, before, strict=True))


@pytest.fixture(scope="module")
def beyond(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Federations in which not every node has exactly one client (see `beyond_a_cover`)."""
    return {kind: beyond_a_cover(kind, tmp_path_factory.mktemp(kind)) for kind in BEYOND_A_COVER}


@pytest.mark.parametrize(
    ("method", "backbone"),
    sorted(
        {(method, default_partner(BACKBONES_OF, method, "gcn")) for method in BACKBONES_OF}
        | {("fedavg", backbone) for backbone in BACKBONES_OF["fedavg"]}
    ),
)
@pytest.mark.parametrize("kind", BEYOND_A_COVER)
def test_clients_may_share_nodes_hold_copies_and_leave_nodes_out(
    kind: str, method: str, backbone: str, beyond: dict[str, Case]
) -> None:
    choice = Choice(method, backbone, backbone_own=needed(method, backbone))
    pair = Pair(choice, beyond[kind], beyond[kind])
    if pair.central:
        pytest.skip("has the whole graph, whatever the partition")
    assert (pair.federation.copy is not None) == (kind == "copies")
    assert_sound(pair.run(), pair.federation)
    assert_close(pair.run(chunk=1), pair.run(), 1e-4)


@pytest.mark.parametrize("method", registry.names("method"))
def test_pairs_that_make_no_sense_say_why(method: str) -> None:
    assert BACKBONES_OF[method]
    for backbone in registry.names("backbone"):
        reason = not_applicable(method, backbone)
        assert reason is None or len(reason) > 10


def test_this_file_sees_the_catalogue() -> None:
    assert {"global", "local", "fedavg", "fedprox", "fedper"} <= set(registry.names("method"))
    assert {"mlp", "gcn", "sgc"} <= set(registry.names("backbone"))
    assert "tree" in registry.names("sampler")
