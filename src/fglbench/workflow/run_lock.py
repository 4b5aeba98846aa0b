"""Hold the run lock, which allows one workflow at a time on a results folder, and remove locks of a killed Snakemake.

The run lock belongs to the process and ends with it. Snakemake's own locks are files that remain after a kill. They are
outdated as soon as no process holds the run lock, and removing them lets the same command resume the killed workflow.
Snakemake's locks lie in the working directory, which other results may share, so only locks that name files of these
results are removed.
"""

import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fglbench.errors import FglbenchError, StorageError
from fglbench.storage import read_json, write_json

SNAKEMAKE_LOCKS = Path(".snakemake") / "locks"
_SEED = re.compile(r"seed\d+")
_PATIENCE_S = 5.0  # `look` in another process holds the lock for an instant
_held = ExitStack()


class BusyError(FglbenchError):
    """Another workflow works on the same results."""


@contextmanager
def working_on(results: Path) -> Iterator[None]:
    """Hold the run lock of a results folder.

    Args:
        results: the results folder, created if it is missing.

    Yields:
        None, while the lock is held.

    Raises:
        BusyError: another process holds the lock. The message names it and says what to do.
        DiskError: the disk is full. Call `check_writable` first: an unwritable folder raises an OSError here.
    """
    results.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(_lock(results), timeout=_PATIENCE_S):
            owner = {"process": os.getpid(), "host": platform.node(), "since": time.strftime("%F %T")}
            write_json(_owner(results), owner)
            yield
    except Timeout:
        raise BusyError(_busy(results)) from None


def claim(results: Path) -> None:
    """Hold the run lock of a results folder until this process ends.

    Args:
        results: the results folder, created if it is missing.

    Raises:
        BusyError, DiskError: see `working_on`.
    """
    _held.enter_context(working_on(results))


def look(results: Path, locks: Path = SNAKEMAKE_LOCKS) -> str | None:
    """Remove the locks of a killed Snakemake, and describe a workflow that may be running.

    Args:
        results: the results folder, as the workflow names it.
        locks: Snakemake's folder of locks.

    Returns:
        A message about the removed locks or the other workflow; None if there is nothing to say.
    """
    try:
        left = [path for path in sorted(locks.glob("*.lock")) if _is_for(path, results)]
        if not left:
            return None
        results.mkdir(parents=True, exist_ok=True)  # Snakemake may have been killed before it made this folder
        with FileLock(_lock(results), timeout=0):
            host = _owned_by(results).get("host", platform.node())
            if host != platform.node():
                # On a shared file system, locks of one machine may be invisible to another.
                return f"Snakemake was started here on {host}. If it no longer runs there: snakemake --unlock"
            for path in left:
                path.unlink(missing_ok=True)
    except Timeout:
        return _busy(results)
    except OSError:
        # `claim` reports a folder that is not writable. A Snakemake that just ended may have removed its own locks.
        return None
    return "The last Snakemake here was killed. Its locks were removed; what it finished is kept."


def set_back_times(results: Path) -> str | None:
    """Set the time of files with a time in the future to the present.

    Snakemake fails every job whose output is older than its input. Only files that rules read are changed. The folders
    of seeds, which hold most files of large results, are skipped.

    Args:
        results: the results folder.

    Returns:
        A message about these files; None if there are none.
    """
    now = time.time_ns()
    stages = [path for path in results.glob("[!.]*/") if path.name not in ("logs", "benchmarks", "tracking")]
    newer = [path for stage in stages for path, time_ns in _read_by_rules(stage) if time_ns > now]
    if not newer:
        return None
    many = f"{len(newer)} files have a time" if len(newer) > 1 else "A file has a time"
    said = f"{many} in the future, probably from a faster clock, such as {newer[0]}"
    try:
        for path in newer:
            os.utime(path, ns=(now, now))
    except OSError as error:
        return f"{said}. This cannot be changed ({error.strerror}), so jobs that read these files fail: use 'touch'."
    return f"{said}. These times were set to the present."


def _read_by_rules(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files that jobs of the workflow may read, with their times in nanoseconds."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not _SEED.fullmatch(entry.name):
                        yield from _read_by_rules(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path), entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return  # a missing or unreadable folder is reported when work starts


def _is_for(lock: Path, results: Path) -> bool:
    """Return whether a lock of Snakemake belongs to these results.

    A lock file has one file name per line. An empty lock is left over, and belongs to any results.
    """
    names = lock.read_text(encoding="utf-8", errors="replace").splitlines()
    return not names or any(name.startswith(f"{results}/") for name in names)


def _busy(results: Path) -> str:
    """Return the message that another workflow holds the run lock."""
    owner = _owned_by(results)
    who = (
        f"process {owner['process']} on {owner['host']}, since {owner['since']}" if owner else "its process is unknown"
    )
    end = f", or end it with 'kill {owner['process']}'" if owner else ""
    return f"Another Snakemake works on {results} ({who}). Wait for it{end}; then run the same command again."


def _owned_by(results: Path) -> dict[str, str]:
    """Return the process, host and start time of the last holder; empty if they are unknown."""
    try:
        owner = read_json(_owner(results))
        return owner if {"process", "host", "since"} <= set(owner) else {}
    except (StorageError, TypeError):
        return {}


def _lock(results: Path) -> Path:
    """Return the path of the run lock."""
    return results / ".workflow.lock"


def _owner(results: Path) -> Path:
    """Return the path of the file that describes the holder of the run lock."""
    return results / ".workflow"
