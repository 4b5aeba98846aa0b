"""Run a function on arrays in a child process, so that a crash or an endless run becomes a clear error."""

import importlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fglbench.errors import DiskError, PartitionError, ResourceError
from fglbench.runtime.child import Ended, after, run_in_child
from fglbench.storage import disk_trouble, read_npz, write_npz


def in_child(
    function: Callable[..., np.ndarray],
    arrays: Mapping[str, np.ndarray],
    options: Mapping[str, Any],
    seconds: float,
    what: str,
) -> np.ndarray:
    """Run `function(**arrays, **options)` in a child process.

    Args:
        function: at the top level of a module that can be imported by name.
        arrays: arguments that are arrays, without Python objects.
        options: arguments that JSON can encode.
        seconds: time limit, after which the child process is killed.
        what: the subject of error messages, such as "METIS".

    Returns:
        The array that the function returned.

    Raises:
        PartitionError: the child crashed, failed or exceeded the time limit; another try would fail in the same way.
        ResourceError: memory ran out, or the process was killed, probably because memory ran out.
        DiskError: the disk for temporary files is full.
    """
    with tempfile.TemporaryDirectory(prefix="fglbench-") as folder:
        inputs, output = Path(folder) / "inputs.npz", Path(folder) / "output.npz"
        write_npz(inputs, arrays)
        request = {
            "module": function.__module__,
            "function": function.__name__,
            "options": dict(options),
            "inputs": str(inputs),
            "output": str(output),
        }
        ended = run_in_child(_compute, request, overdue=after(seconds), quiet=True)
        if ended.overdue:
            raise PartitionError(
                f"{what} did not finish within {seconds:g} s. Use another scheme, or split on a faster machine."
            )
        if ended.status != 0 or not output.exists():
            _raise_passing_trouble(ended, what, folder)
            raise PartitionError(f"{what} {ended}. Use other settings or another scheme.")
        return read_npz(output)["result"]


def _raise_passing_trouble(ended: Ended, what: str, folder: str) -> None:
    """Raise an error for causes that may be gone at the next try; they must not be recorded as permanent failures."""
    if ended.out_of_memory:
        raise ResourceError(
            f"{what} {ended}: memory ran out, or the process was killed. Run the same command again with more "
            "memory for the job, or on another machine."
        )
    if isinstance(ended.fglbench_error(), DiskError):
        raise DiskError(
            f"{what} {ended}: {Path(folder).parent} is full. Free space there, or set TMPDIR to another folder, and "
            "run the same command again."
        )


def _compute(module: str, function: str, options: dict[str, Any], inputs: str, output: str) -> None:
    try:
        result = getattr(importlib.import_module(module), function)(**read_npz(Path(inputs)), **options)
        write_npz(Path(output), {"result": result})
    except Exception as error:
        if trouble := disk_trouble(error, Path(output)):
            raise trouble from error
        raise
