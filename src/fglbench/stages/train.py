"""Train one cell, and write its checkpoint, history, predictions and record. Several seeds may share the process.

A seed with a complete record that matches its checksums is kept, so a killed job loses at most the seed that it was
training. Torch is imported only if a seed must be trained. `stages.supervise` runs this stage, in a child process or in
its own, and retries a seed for which memory ran out.
"""

import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fglbench.errors import FglbenchError, StorageError
from fglbench.records.component_files import Trust, own_files
from fglbench.records.federation import split_of
from fglbench.records.run import RETRIED, Machine, Outcome, RunRecord, State, is_complete
from fglbench.records.specs import Specs
from fglbench.runtime.modes import before_torch
from fglbench.runtime.out_of_memory import is_out_of_memory
from fglbench.stages.options import Progress, TrainingOptions
from fglbench.stages.run_folder import write_run
from fglbench.storage import exclusive

if TYPE_CHECKING:
    from fglbench.engine.record import Result


class TooManyClientsError(FglbenchError):
    """Memory ran out while several clients were trained at once.

    Attributes:
        seed: the cell seed.
        reason: the error message.
        fewer: half the number of clients that were trained at once, at least 1.
    """

    def __init__(self, seed: int, reason: str, fewer: int):
        super().__init__(f"seed {seed}: {reason}; again with {fewer} clients at once")
        self.seed, self.reason, self.fewer = seed, reason, fewer


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

    def ended(self, seed: int) -> None:
        """Handle the end of a seed, whose record is complete.

        Args:
            seed: the cell seed.
        """

    def gpu_failed(self) -> None:
        """Handle an error on a GPU, after which this process may no longer be able to use the GPU.

        Other seeds must then be trained in another process.
        """


def train_seeds(
    graph_folder: Path,
    preprocessed_folder: Path,
    specs: Specs,
    cells: dict[int, str],
    folder: Path,
    *,
    trust: Trust = "again",
    log: str | None = None,
    progress: Callable[[int], Progress | None] = lambda seed: None,
    watcher: Watcher | None = None,
    retried: Collection[str] = RETRIED,
    **options: Any,
) -> None:
    """Train the seeds of a cell that have no complete record yet, each into `folder/seed<k>`.

    Args:
        graph_folder: result of download.
        preprocessed_folder: result of preprocess.
        specs: the specifications of the cell.
        cells: the cell id of each seed.
        folder: where `seed<k>` is written.
        trust: what to do if a user's component file changed and its VERSION did not: "again" trains the seed again,
            "warn" keeps it with a warning.
        log: the file with the output of this process, which the reason of a failure names; None: there is none.
        progress: function from a seed to the callback for its rounds, or to None.
        watcher: receives the progress of the seeds; None: there is none.
        retried: the outcomes that count as unfinished.
        options: fields of `TrainingOptions`.

    Raises:
        StorageError: the graph or the federation is missing, damaged or altered. The seed then has no record.
        TooManyClientsError: memory ran out with several clients at once. The seed then has no record.
    """
    folder.mkdir(parents=True, exist_ok=True)
    watcher, training = watcher or Watcher(), TrainingOptions(**options)
    files = own_files(specs)
    for seed, cell in cells.items():
        gpu_failed = False
        # Two studies may train the same cell at the same time. The second one waits and finds it complete.
        with exclusive(folder / f"seed{seed}"):
            seed_folder, inputs = folder / f"seed{seed}", preprocessed_folder / f"seed{seed}"
            if is_complete(seed_folder, cell, split_of(inputs), files if trust == "again" else None, retried):
                differences = RunRecord.read(seed_folder).differences(training.mode, files)
                print("; ".join([f"seed {seed}: done already, kept", *differences]), flush=True)
            else:
                began = time.perf_counter()
                watcher.begins(seed)
                result, outcome, machine = _attempt(
                    graph_folder, inputs, specs, seed, training, files, progress(seed), watcher
                )
                if log and outcome.state in ("failed", "oom", "diverged"):
                    outcome = outcome.model_copy(update={"reason": f"{outcome.reason}{log_suffix(log)}"})
                record = write_run(seed_folder, specs, seed, cell, result, outcome, machine, split_of(inputs), began)
                print(f"seed {seed}: {record}", flush=True)
                gpu_failed = gpu_may_have_failed(record)
            watcher.ended(seed)
        if gpu_failed:
            watcher.gpu_failed()


def _attempt(
    graph_folder: Path,
    preprocessed_folder: Path,
    specs: Specs,
    seed: int,
    options: TrainingOptions,
    files: dict[str, str],
    progress: Progress | None,
    watcher: Watcher,
) -> "tuple[Result | None, Outcome, Machine]":
    """Train one seed, and return the result of the training loop, the outcome, and the facts about the machine.

    Raises:
        StorageError: damage to the files of other stages, which is not an outcome of a cell.
        TooManyClientsError: memory ran out with several clients at once.
    """
    result, machine = None, Machine(component_files=files)

    def on_machine(facts: Machine) -> None:
        nonlocal machine
        machine = machine.model_copy(update={name: getattr(facts, name) for name in facts.model_fields_set})
        watcher.knows(seed, facts)

    try:
        before_torch(options.mode)
        from fglbench.stages.attempt import attempt

        result, outcome = attempt(graph_folder, preprocessed_folder, specs, seed, options, progress, on_machine)
    except StorageError:
        raise
    except Exception as error:  # an error is an outcome of this cell only
        traceback.print_exc()
        state: State = "oom" if is_out_of_memory(error) else "failed"
        outcome = Outcome(state=state, reason=f"{type(error).__name__}: {error}"[:500])
    fewer = fewer_clients(machine) if outcome.state == "oom" else None
    if fewer is not None:
        # Outside the except block, the error no longer keeps the frames with the tensors alive.
        raise TooManyClientsError(seed, outcome.reason or "", fewer)
    return result, outcome, machine


def gpu_may_have_failed(record: RunRecord) -> bool:
    """Return whether an error may have made the GPU unusable for this process.

    After some errors, such as a failed assertion on the GPU, CUDA answers every later call of the process with that
    error.

    Args:
        record: of the seed.

    Returns:
        True if the seed failed or ran out of memory on a GPU.
    """
    on_gpu = record.device is not None and record.device.type == "cuda"
    return on_gpu and record.outcome.state in ("failed", "oom")


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


def log_suffix(log: str) -> str:
    """Return the text that names a log at the end of an outcome's reason.

    Args:
        log: path of the log.

    Returns:
        The text, which begins with a space.
    """
    return f" (log: {log})"
