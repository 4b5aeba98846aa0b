"""Train one cell, and write its checkpoint, history, predictions and record. Several seeds may share the process.

A seed with a complete record that matches its checksums is kept, so a killed job loses at most the seed that it was
training. If memory runs out, the seed is retried with fewer clients at once. Torch is imported only if a seed must be
trained. The workflow's jobs train in a child process (`stages.supervise`).
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
    """Callbacks for the progress of the seeds of a cell. This base class ignores all of them."""

    def begins(self, seed: int) -> None:
        """Handle the start of the training of a seed.

        Args:
            seed: the cell seed.
        """

    def knows(self, seed: int, machine: Machine) -> None:
        """Handle new facts about the machine that trains a seed.

        Args:
            seed: the cell seed.
            machine: the new facts: first device, threads, mode and versions, later the clients at once and in all.
        """

    def out_of_memory(self, seed: int, reason: str) -> None:
        """Handle an out-of-memory error that occurred with several clients at once.

        After this method returns, the seed is retried with half of the clients at once.

        Args:
            seed: the cell seed.
            reason: the error message.
        """

    def ended(self, seed: int) -> None:
        """Handle the end of a seed, whose record is complete.

        Args:
            seed: the cell seed.
        """

    def spoilt(self) -> None:
        """Handle an error on a GPU that may have made the GPU unusable for this process.

        Other seeds must then be trained in another process.
        """


@dataclass(frozen=True)
class Asked:
    """How to train the seeds of a cell.

    Attributes:
        device: see `train`.
        threads: see `train`.
        mode: see `train`.
        chunk_clients: see `train`.
        memory_mb: see `train`.
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
        bytes: of all parameters together.
        widest: the largest last dimension of a parameter.
    """

    bytes: int
    widest: int

    @classmethod
    def of(cls, backbone: "Backbone") -> "ParameterSizes":
        """Return the sizes of a backbone's parameters.

        Args:
            backbone: of the method.

        Returns:
            The sizes for one client.
        """
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
    """Train the seeds of a cell that have no complete record yet, each into `folder/seed<k>`.

    Args:
        graph_folder: result of download.
        preprocessed_folder: result of preprocess.
        specs: the specifications `dataset`, `partition`, `prepared` and `method` (see `config.identity`).
        cells: the cell id of each seed.
        folder: where `seed<k>` is written.
        device: "auto", "cpu" or "cuda".
        threads: number of torch threads.
        chunk_clients: number of clients trained at once, which changes no number; None: it follows from `memory_mb`.
        memory_mb: memory for the clients trained at once, in MiB, which changes no number; None: no limit.
        mode: "deterministic" or "fast", see `runtime.modes`; changes no number on a CPU.
        trust: what to do if a user's component file changed and its VERSION did not: "again" trains the seed again,
            "warn" keeps it with a warning.
        log: the file with the output of this process, which the reason of a failure names; None: there is none.
        progress: function from a seed to the callback for its rounds, or to None.
        watcher: receives the progress of the seeds; None: there is none.
        tried_again: the outcomes that count as unfinished.

    Raises:
        StorageError: the graph or the federation is missing, damaged or altered. The seed then has no record.
    """
    folder.mkdir(parents=True, exist_ok=True)
    watcher = watcher or Watcher()
    files = own_files(specs)
    asked = Asked(device, threads, mode, chunk_clients, memory_mb, files)
    for seed, cell in cells.items():
        spoilt = False
        # Two studies may train the same cell at the same time. The second one waits and finds it complete.
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
    """Return whether an error may have made the GPU unusable for this process.

    After some errors, such as a failed assertion on the GPU, CUDA answers every later call of the process with that
    error.
    """
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
    """Train one seed, and write its folder for any outcome.

    Args:
        graph_folder: result of download.
        preprocessed_folder: the seed's folder of preprocess.
        folder: of the seed.
        specs: see `train`.
        seed: the cell seed.
        cell: the cell id.
        asked: how to train.
        log: see `train`.
        progress: callback for the rounds; None: there is none.
        watcher: receives the progress of the seed.

    Returns:
        The record, as stored in `run.json`.
    """
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
        except StorageError:  # damage to files of other stages is not an outcome of a cell
            raise
        except Exception as error:  # an error is an outcome of this cell only
            traceback.print_exc()
            state: State = "oom" if is_out_of_memory(error) else "failed"
            outcome = Outcome(state=state, reason=f"{type(error).__name__}: {error}"[:500])
        fewer = fewer_clients(machine) if outcome.state == "oom" else None
        if fewer is None:
            break
        # Outside the except block, the error no longer keeps the frames with the tensors alive.
        print(f"seed {seed}: {outcome.reason}; again with {fewer} clients at once", flush=True)
        watcher.out_of_memory(seed, outcome.reason or "")
        asked = replace(asked, chunk_clients=fewer)
        _free_memory()
    if outcome.state in ("failed", "oom", "diverged") and log:
        outcome = outcome.model_copy(update={"reason": f"{outcome.reason}{see(log)}"})
    return write_run(folder, specs, seed, cell, result, outcome, machine, split_of(preprocessed_folder), began)


def fewer_clients(machine: Machine) -> int | None:
    """Return half the number of clients that were trained at once.

    Args:
        machine: what is known of the failed attempt.

    Returns:
        At least 1; None if one client was trained at a time, or if memory ran out before training.
    """
    if machine.clients is None:
        return None
    return min(machine.chunk_clients or machine.clients, machine.clients) // 2 or None


def see(log: str) -> str:
    """Return the text that names a log at the end of an outcome's reason.

    Args:
        log: path of the log.

    Returns:
        The text, which begins with a space.
    """
    return f" (log: {log})"


def _free_memory() -> None:
    """Free memory that no tensor uses any more, in Python and on the GPU."""
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
    """Train one seed, and return the result of the training loop and the outcome."""
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
    chunk = asked.chunk_clients or _clients_at_once(federation, task, method, sizes, asked.memory_mb)
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
    """Set threads, memory and mode of torch, report them, and return the device to train on."""
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
    """Return the method of a cell, on its backbone."""
    own = spec["backbone"]
    backbone_settings = registry.declaration("backbone", own["name"]).settings(**own["settings"])
    backbone = registry.module("backbone", own["name"]).Backbone(
        backbone_settings, federation.num_features, task.outputs(federation)
    )
    settings = registry.declaration("method", spec["method"]).settings(**spec["settings"])
    method: Method = registry.module("method", spec["method"]).Method(settings, backbone, federation)
    return method


def _not_applicable(spec: dict[str, Any], task: "Task", method: "Method", federation: "Federation") -> str | None:
    """Return the reason why the method cannot be applied to this federation; None if it can."""
    if method.needs_classes and not task.predicts_classes:
        return f"{spec['method']} reads predictions as classes, which the task {spec['task']['name']} has not"
    return task.not_applicable(federation) or method.not_applicable()


def _too_many_inputs(federation: "Federation", sizes: ParameterSizes, device: "torch.device") -> str | None:
    """Return the reason why parameters for one-hot ids do not fit into memory; None if they fit."""
    from fglbench.runtime.memory import memory_mb, parameters_mb

    needed, there_are = parameters_mb(federation.num_clients, sizes.bytes), memory_mb(device)
    if needed <= there_are:
        return None
    return (
        f"features: identity has {federation.num_features} inputs, and parameters for them take {needed} MiB "
        f"of {there_are} MiB; take fewer clients or a smaller hidden width"
    )


def _schedule(spec: dict[str, Any]) -> "Schedule":
    """Return the training schedule of a specification."""
    from fglbench.federation.schedule import LocalPrivacy, Schedule

    training = dict(spec["training"])
    if protection := training.pop("ldp", None):
        training["ldp"] = LocalPrivacy(**protection)
    return Schedule(**training, evaluate=spec["evaluate"], selection_mean=spec["mean"])


def _clients_at_once(
    federation: "Federation", task: "Task", method: "Method", sizes: ParameterSizes, limit_mb: int | None
) -> int | None:
    """Return the number of clients to train at once."""
    from fglbench.federation.chunks import clients_at_once

    backbone = method.backbone
    width = backbone.branches * sizes.widest
    return clients_at_once(
        federation.scored,
        backbone.propagation,
        width,
        sizes.bytes,
        limit_mb,
        backbone.edge_values,
        method.added_rows,
        task.pair_bytes,
    )


def _processor() -> str:
    """Return the name of the processor, or its architecture if the system does not tell the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
