"""Record failed imports, so that the study is complete and the next run of the workflow retries the import.

This module imports little, because the workflow reads the records while it is parsed.
"""

from pathlib import Path

from fglbench.errors import StorageError
from fglbench.storage import read_json, write_json
from fglbench.tracking import TrackingError


def postpone(output: Path, error: TrackingError, failures: int) -> None:
    """Write to `output` that the import failed. `failed_imports` then makes the workflow retry it.

    Args:
        output: the same file as in `stages.track.track`.
        error: the error of the store.
        failures: the number of earlier failed attempts of this import.
    """
    write_json(output, {"postponed": str(error), "failures": failures + 1})


def failed_imports(output: Path) -> int:
    """Return the number of failed attempts of an import. Snakemake runs the job again when the number changes.

    Args:
        output: the file that `postpone` or `stages.track.track` wrote.

    Returns:
        The number of attempts; 0 if the file is missing or unreadable.
    """
    try:
        return int(read_json(output)["failures"])
    except (StorageError, KeyError, TypeError, ValueError):
        return 0
