"""Archives: the records of a study's finished cells without their runs, small enough to come with the suite.

An archive is a folder with the study's collected records and `cells.json`, the ids of the cells in it. An id covers
everything that decides a cell's numbers, so any study may reuse a cell's records from here instead of running it again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fglbench.errors import StorageError
from fglbench.records.metrics import EVALUATE_VERSION
from fglbench.records.study import FRAMES, read_study
from fglbench.storage import read_json, replacing_directory, write_json

if TYPE_CHECKING:
    import pandas as pd

INDEX = "cells.json"
_RECORDS = (*(f"{name}.parquet" for name in FRAMES), "study.json")
_SETTLED = ("ok", "diverged", "not_applicable")  # what would come out again; a failure is worth another try


def archived_cells(folder: Path | None) -> dict[str, Path]:
    """The archive of every cell id, of all archives in a folder; empty where there is none.

    A cell's id covers its training; records whose scores are of another version of the evaluation are left out.

    Raises:
        StorageError: an index, or what an archive says of itself, cannot be read.
    """
    found = sorted(path.parent for path in folder.glob(f"*/{INDEX}")) if folder else []
    known = [path for path in found if read_json(path / "study.json").get("evaluate_version", 1) == EVALUATE_VERSION]
    return {cell: path for path in known for cell in read_json(path / INDEX)}


def archived_files(folder: Path) -> list[Path]:
    """The files that an archive's numbers are in."""
    return [folder / name for name in _RECORDS if (folder / name).exists()]


def archive(records: Path, folder: Path) -> list[str]:
    """Archives the collected records of a study.

    Args:
        records: `results/studies/<study>`.
        folder: of the archive; replaced as a whole.

    Returns:
        The ids of the archived cells: those that ended well, diverged, or are not applicable.

    Raises:
        StorageError: a record is missing or unreadable, or no cell is worth archiving.
    """
    study = read_study(records)
    settled = study.runs[study.runs["outcome"].isin(_SETTLED)]
    cells = sorted(set(settled["cell"]))
    if not cells:
        raise StorageError(f"{records} has no finished cell to archive. Run the study first: snakemake {records.name}.")
    with replacing_directory(folder) as temporary:
        others = ("curves", "partitions", "mixing", *(["drawings"] if len(study.drawings) else []))
        frames = {name: getattr(study, name) for name in others} | {"runs": settled}
        for name, frame in frames.items():
            kept = frame[frame["cell"].isin(cells)] if "cell" in frame else frame
            kept.to_parquet(temporary / f"{name}.parquet", index=False, compression="zstd")
        write_json(temporary / "study.json", study.settings)
        write_json(temporary / INDEX, cells)
    return cells


@dataclass(frozen=True)
class Archive:
    """The archived records of some cells.

    Attributes:
        runs, curves, mixing: by cell id, its rows.
        partitions, drawings: by split folder, its rows.
        studies: what the archives say of themselves.
    """

    runs: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    curves: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    partitions: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    studies: list[dict[str, Any]] = field(default_factory=list)
    mixing: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    drawings: "dict[str, pd.DataFrame]" = field(default_factory=dict)

    def mixing_at(self, cell: str, reading: str) -> "list[pd.DataFrame]":
        """The weights of a cell; none where the archived ones are of another round than a reading's."""
        if cell not in self.mixing:
            return []
        runs, curve = self.runs[cell], self.curves[cell]
        rounds = {"val": runs.loc[runs["metric"] == "selected_round", "value"].max(), "last": curve["round"].max()}
        return [self.mixing[cell]] if self.mixing[cell]["round"].iloc[0] == rounds.get(reading) else []


def load_archives(folders: Iterable[Path]) -> Archive:
    """Reads archives; a cell that several have is taken from the last.

    Raises:
        StorageError: a record is missing or unreadable.
    """

    def merged(found: Archive, folder: Path) -> Archive:
        study = read_study(folder)
        runs = study.runs.assign(device=_full_names(study.runs["device"], study.settings["hardware"]["devices"]))
        return Archive(
            found.runs | _first_placement(runs, "cell"),
            found.curves | _first_placement(study.curves, "cell"),
            found.partitions | _first_placement(study.partitions, "split"),
            [*found.studies, study.settings],
            found.mixing | _first_placement(study.mixing, "cell"),
            found.drawings | _first_placement(study.drawings, "split"),
        )

    return reduce(merged, folders, Archive())


def _full_names(devices: "pd.Series[str]", known: list[str]) -> "pd.Series[str]":
    """Older records name a device's type alone; where the study had one of that type, it is meant."""
    of_type = {kind: [name for name in known if name.split(":")[0] == kind] for kind in devices.unique()}
    return devices.map(lambda kind: of_type[kind][0] if len(of_type[kind]) == 1 else kind)


def _first_placement(frame: "pd.DataFrame", key: str) -> "dict[str, pd.DataFrame]":
    """The rows of every key, from the first place that shows it: a centralised cell is in several columns."""
    if key not in frame:
        return {}
    place = ["dataset", "scheme", "clients", *(name for name in ("method", "backbone", "label") if name in frame)]
    first = frame.groupby(key, sort=False)[place].transform("first")
    kept = frame[(frame[place] == first).all(axis=1)]
    return {str(value): rows for value, rows in kept.groupby(key, sort=False)}
