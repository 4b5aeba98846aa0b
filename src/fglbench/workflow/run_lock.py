"""One workflow at a time works on a results folder: who that is, and what a Snakemake that was killed left behind.

The lock is the process's own and ends with it, however it ends. Snakemake's locks are files that outlive a kill; while
nobody holds the lock here they are remains, so the same command goes on where the killed one stopped. They lie in the
working directory, where others may work on other results: only those that name files of these results are looked at.
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
_PATIENCE_S = 5.0  # a second process that only looks holds the lock for an instant
_held = ExitStack()


class BusyError(FglbenchError):
    """Another workflow works on the same results."""


@contextmanager
def working_on(results: Path) -> Iterator[None]:
    """Makes this process the only one that works on a results folder.

    Raises:
        BusyError: another one does; names it and says what to do.
        DiskError: the folder cannot be written.
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
    """`working_on` until this process ends, however it ends."""
    _held.enter_context(working_on(results))


def look(results: Path, locks: Path = SNAKEMAKE_LOCKS) -> str | None:
    """Removes the locks of a Snakemake that was killed; what a user should know about another one, or None.

    Args:
        results: the results folder, as the workflow names it.
        locks: Snakemake's folder of locks.
    """
    if not results.is_dir():
        return None
    try:
        left = [path for path in sorted(locks.glob("*.lock")) if _is_for(path, results)]
        if not left:
            return None
        with FileLock(_lock(results), timeout=0):
            host = _owned_by(results).get("host", platform.node())
            if host != platform.node():
                # Locks may not reach from one machine to another on a shared file system.
                return f"Snakemake was started here on {host}. If it no longer runs there: snakemake --unlock"
            for path in left:
                path.unlink(missing_ok=True)
    except Timeout:
        return _busy(results)
    except OSError:
        return None  # a folder that cannot be written is found when work starts; a lock may just have been given back
    return "The last Snakemake here was killed. Its locks were removed; what it finished is kept."


def set_back_times(results: Path) -> str | None:
    """Gives files whose time lies in the future the present one; a line that says so, or None where there are none.

    Snakemake fails every job whose output is older than its input. Only files that rules read are looked at: what lies
    in the folders of seeds, which are most files of large results, is none of them.
    """
    now = time.time_ns()
    stages = [path for path in results.glob("[!.]*/") if path.name not in ("logs", "benchmarks", "tracking")]
    found = [path for stage in stages for path, time_ns in _read_by_rules(stage) if time_ns > now]
    if not found:
        return None
    many = f"{len(found)} files have a time" if len(found) > 1 else "A file has a time"
    said = f"{many} in the future, as where another clock was ahead, such as {found[0]}"
    try:
        for path in found:
            os.utime(path, ns=(now, now))
    except OSError as error:
        return f"{said}. It cannot be changed ({error.strerror}), and jobs that read it fail: change it with 'touch'."
    return f"{said}. It was set to the present."


def _read_by_rules(folder: Path) -> Iterator[tuple[Path, int]]:
    """The files that jobs of the workflow may read, with their times in nanoseconds."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not _SEED.fullmatch(entry.name):
                        yield from _read_by_rules(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    yield Path(entry.path), entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return  # absent, or not to be read, which is found when work starts


def _is_for(lock: Path, results: Path) -> bool:
    """Whether a lock of Snakemake, one file name a line, is for these results; one that names nothing is a remain."""
    names = lock.read_text(encoding="utf-8", errors="replace").splitlines()
    return not names or any(name.startswith(f"{results}/") for name in names)


def _busy(results: Path) -> str:
    owner = _owned_by(results)
    who = (
        f"process {owner['process']} on {owner['host']}, since {owner['since']}" if owner else "its process is unknown"
    )
    end = f", or end it with 'kill {owner['process']}'" if owner else ""
    return f"Another Snakemake works on {results} ({who}). Wait for it{end}; then give the same command again."


def _owned_by(results: Path) -> dict[str, str]:
    try:
        owner = read_json(_owner(results))
        return owner if {"process", "host", "since"} <= set(owner) else {}
    except (StorageError, TypeError):
        return {}


def _lock(results: Path) -> Path:
    return results / ".workflow.lock"


def _owner(results: Path) -> Path:
    return results / ".workflow"
