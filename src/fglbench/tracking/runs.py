"""Collect parameters, final metrics and curves of finished cells for a tracking store, from a study's records."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fglbench.errors import StorageError
from fglbench.records.run import NOT_RUN, RUN, RunRecord
from fglbench.records.study import FIELDS, StudyRecord
from fglbench.storage import fingerprint
from fglbench.tasks import DEFAULT_TASK

CURVES = ("train_loss", "val_score", "test_score", "bytes_up")
LONGEST_PARAMETER = 250


@dataclass(frozen=True)
class TrackedRun:
    """One finished cell, with any outcome.

    Attributes:
        cell: the cell id.
        name: a readable name, not unique.
        outcome: "ok", "diverged", ...
        parameters: values as text of at most 250 characters.
        metrics: final values of the protocol's reading, without nan.
        curves: per metric, pairs of round and value, without nan. Rounds count from 1, for readers of the store.
        seconds: training time since the start in seconds, by round; rounds count from 1.
        record: path of the cell's `run.json`; None if the cell was not trained here.
        total_seconds: duration of the training of the cell in seconds, with evaluation; 0 if unknown.
    """

    cell: str
    name: str
    outcome: str
    parameters: dict[str, str]
    metrics: dict[str, float]
    curves: dict[str, list[tuple[int, float]]]
    seconds: dict[int, float]
    record: Path | None
    total_seconds: float

    @property
    def fingerprint(self) -> str:
        """Hash of the content. It changes if the run is renamed or trained again with other numbers."""
        return fingerprint([self.name, self.outcome, self.parameters, self.metrics, self.curves], digits=16)


def tracked_runs(study: StudyRecord, results: Path, specs: Mapping[str, Any] | None = None) -> list[TrackedRun]:
    """Return all finished cells of a study.

    Args:
        study: the collected records.
        results: the results folder. Its folder `train/` holds the full settings of each cell that ran here.
        specs: specifications of the other cells, by cell id; None: there are none.

    Returns:
        Each cell once, in the order of the records.
    """
    finished = study.runs[study.runs["outcome"] != NOT_RUN]
    curves = dict(iter(study.curves.groupby("cell"))) if len(study.curves) else {}
    records = dict(run_records(results))
    return [
        _tracked(str(cell), rows, curves.get(cell), records.get(str(cell)), (specs or {}).get(str(cell)), study)
        for cell, rows in finished.groupby("cell", sort=False)
    ]


def run_records(results: Path) -> Iterator[tuple[str, tuple[Path, RunRecord]]]:
    """Read all run records.

    Unreadable records are skipped: they may belong to other studies, or a job may be replacing them.

    Args:
        results: the results folder.

    Yields:
        Pairs of a cell id, and the path of the record with the record.
    """
    for path in sorted(Path(results).glob(f"train/*/*/*/seed*/{RUN}")):
        with suppress(StorageError):
            record = RunRecord.read(path.parent)
            yield record.cell, (path, record)


def _tracked(
    cell: str,
    rows: pd.DataFrame,
    curve: pd.DataFrame | None,
    record: tuple[Path, RunRecord] | None,
    specs: dict[str, Any] | None,
    study: StudyRecord,
) -> TrackedRun:
    """Return the tracked run of one cell, from its rows in the tables."""
    placements = rows[[*FIELDS, "seed", "outcome"]].drop_duplicates()
    # A centralised cell has a placement in several columns of a table. It is one run, which names all of them.
    coordinates = {name: ", ".join(dict.fromkeys(map(str, placements[name].tolist()))) for name in FIELDS}
    seed, outcome = placements["seed"].tolist()[0], str(placements["outcome"].iloc[0])
    settings = record[1].settings if record else specs
    values = {**flat(settings), "config_hash": fingerprint(settings, digits=16)} if settings else {}
    metrics = dict(_metrics(rows, study.settings["protocol"]["reading"]))
    metric = study.metric_on(coordinates["dataset"])
    rounds = (
        pd.DataFrame(columns=["round", "train_seconds", *CURVES]) if curve is None else curve.drop_duplicates("round")
    )
    return TrackedRun(
        cell=cell,
        name=f"{coordinates['label']} {coordinates['backbone']} {coordinates['dataset']} seed {seed}",
        outcome=outcome,
        parameters={name: _short(value) for name, value in {**coordinates, "seed": seed, **values}.items()},
        metrics=metrics,
        curves={name.replace("score", metric): list(_points(rounds, name)) for name in CURVES},
        seconds=dict(_points(rounds, "train_seconds")),
        record=record[0] if record else None,
        total_seconds=metrics.get("total_seconds", 0.0),
    )


def _metrics(rows: pd.DataFrame, reading: str) -> Iterator[tuple[str, float]]:
    """Yield the scores of a reading, such as `test_accuracy_pooled`, and values of the run, such as `train_seconds`."""
    columns = [rows[name].tolist() for name in ("split", "reading", "mean", "metric", "value")]
    for split, scored_round, mean, metric, value in zip(*columns, strict=True):
        if scored_round in ("", reading) and not math.isnan(value):
            yield (f"{split}_{metric}_{mean}" if split else metric), float(value) + (metric == "selected_round")


def _points(rounds: pd.DataFrame, name: str) -> Iterator[tuple[int, float]]:
    """Yield the pairs of round and value of a curve, without nan; rounds count from 1."""
    for number, value in zip(rounds["round"].tolist(), rounds[name].tolist(), strict=True):
        if not math.isnan(value):
            yield int(number) + 1, float(value)


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the resolved settings of a cell.

    Args:
        settings: the specifications of the cell by part, as `run.json` holds them.

    Returns:
        The values by `<part>.<key>`, such as `method.mu` and `backbone.hidden`, and those of the protocol by `<key>`.
    """
    method, partition, prepared = (settings[part] for part in ("method", "partition", "prepared"))
    task = method.get("task", {"name": DEFAULT_TASK, "settings": {}})
    sections = {
        "dataset": settings["dataset"]["settings"],
        "scheme": partition["settings"],
        "split": partition["split"],
        "method": method["settings"],
        "backbone": method["backbone"]["settings"],
        "training": method["training"],
        "task": task["settings"],
    }
    values = {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
    protocol = {"task": task["name"], "evaluate": method["evaluate"]}
    protocol |= {name: prepared.get(name) for name in ("features", "setting")}
    return values | {key: value for key, value in protocol.items() if value is not None}


def _short(value: Any) -> str:
    """Return a value as text, cut to the longest allowed parameter."""
    text = str(value)
    return text if len(text) <= LONGEST_PARAMETER else text[: LONGEST_PARAMETER - 1] + "…"
