"""Disk and memory that the large datasets take until their graph is stored, known before anything is fetched or read.

Estimates. Memory was measured on made-up graphs of the same layout (up to 16 million entries, 200 million features): 98
to 103 bytes an entry and 4.3 a feature; the factors below are a little above. They cover the download stage alone.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fglbench.datasets.spec import DatasetSpec
from fglbench.errors import ResourceError

_BYTES_PER_ENTRY, _BYTES_PER_FEATURE, _BYTES_ANYWAY = 120, 4.4, 2e8
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Requirements:
    """Bytes: raw files with their archive in the temporary folder, the stored graph, and memory."""

    temporary: float
    stored: float
    memory: float


def requirements_of(spec: DatasetSpec, *, from_mirror: bool = False) -> Requirements | None:
    """What a dataset takes; None for the small ones, which are not estimated."""
    if spec.announced is None:
        return None
    archive_mb = 0 if from_mirror else spec.announced.archive_mb
    values = spec.nodes * spec.features
    return Requirements(
        temporary=1e6 * (spec.announced.raw_mb + archive_mb),
        stored=32.0 * spec.edges + 4.0 * values + 11.0 * spec.nodes,
        memory=_BYTES_PER_ENTRY * spec.announced.entries + _BYTES_PER_FEATURE * values + _BYTES_ANYWAY,
    )


def machine_memory() -> float:
    """Bytes of memory that this machine, or the control group of this process, has in all."""
    found = [float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # "max" where there is no limit
            found.append(float(Path(path).read_text()))
    return min(found)


def lacking_memory(spec: DatasetSpec) -> str | None:
    """Why the graph of a dataset cannot be made in the memory of this machine; None where it can."""
    required, there = requirements_of(spec), machine_memory()
    if required is None or required.memory <= there:
        return None
    return f"memory: making its graph takes about {_gb(required.memory)}, and this machine has {_gb(there)}"


def check_requirements(spec: DatasetSpec, folder: Path, *, from_mirror: bool) -> None:
    """Refuses a dataset whose requirements this machine does not meet.

    Args:
        folder: where the graph goes; it need not exist yet.

    Raises:
        ResourceError: memory, the temporary folder or the disk of `folder` does not suffice.
    """
    required = requirements_of(spec, from_mirror=from_mirror)
    if required is None:
        return
    reason = lacking_memory(spec)
    below = next(parent for parent in [folder, *folder.resolve().parents] if parent.is_dir())
    places = (
        ("raw files", required.temporary, Path(tempfile.gettempdir()), "; TMPDIR names another folder"),
        ("graph", required.stored, below, ""),
    )
    for what, needed, place, hint in places:
        free = shutil.disk_usage(place).free
        if reason is None and needed > free:
            reason = f"disk: its {what} take about {_gb(needed)}, and {place} has {_gb(free)} free{hint}"
    if reason is not None:
        raise ResourceError(
            f"dataset '{spec.name}': {reason}. Nothing was fetched. Make its graph on a larger machine and copy "
            f"{folder} from there, or leave the dataset out."
        )


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
