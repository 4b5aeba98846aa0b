"""Everything that trains, on the pretended card (`pretend_card`): nothing stays behind on the CPU, and the numbers are
the CPU's. `gpu` tests run the same pairs on a real one.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import TASK, Case, backbone_of, case_of, method_of, schedule_of, tiny_case
from pairs import CORE, PAIRS, in_each_way, needed, parameters
from pretend_card import on_card, pretend_card
from safetensors.numpy import load_file

from fglbench import registry
from fglbench.config.expand import expand
from fglbench.config.schema import Study
from fglbench.engine.final import reading_logits
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.federation.operators import csr_tensor
from fglbench.methods.fedgta import GraphTensors, moments
from fglbench.runtime.modes import set_mode
from fglbench.stages.download import download
from fglbench.stages.preprocess import preprocess
from fglbench.stages.split import split
from fglbench.stages.train import train_seeds
from fglbench.storage import read_json, read_npz

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "half": {"participation": 0.5},
    "alone": {"chunk": 1},
    "inductive": {"inductive": True},
    "batches": {"batch_size": 2, "participation": 0.5},
    "sgd": {"optimiser": "sgd", "participation": 0.5, "optimiser_state": "reset"},
}
IN_CORE = in_each_way(WAYS)
ROUNDS_OF = [  # and every other pair in one way
    *IN_CORE,
    *((*pair, list(WAYS)[i % len(WAYS)]) for i, pair in enumerate(PAIRS) if pair not in {row[:2] for row in IN_CORE}),
]
SHORTER = {
    "fedsage+": {"epochs": 2, "federated_epochs": 2},
    **{name: {"link_share": 0.0} for name in ("fedgala", "fedgalap")},  # links need all nodes of a client at once
}
SPLITS_AT_ONCE = {"first_round": 1, "eps1": 10.0, "eps2": 0.0}
SETTINGS: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [  # what three rounds of the defaults do not reach
    ("feddc", {"variant": "paper"}, "gcn", {}),
    ("fedgl", {"confidence": 0.0}, "gcn", {"depth": 3}),
    ("fedgl", {"confidence": 0.4, "aggregation": "moon"}, "sage", {}),
    ("fedgta", {"variant": "public"}, "gcn", {}),
    ("fedgta", {"moments": "raw", "no_confidence": True}, "gcn", {}),
    ("fedgta", {"moments": "central", "no_moments": True}, "gcn", {}),
    ("fedsage+", {"aggregation": "scaffold", "cross_weight": 0.0}, "sage", {}),
    ("fedsage+", {}, "sage", {"neighbours": 2}),
    ("fedgala", {"link_share": 0.5, "alpha": 1e3}, "gcn", {}),
    ("gcfl", SPLITS_AT_ONCE, "mlp", {}),
    ("gcfl+", SPLITS_AT_ONCE | {"window": 2}, "mlp", {"depth": 3}),
    ("scaffold", {"weights": "equal"}, "sgc", {"depth": 2}),
    ("moon", {"mu": 1.0}, "gat", {"depth": 3, "heads": 2, "hidden": 4}),
    ("fedavg", {}, "gamlp", {"attention": "jk", "hops": 5}),
    ("fedavg", {}, "gat", {"depth": 1}),
    ("fedavg", {}, "sage", {"neighbours": 2, "depth": 3}),
    ("fedavg", {}, "sign", {"depth": 3}),
]


class Cases:
    """The clients' graphs and the whole one, with sparse or dense features; each is prepared once for each need."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._case, self._federation = cache(self._make), cache(self._prepare)

    def federation(self, method: str, backbone: str, dense: bool, inductive: bool, **settings: Any) -> Federation:
        """What a method is given to train this backbone."""
        declared = registry.declaration("method", method)
        central, propagate = declared.constants.get("CENTRALISED", False), not declared.changes_graph
        return self._federation(dense, central, backbone, inductive=inductive, propagate=propagate, **settings)

    def _make(self, dense: bool, central: bool) -> Case:
        folder = self._folder / f"{dense}-{central}"
        case = tiny_case(folder, sparse=not dense)
        if not central:
            return case
        role = np.zeros(case.graph.num_nodes, dtype=np.int8)
        role[case.nodes] = case.role
        return case_of(case.graph, [np.arange(case.graph.num_nodes)], role, folder)

    def _prepare(self, dense: bool, central: bool, backbone: str, **options: Any) -> Federation:
        return self._case(dense, central).federation(backbone, **options)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return Cases(tmp_path_factory.mktemp("cases"))


@pytest.fixture
def _modes():
    """Switches are the process' own; other tests find them as they were."""
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.fp32_precision = "none"


def trained(
    cases: Cases,
    device: str,
    method: str,
    backbone: str,
    *,
    dense: bool = False,
    inductive: bool = False,
    chunk: int | None = None,
    of_method: dict[str, Any] | None = None,
    of_backbone: dict[str, Any] | None = None,
    **schedule: Any,
) -> tuple[Result, dict[str, np.ndarray]]:
    """A run on a device, and the logits of its readings."""
    settings = needed(method, backbone) | (of_backbone or {})
    federation = cases.federation(method, backbone, dense, inductive, **settings)
    model = backbone_of(federation, backbone, **settings)
    federated = method_of(federation, model, method, **{**SHORTER.get(method, {}), **(of_method or {})})
    assert federated.not_applicable() is None
    result = train(federation, federated, TASK, schedule_of(**schedule), 0, device=device, chunk_clients=chunk)
    assert result.state == "ok"
    return result, reading_logits(result, model, TASK, 0, device, chunk)


def assert_same(cases: Cases, *pair: str, **way: Any) -> None:
    """A run on the pretended card gives the CPU's bits, and leaves its parameters there."""
    here, logits = trained(cases, "cpu", *pair, **way)
    with pretend_card():
        there, found = trained(cases, "cuda", *pair, **way)
        for reading, parameters in there.parameters.items():
            for name, tensor in parameters.items():
                assert on_card(tensor), name
                assert torch.equal(tensor.cpu(), here.parameters[reading][name]), name
    for name, values in logits.items():
        np.testing.assert_array_equal(found[name], values)
    for name in set(here.history) - {"train_seconds"}:
        np.testing.assert_array_equal(there.history[name], here.history[name])
    for name, matrices in here.mixing.items():
        np.testing.assert_array_equal(there.mixing[name], matrices)


@pytest.mark.parametrize(("method", "backbone", "way"), parameters(ROUNDS_OF, IN_CORE.__contains__))
def test_pairs_train_on_a_card(cases: Cases, method: str, backbone: str, way: str):
    assert_same(cases, method, backbone, **WAYS[way])


@pytest.mark.parametrize(("method", "of_method", "backbone", "of_backbone"), SETTINGS)
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_settings_train_on_a_card(cases: Cases, method: str, of_method: dict, backbone: str, of_backbone: dict, dense):
    assert_same(cases, method, backbone, dense=dense, of_method=of_method, of_backbone=of_backbone)


@pytest.mark.usefixtures("_modes")
@pytest.mark.parametrize("mode", ["deterministic", "fast"])
def test_modes_train_on_a_card(cases: Cases, mode: str):
    set_mode(mode, "cuda")
    assert_same(cases, "fedgta", "gat", participation=0.5)


def test_moments_too_large_for_float32_are_computed_on_a_card(cases: Cases):
    federation = cases.federation("fedgta", "gcn", False, False)
    steps = torch.full((len(federation.labels), 2, 3), 1e20)
    expected = moments([steps], GraphTensors(federation, torch.device("cpu")), 4)
    with pretend_card() as card:
        found = moments([steps.to(card)], GraphTensors(federation, card), 4)
        assert on_card(found)
        assert torch.equal(found.cpu(), expected)


def test_a_job_that_finds_a_card_uses_it_and_writes_the_same_files(tmp_path: Path):
    study = {
        "datasets": [{"name": "sbm", "nodes": 120, "classes": 3, "average_degree": 6.0, "features": 12}],
        "partitions": ["random"],
        "clients": [3],
        "methods": ["fedper"],
        "backbones": ["gcn"],
        "seeds": 1,
        "training": {"rounds": 2, "local_epochs": 1, "hidden": 8},
        "protocol": {"global_test": "whole", "logits": True},
    }
    (placement,) = expand(Study.model_validate(study)).placements
    cell = placement.cell
    download(cell.dataset.spec, tmp_path / "graph")
    split(tmp_path / "graph", cell.partition.spec, [0], tmp_path / "split")
    preprocess(tmp_path / "graph", tmp_path / "split", cell.preprocessed.spec, [0], tmp_path / "prepared")

    def run(folder: Path) -> Path:
        train_seeds(tmp_path / "graph", tmp_path / "prepared", cell.specs, {0: cell.id}, folder, mode="fast")
        return folder / "seed0"

    here = run(tmp_path / "cpu")
    with pretend_card():
        there = run(tmp_path / "cuda")
    record = read_json(there / "run.json")
    assert record["outcome"]["state"] == "ok"
    assert record["device"]["type"] == "cuda"
    for name, stored in read_npz(here / "predictions.npz").items():
        np.testing.assert_array_equal(read_npz(there / "predictions.npz")[name], stored)
    for name, stored in load_file(here / "checkpoint.safetensors").items():
        np.testing.assert_array_equal(load_file(there / "checkpoint.safetensors")[name], stored)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
@pytest.mark.parametrize(("method", "backbone"), parameters(PAIRS, CORE.__contains__))
def test_pairs_train_on_a_real_card(cases: Cases, method: str, backbone: str):
    for way in WAYS.values():
        result, logits = trained(cases, "cuda", method, backbone, **way)
        assert all(tensor.is_cuda for tensor in result.parameters["last"].values())
        assert all(np.isfinite(values).all() for values in logits.values())


INDEX = torch.tensor([0, 2])


@pytest.mark.parametrize(
    "operation",
    [
        lambda there, here: there + here,
        lambda there, here: here * there.sum(),
        lambda there, here: there @ here.T,
        lambda there, here: torch.cat([there, here]),
        lambda there, here: torch.stack([there.sum(), here.sum()]),
        lambda there, here: torch.where(here > 0, there, there),
        lambda there, here: there.masked_fill(here > 0, 0.0),
        lambda there, here: there.index_select(0, INDEX),
        lambda there, here: there.index_add_(0, INDEX, there[:2]),
        lambda there, here: there.index_copy(0, INDEX, there[:2]),
        lambda there, here: there.index_put_((INDEX,), here[:2]),
        lambda there, here: there.gather(0, INDEX[:, None]),
        lambda there, here: here[INDEX.to(there.device)],
        lambda there, here: here.add_(there),
        lambda there, here: torch.add(there, there, out=here),
        lambda there, here: csr_tensor(INDEX, INDEX[:1], there[0, :1], (1, 3)),
        lambda there, here: there.numpy(),
        lambda there, here: np.asarray(there),
        lambda there, here: there.detach().T.numpy(),
        lambda there, here: there.tolist() and np.add(there, 1),
        lambda there, here: there.random_(generator=torch.Generator()),
        lambda there, here: here.random_(generator=torch.Generator("cuda")),
        lambda there, here: torch._fused_sgd_(
            [there], [there.T], [], weight_decay=0, momentum=0, lr=1, dampening=0, nesterov=False, maximize=False,
            is_first_step=False,
        ),
    ],
)  # fmt: skip
def test_the_pretended_card_refuses(operation: Callable[[torch.Tensor, torch.Tensor], Any]):
    with pretend_card(), pytest.raises((RuntimeError, TypeError), match=r"device|numpy"):
        operation(torch.ones(3, 3, device="cuda"), torch.ones(3, 3))


def test_the_pretended_card_does_what_a_card_does():
    with pretend_card() as card:
        there, here = torch.ones(3, 3, device="cuda"), torch.ones(3, 3)
        there[INDEX] = there[INDEX] * 2 + torch.tensor(1.0)
        there[there > 2] = 5.0
        there[1:2] = here[:1]  # a copy
        assert there.cpu().numpy().tolist() == [[5, 5, 5], [1, 1, 1], [5, 5, 5]]
        for made in (
            there[1:].T,
            there.new_empty(2),
            torch.zeros_like(there),
            here.to(card),
            here.to(there),
            here.cuda(),
        ):
            assert made.device == card
            assert made.is_cuda
        for made in (here, there.cpu(), there.to(here), there.new_zeros(2, device="cpu"), torch.from_numpy(np.ones(2))):
            assert made.device == torch.device("cpu")
        assert there.to(card) is there
        assert there.to(torch.float64).device == card
        assert here.to(card, torch.float64).dtype == torch.float64
        assert there.sum().item() == 33.0
        generator = torch.Generator(card).manual_seed(1)
        assert generator.device == card
        there.random_(generator=generator)

        weight = torch.ones(3, 2, device=card, requires_grad=True)
        bias = torch.ones(2, requires_grad=True)
        ((there @ weight + bias.to(card)) ** 2).sum().backward()
        assert (weight.grad.device, bias.grad.device) == (card, torch.device("cpu"))
    assert torch.ones(1).to(torch.float64).device == torch.device("cpu")
    assert torch.ones(1).device == torch.device("cpu")
