"""Collect the records of a study's cells into tidy tables, the only input of tables, figures and report.

The stage writes six files:
    `runs.parquet`: one row per placement, split, reading, client mean and metric;
    `curves.parquet`: one row per placement and round;
    `partitions.parquet`: one row per partition, seed and client;
    `mixing.parquet`: one row per placement and client, for the methods that record mixing weights;
    `drawings.parquet`: one row per partition and client that a figure draws, and one for the whole graph;
    `study.json`: the settings of the study, and the versions and hardware that it ran on.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fglbench.config.expand import Expansion
from fglbench.config.identity import Cell
from fglbench.records.archive import load_archives
from fglbench.records.checksums import check_listed
from fglbench.records.metrics import METRICS, Metrics
from fglbench.records.run import NOT_RUN, RUN, RunRecord
from fglbench.records.study import STUDY
from fglbench.stages.collect_rows import RUN_COLUMNS, Finished, coordinates, curve, mixing, partitions, run_rows
from fglbench.stages.collect_study import study_content
from fglbench.stages.drawings import drawings
from fglbench.storage import replacing, write_json


def collect(
    expansion: Expansion,
    name: str,
    results: Path,
    folder: Path,
    reused: Mapping[str, Path] | None = None,
    not_run: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Write the six files of a study.

    Args:
        expansion: the placements and cells of the study.
        name: of the study.
        results: the results folder.
        folder: where the files are written.
        reused: the archive folder of each reused cell, by cell id; None if no cell is reused.
        not_run: the reason why cells have no record, by the slug of their dataset; None if there is no reason to show.

    Returns:
        The number of cells per outcome. Cells without a record count as `not_run`.

    Raises:
        StorageError: a record is missing, unreadable or does not match its checksum.
    """
    study = expansion.study
    reused = {cell.id: reused[cell.id] for cell in expansion.cells if reused and cell.id in reused}
    archive = load_archives(sorted(set(reused.values())))
    loaded = {cell.id: _load(cell, results) for cell in expansion.cells if cell.id not in reused}
    rows: list[dict[str, Any]] = []
    frames: dict[str, list[pd.DataFrame]] = {name: [] for name in ("runs", "curves", "mixing")}
    for placement in expansion.placements:
        if placement.cell.id in reused:
            for frame, archived in archive.frames_of(placement.cell.id, study.protocol.reading):
                frames[frame].append(archived.assign(**coordinates(placement)))
        else:
            finished = loaded[placement.cell.id]
            rows += run_rows(placement, finished, (not_run or {}).get(placement.cell.dataset.slug))
            frames["curves"] += curve(placement, finished, results)
            frames["mixing"] += mixing(placement, finished, results, study.protocol.reading)
    trained = pd.DataFrame(rows, columns=list(RUN_COLUMNS)).astype(RUN_COLUMNS)
    write_parquet(folder / "runs.parquet", pd.concat([*frames["runs"], trained])[list(RUN_COLUMNS)])
    write_parquet(folder / "curves.parquet", pd.concat(frames["curves"] or [pd.DataFrame()]))
    write_parquet(folder / "mixing.parquet", pd.concat(frames["mixing"] or [pd.DataFrame()]))
    write_parquet(folder / "partitions.parquet", partitions(expansion, results, archive))
    write_parquet(folder / "drawings.parquet", drawings(expansion, results, archive.drawings))
    outcomes = Counter(str(finished.metrics.outcome.state) if finished else NOT_RUN for finished in loaded.values())
    outcomes += Counter(archive.runs[cell]["outcome"].iloc[0] for cell in reused)
    content = study_content(expansion, name, results, loaded, archive, dict(outcomes), len(reused))
    write_json(folder / STUDY, content)
    return dict(outcomes)


def _load(cell: Cell, results: Path) -> Finished | None:
    """Load the records of a cell; None if the cell has no `metrics.json`."""
    metrics, run = results / cell.folder("evaluate"), results / cell.folder("train")
    if not (metrics / METRICS).exists():
        return None
    record = Metrics.read(metrics)
    # A job that retries the seed may replace the record of another outcome at any time, so only "ok" is checked.
    if record.outcome.state == "ok":
        check_listed(metrics / METRICS)
        check_listed(run / RUN)
    return Finished(record, RunRecord.read(run) if record.outcome.state != NOT_RUN else None)


def write_parquet(path: Path, frame: pd.DataFrame) -> None:
    """Write a frame as Parquet, and replace an older file only when the new one is complete.

    Args:
        path: of the file.
        frame: without its index.
    """
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False)
