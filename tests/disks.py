"""Full and read-only disks for tests: small file systems in memory."""

import subprocess
from pathlib import Path


def mount(folder: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def fill(folder: Path) -> None:
    """Fill the disk; only a few empty files still fit."""
    try:
        with (folder / "ballast").open("wb", buffering=0) as stream:
            while stream.write(b"0" * 4096):
                pass
    except OSError:
        return


def make_read_only(folder: Path) -> None:
    """Remount the disk read-only, for root as well."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, capture_output=True)
