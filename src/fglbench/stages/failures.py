"""What ended with an error in a job: noted beside its output, so that the next run of the workflow tries it again.

Such an error is a bug, not a result. The note `<output>.failed` holds what failed, and the number of the job's attempt.
The workflow gives that number to the job as one of its params, one higher where something failed: Snakemake runs a job
again whose params changed. A note stays when all is well again, for the number must stay as it is then.

Light on purpose: the workflow reads this while its graph of jobs is made, once a job.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from fglbench.errors import StorageError
from fglbench.storage import read_json, write_json

FORCED = "FGLBENCH_FORCED"
"""The variable by which the workflow tells its jobs that the user asked for what would not run by itself."""

_SHOWN = 5


def attempt(output: Path, retry: bool) -> int:
    """The number of a job's attempt, from 0; where something failed and `retry` is true, of the next one."""
    noted, failed = _note(output)
    return noted + bool(failed and retry)


def only_failed(output: Path, number: int) -> bool:
    """Whether a job runs only because something failed in its last attempt, and for nothing else."""
    return number != attempt(output, retry=False) and not os.environ.get(FORCED)


def failed_in(output: Path) -> dict[str, str]:
    """What failed in a job's last attempt, such as a seed, with the reason."""
    return _note(output)[1]


def note(output: Path, number: int, failed: Mapping[str, str]) -> None:
    """Writes down what failed in an attempt, which may be nothing."""
    if failed or number:
        write_json(_path(output), {"attempt": number, "failed": dict(failed)})
    else:
        _path(output).unlink(missing_ok=True)


def told(outputs: Iterable[Path]) -> str | None:
    """What a user should know of the failures of some jobs; None where there are none."""
    found = [f"{output.parent}, {what}: {why}" for output in outputs for what, why in failed_in(output).items()]
    if not found:
        return None
    more = [f"... and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    lines = "\n".join(f"  - {line}" for line in found[:_SHOWN] + more)
    return (
        f"Failed with an error; all else is finished:\n{lines}\n"
        "The same command tries them again. 'jobs: {failures: keep}' takes them as results."
    )


def _path(output: Path) -> Path:
    return Path(output).with_suffix(".failed")


def _note(output: Path) -> tuple[int, dict[str, str]]:
    path = _path(output)
    if not path.exists():
        return 0, {}
    try:
        found = read_json(path)
        return int(found["attempt"]), dict(found["failed"])
    except (StorageError, KeyError, TypeError, ValueError):
        return 0, {}
