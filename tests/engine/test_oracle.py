"""The stacked engine against the plain loop: parameters, logits, losses and accuracies after 3 rounds x 2 epochs."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from federations import TASK, Case, backbone_of, case_of, method_of, schedule_of, tiny_case
from pairs import dealt, parameters

from fglbench.engine.loop import train
from fglbench.engine.rounds import draw_clients
from fglbench.federation.operators import no_dropout
from fglbench.records.graph import load_graph
from fglbench.records.split import load_split
from fglbench.seeding import torch_stream
from fglbench.stages.download import download
from fglbench.stages.split import split

BACKBONES: list[tuple[str, dict[str, Any]]] = [
    ("mlp", {"depth": 2}),
    ("gcn", {"depth": 1}),
    ("gcn", {"depth": 2}),
    ("gcn", {"depth": 3}),
    ("sgc", {"depth": 1}),
    ("sgc", {"depth": 2}),
    ("s2gc", {"depth": 1, "hops": 3, "alpha": 0.2}),
    ("s2gc", {"depth": 2, "hops": 4}),
    ("gbp", {"depth": 1, "beta": 0.3}),
    ("gbp", {"depth": 2}),
    ("sign", {"depth": 2}),
    ("sign", {"depth": 3, "hops": 2}),
    ("gamlp", {"depth": 1}),
    ("gamlp", {"depth": 3}),
    ("gamlp", {"depth": 2, "attention": "jk"}),
    ("sage", {"depth": 1}),
    ("sage", {"depth": 3}),
    ("gat", {"depth": 1}),
    ("gat", {"depth": 2, "heads": 4}),
    ("gat", {"depth": 3, "heads": 2, "slope": 0.1}),
]
Cell = tuple[str, dict[str, Any], str, dict[str, Any], str]
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("global", {}),
    ("local", {}),
    ("fedavg", {}),
    ("fedprox", {"mu": 0.5}),
    ("fedper", {}),
]
CELLS = [
    (backbone, settings, method, own, state)
    for (backbone, settings), (method, own), state in product(BACKBONES, METHODS, ["kept", "reset"])
    if not (method == "fedper" and settings["depth"] == 1)  # no layer left to share
    if backbone in ("mlp", "gcn", "sgc") or (method in ("fedprox", "fedper") and state == "kept")
]


def name_of(cell: Cell) -> str:
    backbone, settings, method, _, state = cell
    return f"{backbone}{settings['depth']}-{method}-{state}"


def on_cora() -> list[str]:
    """Every method in every state on one backbone, and every backbone in one of its cells, dealt in turn."""
    cells_of: dict[str, list[str]] = {}
    for cell in CELLS:
        cells_of.setdefault(f"{cell[0]} {cell[1]}", []).append(name_of(cell))
    return cells_of["gcn {'depth': 2}"] + [name for _, name in dealt(cells_of, 0)]


def whole(case: Case, folder: Path) -> Case:
    """The same graph and roles as a federation of one client."""
    role = np.zeros(case.graph.num_nodes, dtype=np.int8)
    role[case.nodes] = case.role
    return case_of(case.graph, [np.arange(case.graph.num_nodes)], role, folder)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Case]:
    case = tiny_case(tmp_path_factory.mktemp("tiny"))
    return {False: case, True: whole(case, tmp_path_factory.mktemp("tiny-whole"))}


@pytest.fixture(scope="session")
def cora(mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Case]:
    folder = tmp_path_factory.mktemp("cora")
    download({"name": "cora"}, folder / "download", mirror)
    ratios = {"kind": "ratios", "train": 0.2, "val": 0.4, "test": 0.4, "empty": "keep"}
    spec = {"dataset": "cora", "scheme": "louvain", "clients": 5, "settings": {}, "split": ratios}
    split(folder / "download", spec, [0], folder / "split")
    made = load_split(folder / "split" / "seed0")
    case = Case(load_graph(folder / "download"), made.nodes, made.ptr, made.role, folder / "case")
    return {False: case, True: whole(case, tmp_path_factory.mktemp("cora-whole"))}


# Steps are of 0.01. Adam divides by the size of the gradient: where that is rounding alone, so is the step, and
# processors round differently.
TOLERANCE = 1e-3


def assert_agree(
    case: Case,
    backbone_name: str,
    settings: dict[str, Any],
    method_name: str,
    method_settings: dict[str, Any],
    state: str,
    participation: float = 1.0,
    rounds: int = 3,
) -> None:
    settings = {**settings, "hidden": 16, "dropout": 0.0}
    federation = case.federation(backbone_name, **settings)
    backbone = backbone_of(federation, backbone_name, **settings)
    method = method_of(federation, backbone, method_name, **method_settings)
    schedule = schedule_of(optimiser_state=state, participation=participation, rounds=rounds)
    result = train(federation, method, TASK, schedule, seed=3)
    assert result.state == "ok"

    plan = oracle.Plan(
        backbone=backbone_name,
        settings=backbone.settings.model_dump(),
        method=method_name,
        mu=method_settings.get("mu", 0.0),
        optimiser_state=state,
        rounds=rounds,
        participants=[draw_clients(3, number, federation.num_clients, participation) for number in range(rounds)],
    )
    clients = oracle.clients_of(case.graph, case.nodes, case.ptr, case.role)
    initial = backbone.initial(torch_stream(3, "initialisation"))
    expected = oracle.run(clients, federation.classes, initial, plan)

    parameters = result.parameters["last"]
    assert set(parameters) == set(expected.weights[0])
    for name, stack in parameters.items():
        torch.testing.assert_close(
            stack.detach(), torch.stack([own[name] for own in expected.weights]), rtol=0, atol=TOLERANCE
        )
    assert any((initial[name] - stack[0]).abs().max() > 0.01 for name, stack in parameters.items())  # it has trained
    batch = backbone.batch(federation, np.arange(federation.num_clients))
    with torch.no_grad():
        logits = backbone.forward(parameters, batch, no_dropout).logits
    torch.testing.assert_close(logits, torch.cat(expected.logits), rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(result.history["train_loss"], expected.losses, rtol=0, atol=1e-4)
    for name in ("val", "test"):
        np.testing.assert_array_equal(result.history[f"{name}_correct"], expected.correct[name])
    np.testing.assert_array_equal(result.predictions["last"], torch.cat(expected.logits).argmax(1).numpy())


@pytest.mark.parametrize(("backbone", "settings", "method", "own", "state"), CELLS, ids=map(name_of, CELLS))
def test_tiny(
    tiny: dict[bool, Case], backbone: str, settings: dict[str, Any], method: str, own: dict[str, Any], state: str
) -> None:
    assert_agree(tiny[method == "global"], backbone, settings, method, own, state)


@pytest.mark.parametrize(
    ("backbone", "settings", "method", "own", "state"),
    parameters(CELLS, lambda cell: name_of(cell) in on_cora(), name_of),
)
def test_cora(
    cora: dict[bool, Case], backbone: str, settings: dict[str, Any], method: str, own: dict[str, Any], state: str
) -> None:
    assert_agree(cora[method == "global"], backbone, settings, method, own, state)


@pytest.mark.parametrize("state", ["kept", "reset"])
@pytest.mark.parametrize("method", ["local", "fedavg", "fedper"])
def test_clients_that_sit_out_keep_their_optimiser_and_its_step_count(
    tiny: dict[bool, Case], method: str, state: str
) -> None:
    drawn = [tuple(draw_clients(3, number, 3, 0.67)) for number in range(5)]
    assert len(set(drawn)) > 1  # else all step counts would be equal
    assert_agree(tiny[False], "gcn", {"depth": 2}, method, {}, state, participation=0.67, rounds=5)
