"""Where the files beside the package lie: studies, their references, and the tests of a checkout."""

from pathlib import Path

import fglbench


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
