"""Paths of the files beside the package: the checkout, its studies, and the records of studies."""

from pathlib import Path

import fglbench
from fglbench.errors import StorageError, suggest


def checkout() -> Path | None:
    """Return the root of the checkout that this package runs from.

    Returns:
        An absolute path; None if the package was installed without a checkout.
    """
    root = Path(fglbench.__file__).resolve().parents[2]
    return root if (root / "workflow" / "studies").is_dir() else None


def studies() -> Path | None:
    """Return the folder of study files.

    Returns:
        `workflow/studies` of the working directory, else of the checkout; None if neither has one.
    """
    for root in (Path.cwd(), checkout()):
        if root is not None and (root / "workflow" / "studies").is_dir():
            return root / "workflow" / "studies"
    return None


def records_of(study: str, records: Path) -> Path:
    """Return the folder with the records of a study.

    Args:
        study: its name.
        records: the folder with the records of all studies.

    Returns:
        The folder of the study in `records`.

    Raises:
        StorageError: the study has no records there; the message names the studies that have.
    """
    names = sorted(path.parent.name for path in records.glob("*/study.json"))
    if study in names:
        return records / study
    valid = suggest(study, names) if names else f"{records} contains no study yet."
    raise StorageError(
        f"'{study}' is not a study with records in {records}. {valid} Run 'snakemake <study>' to make the records."
    )
