"""Stage train: one cell to its checkpoint, history, predictions and record; several seeds may share the process.

A seed whose record is complete and matches its checksums is kept, so that a job that was killed loses at most the seed
it was training. Where memory runs out, a seed is tried again with fewer clients at once. Torch is imported only when
there is something to train. The workflow's jobs train in a child process (`stages.supervise`).
"""

import gc
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fglbench import registry
from fglbench.errors import StorageError
from fglbench.records.component_files import Trust, own_files
from fglbench.records.federation import split_of
from fglbench.records.run import TRIED_AGAIN, Device, Machine, Outcome, RunRecord, State, is_complete
from fglbench.runtime.devices import VARIABLE
from fglbench.runtime.out_of_memory import is_out_of_memory
from fglbench.stages.run_folder import write_run
from fglbench.storage import exclusive
from fglbench.tasks import task_of

if TYPE_CHECKING:
    import torch

    from fglbench.backbones.base import Backbone
    from fglbench.engine.record import Result
    from fglbench.federation.federation import Federation
    from fglbench.federation.schedule import Schedule
    from fglbench.methods.base import Method
    from fglbench.tasks.base import Task

Progress = Callable[[int, float, float], None]


class Watcher:
    """Is told how the seeds of a cell come along; this one does nothing."""

    def begins(self, seed: int) -> None:
        """A seed that is not there yet is about to be trained."""

    def knows(self, seed: int, machine: Machine) -> None:
        """What it is trained with, as far as known: first device, threads, mode and versions, then clients at once."""

    def out_of_memory(self, seed: int, reason: str) -> None:
        """Memory ran out with several clients at once; when this returns, the seed is tried again with half of them."""

    def ended(self, seed: int) -> None:
        """The seed's record is there."""

    def spoilt(self) -> None:
        """What failed on a card may have left this process unable to use it: other seeds belong into another one."""


@dataclass(frozen=True)
class Asked:
    """How the seeds of a cell are to be trained.

    Attributes:
        device, threads, mode, chunk_clients, memory_mb: see `train`.
        component_files: hashes of the user's component files.
    """

    device: str
    threads: int
    mode: str
    chunk_clients: int | None
    memory_mb: int | None
    component_files: dict[str, str]


@dataclass(frozen=True)
class ParameterSizes:
    """Sizes of the parameters of one client.

    Attributes:
        bytes: of all.
        widest: the largest last dimension.
    """

    bytes: int
    widest: int

    @classmethod
    def of(cls, backbone: "Backbone") -> "ParameterSizes":
        import torch

        initial = backbone.initial(torch.Generator()).values()
        return cls(
            sum(tensor.numel() * tensor.element_size() for tensor in initial),
            max((tensor.shape or (1,))[-1] for tensor in initial),
        )


def train(
    graph_folder: Path,
    preprocessed_folder: Path,
    specs: dict[str, Any],
    cells: dict[int, str],
    folder: Path,
    *,
    device: str = "auto",
    threads: int = 1,
    chunk_clients: int | None = None,
    memory_mb: int | None = None,
    mode: str = "deterministic",
    trust: Trust = "again",
    log: str | None = None,
    progress: Callable[[int], Progress | None] = lambda seed: None,
    watcher: Watcher | None = None,
    tried_again: Collection[str] = TRIED_AGAIN,
) -> None:
    """Trains the seeds of a cell that are not there yet, each into `folder/seed<k>`.

    Args:
        graph_folder, preprocessed_folder: results of download and preprocess.
        specs: the specifications `dataset`, `partition`, `prepared` and `method` (see `config.identity`).
        cells: the cell id of each seed.
        folder: where to write.
        device: "auto", "cpu" or "cuda".
        threads: of torch.
        chunk_clients, memory_mb: clients at once, or the memory that decides it; neither changes a number.
        mode: "deterministic" or "fast", see `runtime.modes`; changes no number on a CPU.
        trust: what it means that a user's component file changed and its VERSION did not.
        log: where the output of this process goes, named in the reason of an outcome that is not ok.
        progress: gives the callback of a seed's rounds.
        watcher: told how it goes.
        tried_again: the outcomes with which a seed counts as not there yet.

    Raises:
        StorageError: the graph or the federation is missing, damaged or altered; the seed has no record then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    watcher = watcher or Watcher()
    files = own_files(specs)
    asked = Asked(device, threads, mode, chunk_clients, memory_mb, files)
    for seed, cell in cells.items():
        spoilt = False
        # Two studies may ask for the same cell at the same time; the second waits and finds it done.
        with exclusive(folder / f"seed{seed}"):
            own, made_from = folder / f"seed{seed}", split_of(preprocessed_folder / f"seed{seed}")
            if is_complete(own, cell, made_from, files if trust == "again" else None, tried_again):
                but = RunRecord.read(own).differences(mode, files)
                print("; ".join([f"seed {seed}: done already, kept", *but]), flush=True)
            else:
                folders = graph_folder, preprocessed_folder / f"seed{seed}", own
                record = train_seed(*folders, specs, seed, cell, asked, log, progress(seed), watcher)
                print(f"seed {seed}: {record}", flush=True)
                spoilt = _may_have_spoilt(record)
            watcher.ended(seed)
        if spoilt:
            watcher.spoilt()


def _may_have_spoilt(record: RunRecord) -> bool:
    """After some errors, such as a failed assertion on a card, CUDA answers every call of a process with that error."""
    on_card = record.device is not None and record.device.type == "cuda"
    return on_card and record.outcome.state in ("failed", "oom")


def train_seed(
    graph_folder: Path,
    preprocessed_folder: Path,
    folder: Path,
    specs: dict[str, Any],
    seed: int,
    cell: str,
    asked: Asked,
    log: str | None,
    progress: Progress | None,
    watcher: Watcher,
) -> RunRecord:
    """Trains one seed and writes its folder whatever the outcome; returns the record."""
    began = time.perf_counter()
    watcher.begins(seed)
    while True:
        result: Result | None = None
        machine = Machine(component_files=asked.component_files)

        def known(found: Machine) -> None:
            nonlocal machine
            machine = machine.model_copy(update={name: getattr(found, name) for name in found.model_fields_set})
            watcher.knows(seed, found)

        try:
            result, outcome = _run(graph_folder, preprocessed_folder, specs, seed, asked, progress, known)
        except StorageError:  # of what other stages left, for which no cell is to blame
            raise
        except Exception as error:  # every error is an outcome of this cell; the other cells go on
            traceback.print_exc()
            state: State = "oom" if is_out_of_memory(error) else "failed"
            outcome = Outcome(state=state, reason=f"{type(error).__name__}: {error}"[:500])
        fewer = fewer_clients(machine) if outcome.state == "oom" else None
        if fewer is None:
            break
        # The error is gone by now, and with it the frames that held its tensors.
        print(f"seed {seed}: {outcome.reason}; again with {fewer} clients at once", flush=True)
        watcher.out_of_memory(seed, outcome.reason or "")
        asked = replace(asked, chunk_clients=fewer)
        _free_memory()
    if outcome.state in ("failed", "oom", "diverged") and log:
        outcome = outcome.model_copy(update={"reason": f"{outcome.reason}{see(log)}"})
    return write_run(folder, specs, seed, cell, result, outcome, machine, split_of(preprocessed_folder), began)


def fewer_clients(machine: Machine) -> int | None:
    """Half the clients that were trained at once; None where it was one, or where memory ran out before training."""
    if machine.clients is None:
        return None
    return min(machine.chunk_clients or machine.clients, machine.clients) // 2 or None


def see(log: str) -> str:
    """The end of a reason."""
    return f" (log: {log})"


def _free_memory() -> None:
    gc.collect()
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _run(
    graph_folder: Path,
    preprocessed_folder: Path,
    specs: dict[str, Any],
    seed: int,
    asked: Asked,
    progress: Progress | None,
    known: Callable[[Machine], None],
) -> "tuple[Result | None, Outcome]":
    from fglbench.runtime.modes import before_torch

    before_torch(asked.mode)
    from fglbench.engine.final import global_test, reading_logits
    from fglbench.engine.loop import train
    from fglbench.stages.preprocess import load_federation, load_global_test

    device = _prepared_device(asked, known)
    federation = load_federation(graph_folder, preprocessed_folder, specs["prepared"])
    spec, task = specs["method"], task_of(specs["method"])
    method = _method(spec, task, federation)
    if reason := _not_applicable(spec, task, method, federation):
        return None, Outcome(state="not_applicable", reason=reason)
    sizes = ParameterSizes.of(method.backbone)
    if specs["prepared"]["features"] == "identity" and (reason := _too_many_inputs(federation, sizes, device)):
        return None, Outcome(state="oom", reason=reason)
    chunk = asked.chunk_clients or _clients_at_once(federation, method, sizes, asked.memory_mb)
    known(Machine(chunk_clients=chunk, clients=federation.num_clients))
    result = train(
        federation, method, task, _schedule(spec), seed, device=device, chunk_clients=chunk, on_round=progress
    )
    if result.state != "ok":
        reason = "a client's loss or logits are not finite, or the loss exploded"
        return result, Outcome(state="diverged", round=result.diverged_round, reason=reason)
    if spec.get("logits"):
        result.scores |= reading_logits(result, method.backbone, task, seed, device, chunk)
    if kind := spec.get("global_test"):
        tested = load_global_test(graph_folder, preprocessed_folder, specs["prepared"], kind)
        result.scores |= global_test(result, tested, method.backbone, task, seed, bool(spec.get("logits")), device)
    return result, Outcome(state="ok")


def _prepared_device(asked: Asked, known: Callable[[Machine], None]) -> "torch.device":
    """Sets threads, memory and mode of torch, and tells what is trained on."""
    import torch

    from fglbench.runtime.memory import keep_freed_memory
    from fglbench.runtime.modes import set_mode

    torch.set_num_threads(asked.threads)
    keep_freed_memory()
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if asked.device == "auto" else asked.device)
    set_mode(asked.mode, device.type)
    on_cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if on_cuda else _processor()
    found = Device(type=device.type, name=name, card=os.environ.get(VARIABLE) if on_cuda else None)
    known(Machine(device=found, threads=asked.threads, mode=asked.mode, versions={"torch": torch.__version__}))
    return device


def _method(spec: dict[str, Any], task: "Task", federation: "Federation") -> "Method":
    """The method of a cell on its backbone."""
    own = spec["backbone"]
    backbone_settings = registry.declaration("backbone", own["name"]).settings(**own["settings"])
    backbone = registry.module("backbone", own["name"]).Backbone(
        backbone_settings, federation.num_features, task.outputs(federation)
    )
    settings = registry.declaration("method", spec["method"]).settings(**spec["settings"])
    method: Method = registry.module("method", spec["method"]).Method(settings, backbone, federation)
    return method


def _not_applicable(spec: dict[str, Any], task: "Task", method: "Method", federation: "Federation") -> str | None:
    """Why the method makes no sense on this federation; None where it does."""
    if method.needs_classes and not task.predicts_classes:
        return f"{spec['method']} reads predictions as classes, which the task {spec['task']['name']} has not"
    return task.not_applicable(federation) or method.not_applicable()


def _too_many_inputs(federation: "Federation", sizes: ParameterSizes, device: "torch.device") -> str | None:
    """Why one-hot ids do not fit into memory; None where they do."""
    from fglbench.runtime.memory import memory_mb, parameters_mb

    needed, there_are = parameters_mb(federation.num_clients, sizes.bytes), memory_mb(device)
    if needed <= there_are:
        return None
    return (
        f"features: identity has {federation.num_features} inputs, and parameters for them take {needed} MiB "
        f"of {there_are} MiB; take fewer clients or a smaller hidden width"
    )


def _schedule(spec: dict[str, Any]) -> "Schedule":
    from fglbench.federation.schedule import LocalPrivacy, Schedule

    training = dict(spec["training"])
    if protection := training.pop("ldp", None):
        training["ldp"] = LocalPrivacy(**protection)
    return Schedule(**training, evaluate=spec["evaluate"], selection_mean=spec["mean"])


def _clients_at_once(
    federation: "Federation", method: "Method", sizes: ParameterSizes, limit_mb: int | None
) -> int | None:
    from fglbench.federation.chunks import clients_at_once

    backbone = method.backbone
    width = backbone.branches * sizes.widest
    return clients_at_once(
        federation.scored, backbone.propagation, width, sizes.bytes, limit_mb, backbone.edge_values, method.added_rows
    )


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
