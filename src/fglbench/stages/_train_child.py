"""The process that trains: `python -m fglbench.stages._train_child EVENTS`, started by `stages.supervise`.

It reads what to do as JSON from standard input and writes a line of JSON to the file descriptor EVENTS whenever its
parent must know something. It ends when its parent does, however that ends, and it alone holds the card and the locks
of its seeds, so these are free exactly when nothing runs any more.
"""

import faulthandler
import json
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from fglbench.cards import claimed_card
from fglbench.errors import FglbenchError
from fglbench.processes import die_with, limit_memory
from fglbench.registry import use_folders
from fglbench.stages.train import Watcher, train
from fglbench.storage import disk_trouble


class Reporter(Watcher):
    """Writes what the parent must know."""

    def __init__(self, events: int):
        self._events = events

    def report(self, **event: Any) -> None:
        os.write(self._events, f"{json.dumps(event)}\n".encode())

    def begins(self, seed: int) -> None:
        self.report(begins=seed)

    def knows(self, seed: int, machine: dict[str, Any]) -> None:
        self.report(machine=machine)

    def out_of_memory(self, seed: int, reason: str) -> None:
        # What a failed allocation leaves behind is gone for certain only with its process.
        self.report(out_of_memory=reason)
        _leave()

    def ended(self, seed: int) -> None:
        self.report(ended=seed)

    def spoilt(self) -> None:
        self.report(spoilt=True)
        _leave()


def _leave() -> None:
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


def _main(events: int) -> None:
    os.set_inheritable(events, False)
    faulthandler.enable()
    request = json.load(sys.stdin)
    die_with(request["parent"])
    limit_memory(request["memory_limit_mb"])
    reporter = Reporter(events)
    try:
        use_folders([Path(folder) for folder in request["components"]])
        with claimed_card(request["options"]["device"], request["jobs_per_card"]):
            train(
                Path(request["graph_folder"]),
                Path(request["prepared_folder"]),
                request["specs"],
                dict(request["cells"]),
                Path(request["folder"]),
                **request["options"],
                watcher=reporter,
            )
    except Exception as error:  # of the job, not of a cell
        known = error if isinstance(error, FglbenchError) else disk_trouble(error, Path(request["folder"]))
        reporter.report(error=str(known) if known else f"{type(error).__name__}: {error}")
        with suppress(OSError):  # the log may be on the very disk that is full
            traceback.print_exc()
        _leave()


if __name__ == "__main__":
    _main(int(sys.argv[1]))
