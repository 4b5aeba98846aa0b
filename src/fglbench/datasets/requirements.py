"""Resource requirements of the large datasets until their graph is stored, known before the download.

The numbers are estimates. Memory was measured on generated graphs of the same layout (up to 16 million entries and 200
million feature values): 98 to 103 bytes per entry and 4.3 bytes per value. The factors below are slightly larger. The
estimates cover the download stage only.
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
    """Resource requirements in bytes.

    Attributes:
        temporary: raw files and their archive in the temporary folder.
        stored: the stored graph.
        memory: main memory to make the graph.
    """

    temporary: float
    stored: float
    memory: float


def requirements_of(spec: DatasetSpec, *, from_mirror: bool = False) -> Requirements | None:
    """Estimate the resource requirements of a dataset.

    Args:
        spec: row of the catalogue.
        from_mirror: the raw files come from a mirror, so that no archive is downloaded.

    Returns:
        The estimate; None for the small datasets, which have none.
    """
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
    """Return the total memory of this machine, or of the control group of this process if that is smaller.

    Returns:
        Bytes.
    """
    found = [float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # the file is missing, or says "max" (no limit)
            found.append(float(Path(path).read_text()))
    return min(found)


def lacking_memory(spec: DatasetSpec) -> str | None:
    """Return the reason why this machine has too little memory to make the graph of a dataset.

    Args:
        spec: row of the catalogue.

    Returns:
        The reason as text; None if the memory suffices.
    """
    required, there = requirements_of(spec), machine_memory()
    if required is None or required.memory <= there:
        return None
    return f"memory: making its graph takes about {_gb(required.memory)}, and this machine has {_gb(there)}"


def check_requirements(spec: DatasetSpec, folder: Path, *, from_mirror: bool) -> None:
    """Check that this machine meets the resource requirements of a dataset.

    Args:
        spec: row of the catalogue.
        folder: destination of the graph; it need not exist yet.
        from_mirror: the raw files come from a mirror.

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
