"""Availability of datasets on this machine, known before any job starts.

Cells of unavailable datasets are shown as not run; the other cells run.
"""

import os
from pathlib import Path

from fglbench.datasets.requirements import lacking_memory
from fglbench.datasets.spec import DatasetSpec


def mirror_folder(named: str | None) -> Path | None:
    """Return the folder of the offline mirror.

    Args:
        named: the folder that the configuration or the command names; None or "" if it names none.

    Returns:
        The named folder, else that of the environment variable FGLBENCH_MIRROR; None if there is neither.
    """
    folder = named or os.environ.get("FGLBENCH_MIRROR")
    return Path(folder) if folder else None


def why_unavailable(spec: DatasetSpec, mirror: Path | None, may_download: bool) -> str | None:
    """Return the reason why a dataset is unavailable.

    The check covers the names of its files and the memory of this machine. The download stage later checks the content
    of the files and the free disk space. Without a mirror the download is assumed to succeed.

    Args:
        spec: row of the catalogue.
        mirror: folder with the layout of PyG's raw folders, from which files are copied instead of downloaded; None:
            no mirror.
        may_download: the setting `data.download`.

    Returns:
        The reason as text; None if the dataset is available.
    """
    for path in spec.own_files:
        if not path.is_file():
            return f"its file {path} is missing"
    if not spec.needs_files:
        return None
    if mirror is None:
        return lacking_memory(spec) if may_download else "there is no mirror, and data.download is false"
    missing = [path for path in spec.raw_files if not (mirror / path).is_file()]
    if not missing:
        return lacking_memory(spec)
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"the mirror {mirror} lacks {missing[0]}{more}"
