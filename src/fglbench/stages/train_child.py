"""What the process that trains does; `stages.supervise` starts it and is told how it goes.

It alone holds the card and the locks of its seeds, so these are free exactly when nothing runs any more.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fglbench.errors import FglbenchError
from fglbench.records.run import Machine
from fglbench.registry import use_folders
from fglbench.runtime.child import leave
from fglbench.runtime.devices import claimed_device
from fglbench.runtime.processes import limit_memory
from fglbench.stages.train import Watcher, train
from fglbench.storage import disk_trouble


class Reporter(Watcher):
    """Writes what the parent must know."""

    def __init__(self, report: Callable[..., None]):
        self.report = report

    def begins(self, seed: int) -> None:
        self.report(begins=seed)

    def knows(self, seed: int, machine: Machine) -> None:
        self.report(machine=machine.model_dump(exclude_unset=True))

    def out_of_memory(self, seed: int, reason: str) -> None:
        # What a failed allocation leaves behind is gone for certain only with its process.
        self.report(out_of_memory=reason)
        leave()

    def ended(self, seed: int) -> None:
        self.report(ended=seed)

    def spoilt(self) -> None:
        self.report(spoilt=True)
        leave()


def work(
    report: Callable[..., None],
    folder: str,
    graph_folder: str,
    preprocessed_folder: str,
    specs: dict[str, Any],
    cells: list[tuple[int, str]],
    components: list[str],
    jobs_per_card: int,
    memory_limit_mb: int | None,
    options: dict[str, Any],
) -> None:
    """Trains the seeds of a cell; see `stages.supervise.train_supervised`."""
    limit_memory(memory_limit_mb)
    try:
        use_folders([Path(path) for path in components])
        with claimed_device(options["device"], jobs_per_card):
            train(
                Path(graph_folder),
                Path(preprocessed_folder),
                specs,
                dict(cells),
                Path(folder),
                **options,
                watcher=Reporter(report),
            )
    except Exception as error:  # of the job, not of a cell
        if not isinstance(error, FglbenchError) and (trouble := disk_trouble(error, Path(folder))):
            raise trouble from error
        raise
