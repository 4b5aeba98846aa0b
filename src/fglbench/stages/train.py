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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fglbench import registry
from fglbench.errors import StorageError
from fglbench.records.component_files import KEY, Trust, own_files
from fglbench.runtime.devices import VARIABLE
from fglbench.runtime.out_of_memory import is_out_of_memory
from fglbench.stages.preprocess import FILE, split_of
from fglbench.stages.run_record import RECORD, TRIED_AGAIN, describe, differences, is_complete, write_record
from fglbench.storage import exclusive, read_json
from fglbench.tasks import task_of

if TYPE_CHECKING:
    from fglbench.engine.record import Result

Progress = Callable[[int, float, float], None]


class Watcher:
    """Is told how the seeds of a cell come along; this one does nothing."""

    def begins(self, seed: int) -> None:
        """A seed that is not there yet is about to be trained."""

    def knows(self, seed: int, machine: dict[str, Any]) -> None:
        """The federation is loaded: device, threads, versions, clients, and how many of them are trained at once."""

    def out_of_memory(self, seed: int, reason: str) -> None:
        """Memory ran out with several clients at once; when this returns, the seed is tried again with half of them."""

    def ended(self, seed: int) -> None:
        """The seed's record is there."""

    def spoilt(self) -> None:
        """What failed on a card may have left this process unable to use it: other seeds belong into another one."""


def train(
    graph_folder: Path,
    prepared_folder: Path,
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
        graph_folder, prepared_folder: results of download and preprocess.
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
    settings = {
        "device": device,
        "threads": threads,
        "chunk_clients": chunk_clients,
        "memory_mb": memory_mb,
        "mode": mode,
    }
    files = own_files(specs)
    for seed, cell in cells.items():
        spoilt = False
        # Two studies may ask for the same cell at the same time; the second waits and finds it done.
        with exclusive(folder / f"seed{seed}"):
            own, made_from = folder / f"seed{seed}", split_of(prepared_folder / f"seed{seed}" / FILE)
            if is_complete(own, cell, made_from, files if trust == "again" else None, tried_again):
                but = differences(read_json(own / RECORD), mode, files)
                print("; ".join([f"seed {seed}: done already, kept", *but]), flush=True)
            else:
                folders = graph_folder, prepared_folder / f"seed{seed}", own
                record = train_seed(*folders, specs, seed, cell, settings | {KEY: files}, log, progress(seed), watcher)
                print(f"seed {seed}: {describe(record)}", flush=True)
                spoilt = _may_have_spoilt(record)
            watcher.ended(seed)
        if spoilt:
            watcher.spoilt()


def _may_have_spoilt(record: dict[str, Any]) -> bool:
    """After some errors, such as a failed assertion on a card, CUDA answers every call of a process with that error."""
    on_card = (record["device"] or {}).get("type") == "cuda"
    return on_card and record["outcome"]["state"] in ("failed", "oom")


def train_seed(
    graph_folder: Path,
    prepared_folder: Path,
    folder: Path,
    specs: dict[str, Any],
    seed: int,
    cell: str,
    settings: dict[str, Any],
    log: str | None,
    progress: Progress | None,
    watcher: Watcher,
) -> dict[str, Any]:
    """Trains one seed and writes its folder whatever the outcome; returns the record."""
    began = time.perf_counter()
    watcher.begins(seed)
    while True:
        result: Result | None = None
        outcome: dict[str, Any] = {"state": "ok", "round": None, "reason": None}
        machine: dict[str, Any] = {KEY: settings[KEY]}

        def known(found: dict[str, Any], machine: dict[str, Any] = machine) -> None:
            machine |= found
            watcher.knows(seed, found)

        try:
            result, outcome = _run(graph_folder, prepared_folder, specs, seed, settings, progress, known)
        except StorageError:  # of what other stages left, for which no cell is to blame
            raise
        except Exception as error:  # every error is an outcome of this cell; the other cells go on
            traceback.print_exc()
            state = "oom" if is_out_of_memory(error) else "failed"
            outcome |= {"state": state, "reason": f"{type(error).__name__}: {error}"[:500]}
        fewer = fewer_clients(machine) if outcome["state"] == "oom" else None
        if fewer is None:
            break
        # The error is gone by now, and with it the frames that held its tensors.
        print(f"seed {seed}: {outcome['reason']}; again with {fewer} clients at once", flush=True)
        watcher.out_of_memory(seed, outcome["reason"])
        settings = settings | {"chunk_clients": fewer}
        _free_memory()
    if outcome["state"] in ("failed", "oom", "diverged") and log:
        outcome["reason"] += see(log)
    machine["split"] = split_of(prepared_folder / FILE)
    return write_record(folder, specs, seed, cell, result, outcome, machine, began)


def fewer_clients(machine: dict[str, Any]) -> int | None:
    """Half the clients that were trained at once; None where it was one, or where memory ran out before training."""
    if "clients" not in machine:
        return None
    return min(machine["chunk_clients"] or machine["clients"], machine["clients"]) // 2 or None


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
    prepared_folder: Path,
    specs: dict[str, Any],
    seed: int,
    settings: dict[str, Any],
    progress: Progress | None,
    known: Callable[[dict[str, Any]], None],
) -> "tuple[Result | None, dict[str, Any]]":
    from fglbench.runtime.modes import before_torch, set_mode

    before_torch(settings["mode"])
    import torch

    from fglbench.engine.final import global_test, reading_logits
    from fglbench.engine.loop import train
    from fglbench.federation.chunks import clients_at_once
    from fglbench.federation.schedule import LocalPrivacy, Schedule
    from fglbench.runtime.memory import keep_freed_memory, memory_mb, parameters_mb
    from fglbench.stages.preprocess import load_federation, load_global_test

    torch.set_num_threads(settings["threads"])
    keep_freed_memory()
    device = torch.device(
        ("cuda" if torch.cuda.is_available() else "cpu") if settings["device"] == "auto" else settings["device"]
    )
    set_mode(settings["mode"], device.type)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    card = os.environ.get(VARIABLE) if device.type == "cuda" else None
    known(
        {
            "device": {"type": device.type, "name": name, "card": card},
            "threads": settings["threads"],
            "mode": settings["mode"],
            "versions": {"torch": torch.__version__},
        }
    )
    federation = load_federation(graph_folder, prepared_folder, specs["prepared"])
    spec = specs["method"]
    task = task_of(spec)
    own = spec["backbone"]
    backbone_settings = registry.declaration("backbone", own["name"]).settings(**own["settings"])
    backbone = registry.module("backbone", own["name"]).Backbone(
        backbone_settings, federation.num_features, task.outputs(federation)
    )
    method_settings = registry.declaration("method", spec["method"]).settings(**spec["settings"])
    method = registry.module("method", spec["method"]).Method(method_settings, backbone, federation)
    reason = task.not_applicable(federation) or method.not_applicable()
    if method.needs_classes and not task.predicts_classes:
        reason = f"{spec['method']} reads predictions as classes, which the task {spec['task']['name']} has not"
    if reason:
        return None, {"state": "not_applicable", "round": None, "reason": reason}
    initial = method.backbone.initial(torch.Generator())
    parameter_bytes = sum(tensor.numel() * tensor.element_size() for tensor in initial.values())
    if specs["prepared"]["features"] == "identity":
        needed, there_are = parameters_mb(federation.num_clients, parameter_bytes), memory_mb(device)
        if needed > there_are:
            reason = (
                f"features: identity has {federation.num_features} inputs, and parameters for them take {needed} MiB "
                f"of {there_are} MiB; take fewer clients or a smaller hidden width"
            )
            return None, {"state": "oom", "round": None, "reason": reason}
    training = dict(spec["training"])
    if protection := training.pop("ldp", None):
        training["ldp"] = LocalPrivacy(**protection)
    schedule = Schedule(**training, evaluate=spec["evaluate"], selection_mean=spec["mean"])
    chunk = settings["chunk_clients"] or clients_at_once(
        federation.scored,
        backbone.propagation,
        backbone.branches * max((tensor.shape or (1,))[-1] for tensor in initial.values()),
        parameter_bytes,
        settings["memory_mb"],
        backbone.edge_values,
        method.added_rows,
    )
    known({"chunk_clients": chunk, "clients": federation.num_clients})
    result = train(federation, method, task, schedule, seed, device=device, chunk_clients=chunk, on_round=progress)
    if result.state == "ok":
        if spec.get("logits"):
            result.scores |= reading_logits(result, method.backbone, task, seed, device, chunk)
        if kind := spec.get("global_test"):
            tested = load_global_test(graph_folder, prepared_folder, specs["prepared"], kind)
            result.scores |= global_test(result, tested, method.backbone, task, seed, bool(spec.get("logits")), device)
    reason = None if result.state == "ok" else "a client's loss or logits are not finite, or the loss exploded"
    return result, {"state": result.state, "round": result.diverged_round, "reason": reason}


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
