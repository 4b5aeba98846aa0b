"""Archives: the records of a study's finished cells without their runs, small enough to be distributed with fglbench.

An archive is a folder with the study's collected records and `cells.json`, the ids of its cells. An id covers
everything that determines the numbers of a cell. So any study may reuse the archived records of a cell instead of
running it again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from fglbench.errors import StorageError
from fglbench.records.metrics import EVALUATE_VERSION
from fglbench.records.study import FIELDS, FRAMES, PROBLEM, STUDY, StudySettings, read_study
from fglbench.storage import read_json, replacing_directory, write_json

if TYPE_CHECKING:
    import pandas as pd

INDEX = "cells.json"
_RECORDS = (*(f"{name}.parquet" for name in FRAMES), STUDY)
_SETTLED = ("ok", "diverged", "not_applicable")  # outcomes that a new run would repeat; failures are not final


def archived_cells(folder: Path | None) -> dict[str, Path]:
    """Find the archived cells in a folder of archives.

    Records whose scores were made by another version of the evaluation are left out, because a cell's id covers only
    its training.

    Args:
        folder: with one subfolder per archive; None: there are no archives.

    Returns:
        The folder of the archive by cell id; the last archive in alphabetical order if several have a cell.

    Raises:
        StorageError: `cells.json` or `study.json` of an archive is missing or unreadable.
    """
    folders = sorted(path.parent for path in folder.glob(f"*/{INDEX}")) if folder else []
    current = [path for path in folders if read_json(path / STUDY).get("evaluate_version", 1) == EVALUATE_VERSION]
    return {cell: path for path in current for cell in read_json(path / INDEX)}


def archived_files(folder: Path) -> list[Path]:
    """List the files of an archive that contain its numbers.

    Args:
        folder: of the archive.

    Returns:
        Paths of the Parquet files and of `study.json`, if they exist.
    """
    return [folder / name for name in _RECORDS if (folder / name).exists()]


def archive(records: Path, folder: Path) -> list[str]:
    """Archive the collected records of a study.

    Args:
        records: `results/studies/<study>`.
        folder: of the archive; it is replaced as a whole.

    Returns:
        The sorted ids of the archived cells: those with the outcome ok, diverged or not_applicable.

    Raises:
        StorageError: a record is missing or unreadable, or there is no such cell.
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
        write_json(temporary / STUDY, study.settings)
        write_json(temporary / INDEX, cells)
    return cells


@dataclass(frozen=True)
class Archive:
    """The archived records of some cells.

    Attributes:
        runs: rows by cell id.
        curves: rows by cell id.
        partitions: rows by split folder.
        studies: content of `study.json` of each archive.
        mixing: rows by cell id.
        drawings: rows by split folder.
    """

    runs: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    curves: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    partitions: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    studies: list[StudySettings] = field(default_factory=list)
    mixing: "dict[str, pd.DataFrame]" = field(default_factory=dict)
    drawings: "dict[str, pd.DataFrame]" = field(default_factory=dict)

    def frames_of(self, cell: str, reading: str) -> "Iterator[tuple[str, pd.DataFrame]]":
        """Return the frames of a cell.

        Args:
            cell: the cell's id.
            reading: whose mixing weights are wanted: "val" or "last"; others have no archived weights.

        Yields:
            Pairs of a name ("runs", "curves" or "mixing") and a frame; only "runs" exists for every cell.
        """
        yield "runs", self.runs[cell]
        if cell in self.curves:
            yield "curves", self.curves[cell]
        if cell in self.mixing and self._mixing_is_of(cell, reading):
            yield "mixing", self.mixing[cell]

    def _mixing_is_of(self, cell: str, reading: str) -> bool:
        """Return whether the archived mixing weights of a cell are of the round of a reading."""
        runs, curve = self.runs[cell], self.curves[cell]
        rounds = {"val": runs.loc[runs["metric"] == "selected_round", "value"].max(), "last": curve["round"].max()}
        return bool(self.mixing[cell]["round"].iloc[0] == rounds.get(reading))


def load_archives(folders: Iterable[Path]) -> Archive:
    """Load archives; if several contain a cell, the last one is used.

    Args:
        folders: of the archives.

    Returns:
        Their records, merged.

    Raises:
        StorageError: a record is missing or unreadable.
    """

    def merged(earlier: Archive, folder: Path) -> Archive:
        study = read_study(folder)
        runs = study.runs.assign(device=_full_names(study.runs["device"], study.settings["hardware"]["devices"]))
        return Archive(
            earlier.runs | _first_placement(runs, "cell"),
            earlier.curves | _first_placement(study.curves, "cell"),
            earlier.partitions | _first_placement(study.partitions, "split"),
            [*earlier.studies, study.settings],
            earlier.mixing | _first_placement(study.mixing, "cell"),
            earlier.drawings | _first_placement(study.drawings, "split"),
        )

    return reduce(merged, folders, Archive())


def _full_names(devices: "pd.Series[str]", names: list[str]) -> "pd.Series[str]":
    """Replace device types of older records by the study's device of that type, if there is exactly one."""
    of_type = {kind: [name for name in names if name.split(":")[0] == kind] for kind in devices.unique()}
    return devices.map(lambda kind: of_type[kind][0] if len(of_type[kind]) == 1 else kind)


def _first_placement(frame: "pd.DataFrame", key: str) -> "dict[str, pd.DataFrame]":
    """Return the rows of every key in its first placement; a centralised cell has placements in several columns."""
    if key not in frame:
        return {}
    # The columns of a split are not those of a cell: the `label` of a drawing is an array of classes.
    coordinates = [name for name in (FIELDS if key == "cell" else PROBLEM) if name in frame]
    first = frame.groupby(key, sort=False)[coordinates].transform("first")
    kept = frame[(frame[coordinates] == first).all(axis=1)]
    return {str(value): rows for value, rows in kept.groupby(key, sort=False)}
