"""Supervise training: in a child process, whose crash is the outcome of one seed, or in this process.

A job of the workflow uses `train_supervised`. The supervisor itself trains nothing, so a cell that crashes, or exceeds
its memory or time, cannot end the study.

    seed exceeds its time limit    outcome `timeout`; the process is killed, and the next seed follows
    memory runs out, or SIGKILL    the seed is retried with half the clients at once, down to one client; then `oom`
    any other end during a seed    outcome `failed`
    seed failed on a GPU           its outcome is recorded; the next seed gets a new process, because the CUDA context
                                   may be unusable

If the child was asked to stop (SIGTERM, for example by a scheduler), nothing is recorded. The job ends with an error
and is retried as a whole. This module does not import torch, so the second process costs only its start.

`train_here` trains in this process: for searches, which train many short cells, and for debuggers. It also retries
with fewer clients at once. The results do not depend on the number of clients trained at once.
"""

import gc
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fglbench.errors import FglbenchError
from fglbench.records.component_files import own_files
from fglbench.records.federation import split_of
from fglbench.records.run import Machine, Outcome, State, is_complete
from fglbench.records.specs import Specs
from fglbench.runtime.child import Ended, run_in_child
from fglbench.stages.run_folder import write_run
from fglbench.stages.train import TooManyClientsError, fewer_clients, log_suffix, train_seeds
from fglbench.stages.train_child import work
from fglbench.storage import exclusive

_TOLD_TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class TrainingError(FglbenchError):
    """A training job failed for a reason that is not a result of any cell."""


@dataclass
class _Run:
    """What is known of a child process, from its events and then from its end."""

    machine: Machine = field(default_factory=Machine)
    seed: int | None = None
    since: float = 0.0
    finished: list[int] = field(default_factory=list)
    memory: str | None = None
    gpu_failed: bool = False
    ended: Ended = field(default_factory=Ended)

    def take(self, event: dict[str, Any]) -> None:
        """Update the state with an event of the child."""
        if "begins" in event:
            self.seed, self.since, self.machine = event["begins"], time.perf_counter(), Machine()
        elif "ended" in event:
            self.finished.append(event["ended"])
            self.seed = None
        self.machine = Machine.model_validate(self.machine.model_dump() | event.get("machine", {}))
        self.memory = event.get("out_of_memory", self.memory)
        self.gpu_failed = event.get("gpu_failed", self.gpu_failed)


def train_supervised(
    graph_folder: Path,
    preprocessed_folder: Path,
    specs: Specs,
    cells: dict[int, str],
    folder: Path,
    *,
    components: Sequence[str] = (),
    jobs_per_card: int = 1,
    memory_limit_mb: int | None = None,
    timeout_min: float | None = None,
    log: str,
    **options: Any,
) -> None:
    """Train the seeds of a cell in a child process. Afterwards every seed has a record.

    Args:
        graph_folder: result of download.
        preprocessed_folder: result of preprocess.
        specs: the specifications of the cell.
        cells: the cell id of each seed.
        folder: where `seed<k>` is written.
        components: folders with the user's own components.
        jobs_per_card: see `runtime.devices.claimed_device`.
        memory_limit_mb: memory limit of the process, in MiB; None for no limit.
        timeout_min: time limit of a seed in minutes, from its start to its record; None for no limit.
        log: the file that receives the output of this process and of its child.
        options: keyword arguments of `stages.train.train_seeds`.

    Raises:
        TrainingError: the process could not do its work, or was asked to stop. Finished seeds are kept.
    """
    unfinished = dict(cells)
    while unfinished:
        request = {
            "graph_folder": str(graph_folder),
            "preprocessed_folder": str(preprocessed_folder),
            "specs": specs,
            "cells": list(unfinished.items()),
            "folder": str(folder),
            "components": list(components),
            "jobs_per_card": jobs_per_card,
            "memory_limit_mb": memory_limit_mb,
            "options": {**options, "log": log},
        }
        run = _run_child(request, None if timeout_min is None else 60 * timeout_min)
        for seed in run.finished:
            del unfinished[seed]
        if not unfinished:
            return
        if run.gpu_failed:
            continue
        if run.ended.error is not None:
            raise TrainingError(run.ended.error)
        if run.seed is None or (-run.ended.status in _TOLD_TO_STOP and not run.ended.overdue):
            raise TrainingError(
                f"the training process {run.ended}, and no single seed caused it; see {log}. Finished seeds are "
                "kept. Run the same command again to train the others."
            )
        state, reason = _outcome(run, timeout_min)
        fewer = fewer_clients(run.machine) if state == "oom" else None
        if fewer is not None:
            print(TooManyClientsError(run.seed, reason, fewer), flush=True)
            options["chunk_clients"] = fewer
            continue
        files = own_files(specs) if options.get("trust") != "warn" else None
        cell = unfinished.pop(run.seed)
        _record(run, state, f"{reason}{log_suffix(log)}", preprocessed_folder, specs, cell, folder, files)


def train_here(*arguments: Any, **options: Any) -> None:
    """Train the seeds of a cell in this process. If memory runs out, retry with half the clients at once.

    Args:
        arguments: positional arguments of `stages.train.train_seeds`.
        options: keyword arguments of `stages.train.train_seeds`.

    Raises:
        StorageError: see `stages.train.train_seeds`.
    """
    while True:
        try:
            return train_seeds(*arguments, **options)
        except TooManyClientsError as error:
            print(error, flush=True)
            options["chunk_clients"] = error.fewer
        _free_memory()


def _free_memory() -> None:
    """Free memory that no tensor uses any more, in Python and on the GPU."""
    gc.collect()
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _run_child(request: dict[str, Any], timeout_s: float | None) -> _Run:
    """Start a child, and follow it until it ends or a seed exceeds its time limit."""
    run = _Run()

    def overdue() -> bool:
        return timeout_s is not None and run.seed is not None and time.perf_counter() - run.since > timeout_s

    run.ended = run_in_child(work, request, on_event=run.take, overdue=overdue)
    return run


def _outcome(run: _Run, timeout_min: float | None) -> tuple[State, str]:
    """Return the outcome of the seed that a child left unfinished, with the reason."""
    if run.ended.overdue:
        return "timeout", f"not done after {timeout_min:g} min (jobs.train_timeout_min)"
    if run.memory is not None:
        return "oom", run.memory
    if -run.ended.status == signal.SIGKILL:
        return "oom", "the training process was killed by SIGKILL, which the system sends when memory runs out"
    return "failed", f"the training process {run.ended}"


def _record(
    run: _Run,
    state: State,
    reason: str,
    preprocessed_folder: Path,
    specs: Specs,
    cell: str,
    folder: Path,
    files: dict[str, str] | None,
) -> None:
    """Write the record of a seed for its ended child, unless another job has finished the seed."""
    assert run.seed is not None
    split = split_of(preprocessed_folder / f"seed{run.seed}")
    seed_folder = folder / f"seed{run.seed}"
    with exclusive(seed_folder):
        if is_complete(seed_folder, cell, split, files):
            return
        outcome = Outcome(state=state, reason=reason)
        peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        record = write_run(seed_folder, specs, run.seed, cell, None, outcome, run.machine, split, run.since, peak_mb)
        print(f"seed {run.seed}: {record}", flush=True)
