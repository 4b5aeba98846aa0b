"""Whether a dataset can be had here, known before any job: cells without data are shown as not run, the others run."""

import os
from pathlib import Path

from fglbench.datasets.requirements import lacking_memory
from fglbench.datasets.spec import DatasetSpec


def mirror_folder(named: str | None) -> Path | None:
    """The offline mirror: the folder that is named, else the environment's FGLBENCH_MIRROR, else None."""
    folder = named or os.environ.get("FGLBENCH_MIRROR")
    return Path(folder) if folder else None


def why_unavailable(spec: DatasetSpec, mirror: Path | None, may_download: bool) -> str | None:
    """Why a dataset cannot be had; None where it can.

    Only the names of its files and this machine's memory are looked at: what the files hold, and whether the disk has
    room for them, is checked by the download stage. Without a mirror a dataset is presumed to be downloadable.

    Args:
        spec: the dataset.
        mirror: folder laid out like the raw folders of PyG, if there is one; nothing is downloaded then.
        may_download: `data.download`.
    """
    for path in spec.own_files:
        if not path.is_file():
            return f"its file {path} is not there"
    if not spec.needs_files:
        return None
    if mirror is None:
        return lacking_memory(spec) if may_download else "there is no mirror, and data.download is false"
    missing = [path for path in spec.raw_files if not (mirror / path).is_file()]
    if not missing:
        return lacking_memory(spec)
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"the mirror {mirror} lacks {missing[0]}{more}"
