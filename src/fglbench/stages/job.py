"""Tasks that every job of the workflow does around its stage: write a log, and list the files that it made."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fglbench.errors import FglbenchError
from fglbench.runtime.child import python_path
from fglbench.runtime.terminal import show_anything
from fglbench.storage import disk_trouble, hash_file, read_json, write_json

NOT_RUN = "not_run"
"""The key of the seeds without results in the list that a job writes. All other keys are files."""


def share_package() -> None:
    """Set PYTHONPATH so that every job's script imports the package that this process uses, in any environment."""
    os.environ["PYTHONPATH"] = python_path()


@contextmanager
def logged(path: str | Path) -> Iterator[Callable[[str], None]]:
    """Send all output of this process to a log file, and show errors in the terminal too.

    The file descriptors are redirected, so the log also receives the output of libraries and child processes. After an
    unknown error, the terminal shows one line, and the log has the traceback.

    Args:
        path: the log file.

    Yields:
        A function that prints one line to both the log and the terminal.

    Raises:
        SystemExit: with status 1, after an error of the suite or of the disk. Other errors are raised again.
    """
    path = Path(path)
    show_anything()
    sys.stdout.flush()
    terminal = os.dup(2)

    def tell(text: str) -> None:
        os.write(terminal, f"{text}\n".encode())

    def say(text: str) -> None:
        tell(text)
        print(text, flush=True)

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        yield say
    except Exception as error:
        known = error if isinstance(error, FglbenchError) else disk_trouble(error, path)
        tell(str(known) if known else f"{type(error).__name__}: {error}\nThe whole traceback is in {path}.")
        if known is None:
            raise
        with suppress(OSError):  # the log may be on the full disk
            print(known, file=sys.stderr, flush=True)
        sys.exit(1)
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()


def finish(path: Path, made: list[Path], not_run: Mapping[int, str] | None = None) -> None:
    """Write the output of a job that serves several seeds: the list of the files that it made, with checksums.

    Args:
        path: `seeds-<range>.json`.
        made: for each seed, the file that is written last; below the folder of `path`.
        not_run: the seeds that cannot be run, with the reason; None if there are none.
    """
    files: dict[str, Any] = {str(file.relative_to(path.parent)): hash_file(file) for file in made}
    write_json(path, files | ({NOT_RUN: {str(seed): why for seed, why in not_run.items()}} if not_run else {}))


def list_checksums(path: Path, made: Iterable[str]) -> None:
    """Write the checksums of the files that a stage made for a study.

    Args:
        path: `<results>/checksums/<stage>/<study>.json`; its keys are relative to the results folder.
        made: the paths of the files.
    """
    write_json(path, {str(Path(file).relative_to(path.parents[2])): hash_file(Path(file)) for file in made})


def not_run_seeds(path: Path) -> dict[int, str]:
    """Return the seeds that a job could not run.

    Args:
        path: the file that `finish` wrote.

    Returns:
        The reason, by seed; empty if all seeds were run.
    """
    return {int(seed): why for seed, why in read_json(path).get(NOT_RUN, {}).items()}
