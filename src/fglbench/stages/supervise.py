"""A training job: it trains nothing itself, but starts the process that does, and records how a seed ended that took
that process with it. So no cell can take the study down: not by a crash, its memory or its time.

    seed runs longer than the limit      killed, `timeout`; the next seed goes on
    memory runs out, or SIGKILL          again with half the clients at once, down to one; then `oom`
    any other end in the midst of a seed `failed`
    a seed failed on a card              recorded; the next one in another process, for the card's context may be lost

A child that was told to stop (SIGTERM, as by a scheduler) records nothing: the job ends with an error and is tried
again as a whole. No torch here: the start of one more process is all that this costs.
"""

import resource
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fglbench.errors import FglbenchError
from fglbench.records.component_files import own_files
from fglbench.records.run import Machine, State
from fglbench.runtime.child import Ended, run_in_child
from fglbench.stages.train import fewer_clients
from fglbench.stages.train_child import work

_TOLD_TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class TrainingError(FglbenchError):
    """A training job could not do its work; no cell is to blame."""


@dataclass
class _Run:
    """What is known of a child: from its events, then from its end."""

    machine: Machine = field(default_factory=Machine)
    seed: int | None = None
    since: float = 0.0
    finished: list[int] = field(default_factory=list)
    memory: str | None = None
    spoilt: bool = False
    ended: Ended = field(default_factory=Ended)

    def take(self, event: dict[str, Any]) -> None:
        if "begins" in event:
            self.seed, self.since, self.machine = event["begins"], time.perf_counter(), Machine()
        elif "ended" in event:
            self.finished.append(event["ended"])
            self.seed = None
        self.machine = Machine.model_validate(self.machine.model_dump() | event.get("machine", {}))
        self.memory = event.get("out_of_memory", self.memory)
        self.spoilt = event.get("spoilt", self.spoilt)


def train_supervised(
    graph_folder: Path,
    preprocessed_folder: Path,
    specs: dict[str, Any],
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
    """Trains the seeds of a cell in a process of their own; every seed has a record afterwards.

    Args:
        graph_folder, preprocessed_folder, specs, cells, folder: see `stages.train.train`.
        components: folders with the user's own components.
        jobs_per_card: see `runtime.devices.claimed_device`.
        memory_limit_mb: memory that the process may take, in MiB; None for no limit.
        timeout_min: minutes that a seed may take, from its start to its record; None for no limit.
        log: where this process' output goes; the child's goes there too.
        options: of `stages.train.train`.

    Raises:
        TrainingError: the process could not do its work, or was told to stop. What is finished is kept.
    """
    left = dict(cells)
    while left:
        request = {
            "graph_folder": str(graph_folder),
            "preprocessed_folder": str(preprocessed_folder),
            "specs": specs,
            "cells": list(left.items()),
            "folder": str(folder),
            "components": list(components),
            "jobs_per_card": jobs_per_card,
            "memory_limit_mb": memory_limit_mb,
            "options": {**options, "log": log},
        }
        run = _run_child(request, None if timeout_min is None else 60 * timeout_min)
        for seed in run.finished:
            del left[seed]
        if not left:
            return
        if run.spoilt:
            continue
        if run.ended.error is not None:
            raise TrainingError(run.ended.error)
        if run.seed is None or (-run.ended.status in _TOLD_TO_STOP and not run.ended.overdue):
            raise TrainingError(
                f"the training process {run.ended} without a seed's being to blame; see {log}. Finished "
                "seeds are kept; the same command goes on."
            )
        state, reason = _outcome(run, timeout_min)
        fewer = fewer_clients(run.machine) if state == "oom" else None
        if fewer is not None:
            print(f"seed {run.seed}: {reason}; again with {fewer} clients at once", flush=True)
            options["chunk_clients"] = fewer
            continue
        files = own_files(specs) if options.get("trust") != "warn" else None
        _record(run, state, f"{reason} (log: {log})", preprocessed_folder, specs, left.pop(run.seed), folder, files)


def _run_child(request: dict[str, Any], timeout_s: float | None) -> _Run:
    """Starts a child and follows it to its end, or to the end of a seed's time."""
    run = _Run()

    def overdue() -> bool:
        return timeout_s is not None and run.seed is not None and time.perf_counter() - run.since > timeout_s

    run.ended = run_in_child(work, request, on_event=run.take, overdue=overdue)
    return run


def _outcome(run: _Run, timeout_min: float | None) -> tuple[State, str]:
    if run.ended.overdue:
        return "timeout", f"not done after {timeout_min:g} min (jobs.train_timeout_min)"
    if run.memory is not None:
        return "oom", run.memory
    if -run.ended.status == signal.SIGKILL:
        return "oom", "the training process was killed by SIGKILL, as the system does where memory runs out"
    return "failed", f"the training process {run.ended}"


def _record(
    run: _Run,
    state: State,
    reason: str,
    preprocessed_folder: Path,
    specs: dict[str, Any],
    cell: str,
    folder: Path,
    files: dict[str, str] | None,
) -> None:
    """Writes the record that the child could not, unless another job has finished the seed meanwhile."""
    from fglbench.records.federation import split_of
    from fglbench.records.run import Outcome, is_complete
    from fglbench.stages.run_folder import write_run
    from fglbench.storage import exclusive

    assert run.seed is not None
    split = split_of(preprocessed_folder / f"seed{run.seed}")
    own = folder / f"seed{run.seed}"
    with exclusive(own):
        if is_complete(own, cell, split, files):
            return
        outcome = Outcome(state=state, reason=reason)
        peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        record = write_run(own, specs, run.seed, cell, None, outcome, run.machine, split, run.since, peak_mb)
        print(f"seed {run.seed}: {record}", flush=True)
