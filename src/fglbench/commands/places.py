"""Where the files beside the package lie: studies, their references and records, and the tests of a checkout."""

from pathlib import Path

import fglbench
from fglbench.errors import StorageError, suggest


def checkout() -> Path | None:
    """The root of the checkout that this package runs from, or None where it was installed without one."""
    root = Path(fglbench.__file__).resolve().parents[2]
    return root if (root / "workflow" / "studies").is_dir() else None


def studies() -> Path | None:
    """The folder of study files: of the working directory, else of the checkout, else None."""
    for root in (Path.cwd(), checkout()):
        if root is not None and (root / "workflow" / "studies").is_dir():
            return root / "workflow" / "studies"
    return None


def records_of(study: str, records: Path) -> Path:
    """The folder with the records of a study.

    Args:
        study: its name.
        records: the folder that holds the studies' records.

    Raises:
        StorageError: it has none there; names the studies that have.
    """
    known = sorted(path.parent.name for path in records.glob("*/study.json"))
    if study in known:
        return records / study
    there = suggest(study, known) if known else f"{records} holds no study yet."
    raise StorageError(
        f"'{study}' is not a study with records in {records}. {there} Run 'snakemake <study>' to make the records."
    )
