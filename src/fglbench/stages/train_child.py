"""Train the seeds of a cell in a child process, which reports its progress to `stages.supervise`.

Only the child holds the locks of its GPU and of its seeds, so a lock is free as soon as no training uses it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fglbench.errors import FglbenchError
from fglbench.records.run import Machine
from fglbench.records.specs import Specs
from fglbench.registry import use_folders
from fglbench.runtime.child import leave
from fglbench.runtime.devices import claimed_device
from fglbench.runtime.processes import limit_memory
from fglbench.stages.train import TooManyClientsError, Watcher, train_seeds
from fglbench.storage import disk_trouble


class Reporter(Watcher):
    """Watcher that sends the progress of the seeds to the parent process as events."""

    def __init__(self, report: Callable[..., None]):
        self.report = report

    def begins(self, seed: int) -> None:
        self.report(begins=seed)

    def knows(self, seed: int, machine: Machine) -> None:
        self.report(machine=machine.model_dump(exclude_unset=True))

    def ended(self, seed: int) -> None:
        self.report(ended=seed)

    def gpu_failed(self) -> None:
        self.report(gpu_failed=True)
        leave()


def work(
    report: Callable[..., None],
    folder: str,
    graph_folder: str,
    preprocessed_folder: str,
    specs: Specs,
    cells: list[tuple[int, str]],
    components: list[str],
    jobs_per_card: int,
    memory_limit_mb: int | None,
    options: dict[str, Any],
) -> None:
    """Train the seeds of a cell; see `stages.supervise.train_supervised`.

    Args:
        report: sends an event, given as keywords, to the parent process.
        folder: where `seed<k>` is written.
        graph_folder: result of download.
        preprocessed_folder: result of preprocess.
        specs: the specifications of the cell.
        cells: pairs of a seed and its cell id.
        components: folders with the user's own components.
        jobs_per_card: see `runtime.devices.claimed_device`.
        memory_limit_mb: memory limit of this process, in MiB; None for no limit.
        options: keyword arguments of `stages.train.train_seeds`.

    Raises:
        DiskError: the results cannot be written, because the disk is full or not writable.
    """
    limit_memory(memory_limit_mb)
    try:
        use_folders([Path(path) for path in components])
        with claimed_device(options["device"], jobs_per_card):
            train_seeds(
                Path(graph_folder),
                Path(preprocessed_folder),
                specs,
                dict(cells),
                Path(folder),
                **options,
                watcher=Reporter(report),
            )
    except TooManyClientsError as error:
        # Only the end of the process is certain to free all memory after a failed allocation.
        report(out_of_memory=error.reason)
        leave()
    except Exception as error:  # an error of the job and not of a cell
        if not isinstance(error, FglbenchError) and (trouble := disk_trouble(error, Path(folder))):
            raise trouble from error
        raise
