"""What a tracking store is told of each finished cell: parameters, final metrics and curves, from a study's records."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fglbench.errors import StorageError
from fglbench.records.run import RECORD, RunRecord
from fglbench.records.study import FIELDS, StudyRecord
from fglbench.storage import fingerprint
from fglbench.tasks import DEFAULT_TASK

NOT_RUN = "not_run"
CURVES = ("train_loss", "val_score", "test_score", "bytes_up")
LONGEST_PARAMETER = 250


@dataclass(frozen=True)
class TrackedRun:
    """One finished cell, whatever its outcome.

    Attributes:
        cell: its id.
        name: for people; not unique.
        outcome: "ok", "diverged", ...
        parameters: short texts.
        metrics: final values of the protocol's reading, none of them nan.
        curves: per metric, (round, value) pairs without nan. A store is for people: its rounds count from 1.
        seconds: of training since its start, by round.
        record: the cell's `run.json`, or None where only the tables are there.
        total_seconds: of the training job.
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
        """Equal for equal content; a run that was trained anew, or renamed, has another."""
        return fingerprint([self.name, self.outcome, self.parameters, self.metrics, self.curves], digits=16)


def tracked_runs(study: StudyRecord, results: Path, specs: Mapping[str, Any] | None = None) -> list[TrackedRun]:
    """All finished cells of a study, each once, in the order of the records.

    Args:
        study: the collected records.
        results: the results folder; `train/` below it holds the full settings of each cell that ran here.
        specs: those of the others, by cell id.
    """
    finished = study.runs[study.runs["outcome"] != NOT_RUN]
    curves = dict(iter(study.curves.groupby("cell"))) if len(study.curves) else {}
    records = dict(_records(results))
    return [
        _tracked(str(cell), rows, curves.get(cell), records.get(str(cell)), (specs or {}).get(str(cell)), study)
        for cell, rows in finished.groupby("cell", sort=False)
    ]


def _records(results: Path) -> Iterator[tuple[str, tuple[Path, RunRecord]]]:
    """The records of all runs there; those of other studies may be damaged, or be replaced just now."""
    for path in sorted(Path(results).glob(f"train/*/*/*/seed*/{RECORD}")):
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
    places = list(rows[[*FIELDS, "seed", "outcome"]].drop_duplicates().itertuples(index=False))
    # A centralised cell stands in several columns of a table: it is one run, which names them all.
    place = {name: ", ".join(dict.fromkeys(str(getattr(at, name)) for at in places)) for name in FIELDS}
    seed, outcome = places[0].seed, str(places[0].outcome)
    settings = record[1].settings if record else specs
    known = {**flat(settings), "config_hash": fingerprint(settings, digits=16)} if settings else {}
    metrics, metric = dict(_metrics(rows, study.settings["protocol"]["reading"])), study.metric_on(place["dataset"])
    rounds = (
        pd.DataFrame(columns=["round", "train_seconds", *CURVES]) if curve is None else curve.drop_duplicates("round")
    )
    return TrackedRun(
        cell=cell,
        name=f"{place['label']} {place['backbone']} {place['dataset']} seed {seed}",
        outcome=outcome,
        parameters={name: _short(value) for name, value in {**place, "seed": seed, **known}.items()},
        metrics=metrics,
        curves={name.replace("score", metric): list(_points(rounds, name)) for name in CURVES},
        seconds=dict(_points(rounds, "train_seconds")),
        record=record[0] if record else None,
        total_seconds=metrics.get("total_seconds", 0.0),
    )


def _metrics(rows: pd.DataFrame, reading: str) -> Iterator[tuple[str, float]]:
    """`test_accuracy_pooled` and the like, and the values of the whole run, such as `train_seconds`."""
    columns = [rows[name].tolist() for name in ("split", "reading", "mean", "metric", "value")]
    for split, at, mean, metric, value in zip(*columns, strict=True):
        if at in ("", reading) and not math.isnan(value):
            yield (f"{split}_{metric}_{mean}" if split else metric), float(value) + (metric == "selected_round")


def _points(rounds: pd.DataFrame, name: str) -> Iterator[tuple[int, float]]:
    for number, value in zip(rounds["round"].tolist(), rounds[name].tolist(), strict=True):
        if not math.isnan(value):
            yield int(number) + 1, float(value)


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved settings of a cell as `run.json` keeps them, as one level: `method.mu`, `backbone.hidden`, ..."""
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
    text = str(value)
    return text if len(text) <= LONGEST_PARAMETER else text[: LONGEST_PARAMETER - 1] + "…"
