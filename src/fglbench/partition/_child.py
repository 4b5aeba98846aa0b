"""Runs a function in a process of its own, so that a crash or an endless run becomes a named error.

The child is `python -m fglbench.partition._child PARENT MODULE FUNCTION OPTIONS INPUT.npz OUTPUT.npz`; it ends with the
process PARENT.
"""

import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fglbench.errors import DiskError, PartitionError, ResourceError
from fglbench.processes import die_with
from fglbench.storage import read_npz, write_npz

COMMAND = [sys.executable, "-P", "-m", "fglbench.partition._child"]


def in_child(
    function: Callable[..., np.ndarray],
    arrays: Mapping[str, np.ndarray],
    options: Mapping[str, Any],
    seconds: float,
    what: str,
) -> np.ndarray:
    """`function(**arrays, **options)`, computed in a child process.

    Args:
        function: a function at the top level of a module that can be imported by name.
        arrays: plain arrays.
        options: values fit for JSON.
        seconds: the child is ended after this time.
        what: the subject of the error message, as "METIS".

    Raises:
        PartitionError: the child crashed, failed, or was not done in time: it would be so again.
        ResourceError: it was killed, as happens when memory runs out, or had too little.
        DiskError: the disk for temporary files is full.
    """
    with tempfile.TemporaryDirectory(prefix="fglbench-") as folder:
        given, made = Path(folder) / "given.npz", Path(folder) / "made.npz"
        write_npz(given, arrays)
        command = [*COMMAND, str(os.getpid()), function.__module__, function.__name__, json.dumps(dict(options))]
        source = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        try:
            child = subprocess.run(
                [*command, str(given), str(made)],
                capture_output=True,
                text=True,
                timeout=seconds,
                env={**os.environ, "PYTHONPATH": path},
            )
        except subprocess.TimeoutExpired as error:
            raise PartitionError(
                f"{what} was not done after {seconds:g} s. Take another scheme, or split on a faster machine."
            ) from error
        if child.returncode != 0 or not made.exists():
            _raise_passing_trouble(child, what, folder)
            raise PartitionError(f"{what} {_ending(child)}. Take other settings or another scheme.")
        return read_npz(made)["result"]


def _raise_passing_trouble(child: "subprocess.CompletedProcess[str]", what: str, folder: str) -> None:
    """What another try, or another machine, may not meet with: it must not be recorded as if it would come again."""
    if child.returncode == -signal.SIGKILL or "MemoryError" in child.stderr:
        raise ResourceError(
            f"{what} {_ending(child)}: memory ran out, or the process was killed. Give the same command again, with "
            "more memory for the job or on another machine."
        )
    if os.strerror(errno.ENOSPC) in child.stderr:
        raise DiskError(
            f"{what} {_ending(child)}: {Path(folder).parent} is full. Make room there, or name another folder in "
            "TMPDIR, and give the same command again."
        )


def _ending(child: "subprocess.CompletedProcess[str]") -> str:
    if child.returncode < 0:
        return f"crashed with {signal.Signals(-child.returncode).name}"
    lines = child.stderr.strip().splitlines()
    return f"failed with exit status {child.returncode}" + (f" ({lines[-1]})" if lines else "")


def _main(parent: str, module: str, function: str, options: str, given: str, made: str) -> None:
    die_with(int(parent))
    compute = getattr(importlib.import_module(module), function)
    write_npz(Path(made), {"result": compute(**read_npz(Path(given)), **json.loads(options))})


if __name__ == "__main__":
    _main(*sys.argv[1:])
