"""Disks that refuse, for tests: a small file system in memory that is full or read-only."""

import subprocess
from pathlib import Path


def mount(folder: Path, options: str) -> None:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def fill(folder: Path) -> None:
    """Leaves no room but for a few files without content."""
    try:
        with (folder / "ballast").open("wb", buffering=0) as stream:
            while stream.write(b"0" * 4096):
                pass
    except OSError:
        return


def make_read_only(folder: Path) -> None:
    """From now on nothing can be written there, by nobody."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True, capture_output=True)
