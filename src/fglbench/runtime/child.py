"""Run a function in a child process, so that its memory, crashes and endless runs do not affect the parent.

The child is `python -m fglbench.runtime.child MODULE:FUNCTION EVENTS`. It reads its arguments as JSON from standard
input, and writes its events and result as lines of JSON to the file descriptor EVENTS. It ends when its parent ends,
for any reason. It uses pipes only: semaphores and shared memory are not available in every container.
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
_POLL_S = 0.5  # seconds between checks whether the child has ended, in case its pipe stays open

Event = dict[str, Any]


@dataclass
class Ended:
    """How a child process ended.

    Attributes:
        status: exit status of the process, or minus the number of the signal that ended it.
        value: the function's return value; None if it did not return.
        error: text of the exception that the function raised, with its type unless it is a FglbenchError; None if it
            raised none.
        kind: name of the exception's class if it is a FglbenchError; "" otherwise.
        out_of_memory: whether memory ran out, or the process ended by SIGKILL, which is how the system ends a process
            when memory runs out.
        overdue: whether the process was ended because it took too long.
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

    def fglbench_error(self) -> FglbenchError | None:
        """Return the exception that the function raised, to be raised again in this process.

        Returns:
            An exception of the same class, or a FglbenchError; None if the function raised no FglbenchError.
        """
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
    """Run `function(**arguments)` in a child process and wait until it ends.

    Args:
        function: at the top level of a module that can be imported by name. If it has a parameter `report`, it gets a
            function that sends its keyword arguments as an event to `on_event`.
        arguments: values that JSON can encode.
        on_event: called with each event as it arrives.
        overdue: called after each event, and after every half second without one; True ends the child.
        quiet: whether to discard the child's standard output and standard error.

    Returns:
        How the child ended, with the function's return value or error.
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
    # In its own session, the child gets no Ctrl-C: it ends with its parent and records nothing.
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
                received = os.read(reading, 65536)
                if not received:
                    break
                *lines, pending = (pending + received).split(b"\n")
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
    """Return a function for `overdue` that limits the child's time.

    Args:
        seconds: the time limit, from now.

    Returns:
        A function that returns whether the limit has passed.
    """
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def python_path() -> str:
    """Return the PYTHONPATH with which another process imports this copy of the package.

    Returns:
        The folder of the package, then the other entries of the current PYTHONPATH.
    """
    source = str(Path(fglbench.__file__).parents[1])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([source, *(path for path in paths if path and path != source)])


def leave() -> NoReturn:
    """Exit the child process at once, with exit status 1."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


def do_nothing() -> None:
    """Do nothing; run in a child to check that child processes can be started."""


def _kill(child: "subprocess.Popen[bytes]") -> None:
    """Kill a child and all processes of its session."""
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
            with suppress(OSError):  # the disk of the log may be full
                traceback.print_exc()
        leave()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
