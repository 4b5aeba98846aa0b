"""Memory and disk space that the download stage needs for the large datasets, estimated before the download.

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
    limits = [float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # the file is missing, or says "max" (no limit)
            limits.append(float(Path(path).read_text()))
    return min(limits)


def lacking_memory(spec: DatasetSpec) -> str | None:
    """Return the reason why this machine has too little memory to make the graph of a dataset.

    Args:
        spec: row of the catalogue.

    Returns:
        The reason as text; None if the memory suffices.
    """
    required, available = requirements_of(spec), machine_memory()
    if required is None or required.memory <= available:
        return None
    return f"memory: making its graph takes about {_gb(required.memory)}; this machine has {_gb(available)}"


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
    existing = next(parent for parent in [folder, *folder.resolve().parents] if parent.is_dir())
    files = (
        ("raw files need", required.temporary, Path(tempfile.gettempdir()), "; set TMPDIR to another folder"),
        ("graph needs", required.stored, existing, ""),
    )
    for subject, needed, target, hint in files:
        free = shutil.disk_usage(target).free
        if reason is None and needed > free:
            reason = f"disk: its {subject} about {_gb(needed)}; {target} has {_gb(free)} free{hint}"
    if reason is not None:
        raise ResourceError(
            f"dataset '{spec.name}': {reason}. Nothing was downloaded. Make its graph on a larger machine and copy "
            f"{folder} from there, or leave the dataset out."
        )


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
