"""A function in a process of its own, so that its memory, a crash and an endless run stay its own.

The child is `python -m fglbench.runtime.child MODULE:FUNCTION EVENTS`. It reads its arguments as JSON from standard
input and writes what its parent must know as lines of JSON to the file descriptor EVENTS. It ends when its parent does,
however that ends. Pipes are all that it needs: no semaphores and no shared memory, which a container may not have.
"""

import faulthandler
import importlib
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import fglbench
from fglbench.errors import DataError, DiskError, FglbenchError, PartitionError, ResourceError, StorageError
from fglbench.runtime.out_of_memory import is_out_of_memory
from fglbench.runtime.processes import die_with
from fglbench.runtime.terminal import show_anything

COMMAND = [sys.executable, "-P", "-m", "fglbench.runtime.child"]
_POLL_S = 0.5  # how long a child that ended without closing its end of the pipe stays unnoticed

Event = dict[str, Any]


@dataclass
class Ended:
    """How a child ended.

    Attributes:
        status: its exit status; minus the number of the signal that ended it.
        value: what the function returned; None where it did not return.
        error: what it raised, as text: of the suite's own errors the message, of others the type as well.
        kind: the class of what it raised; "" where that is none of the suite's own.
        out_of_memory: memory ran out, or the process was killed as the system does where it runs out.
        overdue: it was ended because it took too long.
    """

    status: int = 0
    value: Any = None
    error: str | None = None
    kind: str = ""
    out_of_memory: bool = False
    overdue: bool = False

    def __str__(self) -> str:
        if self.status < 0:
            return f"was ended by {signal.Signals(-self.status).name}"
        return f"ended with exit status {self.status}" + (f" ({self.error})" if self.error else "")

    def known(self) -> FglbenchError | None:
        """The error of the suite that the function raised, to be raised again; None where it raised none."""
        if not self.kind:
            return None
        kinds = {kind.__name__: kind for kind in (DataError, ResourceError, PartitionError, StorageError, DiskError)}
        return kinds.get(self.kind, FglbenchError)(self.error)


def run_in_child(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    *,
    on_event: Callable[[Event], None] = lambda event: None,
    overdue: Callable[[], bool] = lambda: False,
    quiet: bool = False,
) -> Ended:
    """`function(**arguments)` in a child process, followed to its end.

    Args:
        function: at the top level of a module that can be imported by name. One with a parameter `report` is given a
            function that sends an event, as keywords, to `on_event`.
        arguments: fit for JSON.
        on_event: is told of each event as it comes.
        overdue: asked every half second, and after each event; true ends the child.
        quiet: its output is dropped.
    """
    ended = Ended()

    def take(event: Event) -> None:
        if "returned" in event:
            ended.value = event["returned"]
        elif "raised" in event:
            ended.error, ended.kind, ended.out_of_memory = event["raised"], event["kind"], event["out_of_memory"]
        else:
            on_event(event)

    reading, writing = os.pipe()
    output = subprocess.DEVNULL if quiet else None
    # A session of its own: a Ctrl-C in the terminal ends this process, and by that the child, which records nothing.
    child = subprocess.Popen(
        [*COMMAND, f"{function.__module__}:{function.__qualname__}", str(writing)],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=[writing],
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    os.close(writing)
    try:
        assert child.stdin is not None
        with suppress(BrokenPipeError), child.stdin as stream:
            stream.write(json.dumps({"parent": os.getpid(), "arguments": arguments}).encode())
        pending = b""
        while True:
            if select.select([reading], [], [], _POLL_S)[0]:
                found = os.read(reading, 65536)
                if not found:
                    break
                *lines, pending = (pending + found).split(b"\n")
                for line in lines:
                    take(json.loads(line))
            elif child.poll() is not None:
                break
            if overdue():
                ended.overdue = True
                _kill(child)
                break
    except BaseException:
        _kill(child)
        raise
    finally:
        os.close(reading)
        ended.status = child.wait()
    ended.out_of_memory |= ended.status == -signal.SIGKILL and not ended.overdue
    return ended


def after(seconds: float) -> Callable[[], bool]:
    """For `overdue`: whether so many seconds passed since this call."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def python_path() -> str:
    """PYTHONPATH with which another process imports the package that this one uses."""
    source = str(Path(fglbench.__file__).parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([source, *(path for path in paths if path and path != source)])


def leave() -> NoReturn:
    """Ends a child at once, with exit status 1."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


def nothing() -> None:
    """Does nothing: whether a child can be started at all is known when it returns."""


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """Ends a child and whatever it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _main(place: str, events: int) -> None:
    os.set_inheritable(events, False)
    faulthandler.enable()
    show_anything()
    request = json.load(sys.stdin)
    die_with(request["parent"])

    def report(**event: Any) -> None:
        os.write(events, f"{json.dumps(event)}\n".encode())

    try:
        module, _, name = place.partition(":")
        function = getattr(importlib.import_module(module), name)
        told = {"report": report} if "report" in inspect.signature(function).parameters else {}
        report(returned=function(**request["arguments"], **told))
    except Exception as error:
        known = isinstance(error, FglbenchError)
        text = str(error) if known else f"{type(error).__name__}: {error}".removesuffix(": ")
        kind = type(error).__name__ if known else ""
        report(raised=text, kind=kind, out_of_memory=is_out_of_memory(error))
        if not known:
            with suppress(OSError):  # the log may be on a disk that is full
                traceback.print_exc()
        leave()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
