"""Deterministic and fast mode, and what a GPU must agree with; `gpu` tests skip where torch sees none."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from federations import TASK, Case, backbone_of, method_of, schedule_of, tiny_case
from torch.utils._python_dispatch import TorchDispatchMode

from fglbench.cli import main
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.parameters import mix
from fglbench.runtime.modes import before_torch, set_mode
from fglbench.seeding import torch_stream

needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]
# Of a GPU and a CPU, or of fast and deterministic mode, after 3 rounds x 2 epochs without dropout; docs/numbers.md.
CPU_AND_GPU = {"rtol": 1e-3, "atol": 1e-4}
FAST = {"rtol": 2e-2, "atol": 5e-3}


@pytest.fixture(scope="module", params=[True, False], ids=["sparse", "dense"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return tiny_case(tmp_path_factory.mktemp("tiny"), sparse=request.param)


@pytest.fixture
def _modes():
    """Switches are the process' own; other tests find them as they were."""
    yield
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.fp32_precision = "none"


def run(case: Case, device: str, dropout: float = 0.0, chunk: int | None = None, **schedule: Any) -> Result:
    federation = case.federation("gcn")
    backbone = backbone_of(federation, "gcn", hidden=16, dropout=dropout)
    method = method_of(federation, backbone, "fedavg")
    return train(federation, method, TASK, schedule_of(**schedule), 0, device=device, chunk_clients=chunk)


def assert_close(one: Result, other: Result, **tolerance: float) -> None:
    for name, tensor in one.parameters["last"].items():
        torch.testing.assert_close(tensor.cpu(), other.parameters["last"][name].cpu(), **tolerance)
    np.testing.assert_allclose(one.history["train_loss"], other.history["train_loss"], **tolerance)


def test_on_a_cpu_both_modes_give_the_same_bytes_and_the_record_says_which(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    made = {}
    for mode in ("deterministic", "fast"):
        results = tmp_path / mode
        options = ["--clients", "3", "--rounds", "3", "--device", "cpu", "--mode", mode, "--results", str(results)]
        assert main(["train", "--dataset", "karate", *options]) == 0
        (record,) = results.rglob("run.json")
        assert json.loads(record.read_text())["mode"] == mode
        made[mode] = {path.relative_to(results): path.read_bytes() for path in results.rglob("*.safetensors")}
        made[mode] |= {path.relative_to(results): path.read_bytes() for path in results.rglob("predictions.npz")}
        assert len(made[mode]) == 2
    assert made["deterministic"] == made["fast"]
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.usefixtures("_modes")
def test_switches_of_a_gpu_follow_the_mode(monkeypatch: pytest.MonkeyPatch):
    import os

    for mode, precision in (("fast", "tf32"), ("deterministic", "ieee")):
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
        before_torch(mode)
        assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == (":4096:8" if mode == "deterministic" else None)
        set_mode(mode, "cuda")
        assert torch.are_deterministic_algorithms_enabled() == (mode == "deterministic")
        assert torch.backends.cuda.matmul.fp32_precision == precision


@pytest.mark.usefixtures("_modes")
def test_aggregation_is_in_full_precision_in_any_mode(monkeypatch: pytest.MonkeyPatch):
    set_mode("fast", "cuda")
    seen = []
    product = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor,
        "__matmul__",
        lambda *both: (seen.append(torch.backends.cuda.matmul.fp32_precision), product(*both))[1],
    )
    mix({"w": torch.ones(2, 3)}, ["w"], torch.eye(2))
    assert seen == ["ieee"]
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


class Precisions(TorchDispatchMode):
    """Notes the precision that every dense product would have on a card."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (
            func._schema.name in ("aten::mm", "aten::bmm", "aten::addmm", "aten::mv")
            and args[0].layout is torch.strided
        ):
            self.seen.append(torch.backends.cuda.matmul.fp32_precision)
        return func(*args, **(kwargs or {}))

    def watching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            with self:
                return original(*arguments)

        return watched


@pytest.mark.usefixtures("_modes")
@pytest.mark.parametrize("name", ["feddc", "scaffold", "fedgta", "gcfl"])
def test_what_servers_compute_of_clients_is_in_full_precision(case: Case, name: str):
    set_mode("fast", "cuda")
    federation, products = case.federation("gcn"), Precisions()
    backbone = backbone_of(federation, "gcn", hidden=16)
    method: Any = method_of(federation, backbone, name)
    for hook in ("aggregate", "server_update"):
        setattr(method, hook, products.watching(getattr(method, hook)))
    train(federation, method, TASK, schedule_of(), 0)
    assert products.seen
    assert set(products.seen) == {"ieee"}


@pytest.mark.usefixtures("_modes")
class TestGpu:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("participation", [1.0, 0.7])
    def test_agrees_with_the_cpu(self, case: Case, participation: float):
        set_mode("deterministic", "cuda")
        found = [run(case, device, participation=participation) for device in ("cuda", "cpu")]
        assert_close(*found, **CPU_AND_GPU)

    def test_agrees_with_the_plain_loop_on_the_same_card(self, case: Case):
        set_mode("deterministic", "cuda")
        backbone = backbone_of(case.federation("gcn"), "gcn", hidden=16, dropout=0.0)
        clients = [
            dataclasses.replace(client, **{name: value.to("cuda") for name, value in vars(client).items()})
            for client in oracle.clients_of(case.graph, case.nodes, case.ptr, case.role)
        ]
        plan = oracle.Plan(backbone="gcn", settings=backbone.settings.model_dump())
        loop = oracle.Loop(clients, case.graph.classes, backbone.initial(torch_stream(0, "initialisation")), plan)
        for model in loop.models:
            model.to("cuda")
        for number in range(plan.rounds):
            loop.round(number)
        found = run(case, "cuda").parameters["last"]
        for client, model in enumerate(loop.models):
            for name, tensor in model.read().items():
                torch.testing.assert_close(found[name][client], tensor, **CPU_AND_GPU)

    def test_deterministic_mode_repeats_every_bit(self, case: Case):
        set_mode("deterministic", "cuda")
        assert_close(run(case, "cuda", dropout=0.5), run(case, "cuda", dropout=0.5), rtol=0, atol=0)

    def test_chunks_change_nothing_but_rounding(self, case: Case):
        set_mode("deterministic", "cuda")
        assert_close(run(case, "cuda", dropout=0.5), run(case, "cuda", dropout=0.5, chunk=1), **CPU_AND_GPU)

    def test_fast_mode_is_near(self, case: Case):
        set_mode("fast", "cuda")
        found = run(case, "cuda")
        assert_close(found, run(case, "cpu"), **FAST)
