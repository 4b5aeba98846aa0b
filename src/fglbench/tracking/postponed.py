"""Imports that failed: remembered, so that the study is complete and the next run of the workflow tries again.

Light on purpose: the workflow reads this while it is parsed.
"""

from pathlib import Path

from fglbench.errors import StorageError
from fglbench.storage import read_json, write_json
from fglbench.tracking import TrackingError


def postpone(output: Path, error: TrackingError, failures: int) -> None:
    """Writes to `output` that the store was not brought up to date; `failed_imports` has the workflow try again.

    Args:
        output: as of `track`.
        error: what was wrong with the store.
        failures: how often this import was tried in vain before.
    """
    write_json(output, {"postponed": str(error), "failures": failures + 1})


def failed_imports(output: Path) -> int:
    """How often the import behind `output` was tried in vain; a number that changes makes its job run again."""
    try:
        return int(read_json(output)["failures"])
    except (StorageError, KeyError, TypeError, ValueError):
        return 0
