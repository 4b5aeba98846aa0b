"""Notes about errors in jobs, stored beside the job's output, so that the next run of the workflow retries them.

An error is a bug and not a result. The note `<output>.failed` holds the errors and the number of the job's attempt.
The workflow passes that number to the job as one of its params, and raises it by one if something failed. Snakemake
runs a job again when its params change. After a successful retry the note stays, because a change of the number would
run the job again.

This module imports little, because the workflow reads a note for every job while Snakemake builds its graph of jobs.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from fglbench.errors import StorageError
from fglbench.storage import read_json, write_json

FORCED = "FGLBENCH_FORCED"
"""The environment variable that tells jobs that the user forced them to run, such as by `--forcerun`."""

_SHOWN = 5


def attempt_number(output: Path, retry: bool) -> int:
    """Return the number of a job's attempt.

    Args:
        output: the output of the job.
        retry: whether to retry a job in which something failed.

    Returns:
        The number of the last attempt, counted from 0; one more if something failed and `retry` is true.
    """
    noted, failed = _note(output)
    return noted + bool(failed and retry)


def only_failed(output: Path, number: int) -> bool:
    """Return whether a job runs for the single purpose of retrying the errors of its last attempt.

    Args:
        output: the output of the job.
        number: the number of this attempt.

    Returns:
        True if the job only retries errors; False if anything else, such as `--forcerun`, made it run.
    """
    return number != attempt_number(output, retry=False) and not os.environ.get(FORCED)


def failed_in(output: Path) -> dict[str, str]:
    """Return the errors of a job's last attempt.

    Args:
        output: the output of the job.

    Returns:
        The reason, by the name of the failed part, such as "seed 3"; empty if nothing failed.
    """
    return _note(output)[1]


def note(output: Path, number: int, failed: Mapping[str, str]) -> None:
    """Write the note of an attempt. Remove the note if the first attempt ends without errors.

    Args:
        output: the output of the job.
        number: the number of the attempt, counted from 0.
        failed: the reason, by the name of the failed part; may be empty.
    """
    if failed or number:
        write_json(_path(output), {"attempt": number, "failed": dict(failed)})
    else:
        _path(output).unlink(missing_ok=True)


def failure_report(outputs: Iterable[Path]) -> str | None:
    """Return a message about the errors of some jobs.

    Args:
        outputs: the outputs of the jobs.

    Returns:
        The first five errors, the number of the others, and the next step; None if nothing failed.
    """
    errors = [f"{output.parent}, {what}: {why}" for output in outputs for what, why in failed_in(output).items()]
    if not errors:
        return None
    more = [f"... and {len(errors) - _SHOWN} more"] if len(errors) > _SHOWN else []
    lines = "\n".join(f"  - {line}" for line in errors[:_SHOWN] + more)
    return (
        f"Failed with an error; all else is finished:\n{lines}\n"
        "The same command tries them again. 'jobs: {failures: keep}' takes them as results."
    )


def _path(output: Path) -> Path:
    """Return the path of the note of an output."""
    return Path(output).with_suffix(".failed")


def _note(output: Path) -> tuple[int, dict[str, str]]:
    """Return the attempt and the errors in the note of an output; 0 and none if it is missing or unreadable."""
    path = _path(output)
    if not path.exists():
        return 0, {}
    try:
        stored = read_json(path)
        return int(stored["attempt"]), dict(stored["failed"])
    except (StorageError, KeyError, TypeError, ValueError):
        return 0, {}
