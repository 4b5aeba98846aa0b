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
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fglbench import __version__
from fglbench.config.entries import component_settings, seed_list, selected
from fglbench.config.expand import Expansion, Placement, dataset_part, other_protocols
from fglbench.config.identity import Cell
from fglbench.config.merge import grids_of, tasks_shown
from fglbench.config.schema import Protocol, Study
from fglbench.datasets import catalogue
from fglbench.evaluation.metrics import value_of
from fglbench.partition.split import OF_ANY_TASK
from fglbench.records.archive import Archive, load_archives
from fglbench.records.checksums import check_file, check_listed
from fglbench.records.metrics import EVALUATE_VERSION, METRICS, Means, Metrics
from fglbench.records.run import NOT_RUN, RECORD, Outcome, RunRecord
from fglbench.records.study import STUDY
from fglbench.stages.drawings import drawings
from fglbench.storage import read_json, read_npz, replacing, write_json
from fglbench.tasks import has_own_roles, metrics_of, selecting_metric, targets_of, task_of

RUN_COLUMNS = {
    "dataset": "str",
    "scheme": "str",
    "clients": "int64",
    "method": "str",
    "backbone": "str",
    "label": "str",
    "seed": "int64",
    "split": "str",
    "reading": "str",
    "mean": "str",
    "metric": "str",
    "value": "float64",
    "evaluated": "int64",
    "of": "int64",
    "device": "str",
    "outcome": "str",
    "outcome_round": "float64",
    "reason": "str",
    "cell": "str",
    "participation": "float64",
    "local_epochs": "int64",
}
_RUN_METRICS = (
    "train_seconds",
    "server_seconds",
    "eval_seconds",
    "total_seconds",
    "peak_memory_mb",
    "selected_round",
    "rounds_run",
    "privacy_budget",
)


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
    reused = {cell.id: reused[cell.id] for cell in expansion.cells if reused and cell.id in reused}
    archive = load_archives(sorted(set(reused.values())))
    loaded = {cell.id: _load(cell, results) for cell in expansion.cells if cell.id not in reused}
    runs: list[pd.DataFrame] = []
    curves: list[pd.DataFrame] = []
    mixing: list[pd.DataFrame] = []
    rows: list[dict[str, Any]] = []
    for placement in expansion.placements:
        if placement.cell.id in reused:
            runs.append(archive.runs[placement.cell.id].assign(**_place(placement)))
            curves += [found.assign(**_place(placement)) for found in _found(archive.curves, placement.cell.id)]
            weights = archive.mixing_at(placement.cell.id, expansion.study.protocol.reading)
            mixing += [found.assign(**_place(placement)) for found in weights]
        else:
            record = loaded[placement.cell.id]
            rows += _run_rows(placement, record, (not_run or {}).get(placement.cell.dataset.slug))
            curves += _curve(placement, record, results)
            mixing += _mixing(placement, record, results, expansion.study.protocol.reading)
    own = pd.DataFrame(rows, columns=list(RUN_COLUMNS)).astype(RUN_COLUMNS)
    _write_parquet(folder / "runs.parquet", pd.concat([*runs, own])[list(RUN_COLUMNS)])
    _write_parquet(folder / "curves.parquet", pd.concat(curves or [pd.DataFrame()]))
    _write_parquet(folder / "mixing.parquet", pd.concat(mixing or [pd.DataFrame()]))
    _write_parquet(folder / "partitions.parquet", _partitions(expansion, results, archive))
    _write_parquet(folder / "drawings.parquet", drawings(expansion, results, archive.drawings))
    outcomes = Counter(str(own.metrics.outcome.state) if own else NOT_RUN for own in loaded.values())
    outcomes += Counter(archive.runs[cell]["outcome"].iloc[0] for cell in reused)
    write_json(folder / STUDY, _study(expansion, name, results, loaded, archive, dict(outcomes), len(reused)))
    return dict(outcomes)


def _found(frames: Mapping[str, pd.DataFrame], key: str) -> list[pd.DataFrame]:
    """Return the frame of a key in a list, or an empty list if the key is missing."""
    return [frames[key]] if key in frames else []


@dataclass(frozen=True)
class Finished:
    """The records of a cell whose outcome is known.

    Attributes:
        metrics: the scores of the cell.
        run: the record of the training; None if the outcome is `not_run`.
    """

    metrics: Metrics
    run: RunRecord | None


def _load(cell: Cell, results: Path) -> Finished | None:
    """Load the records of a cell; None if the cell has no `metrics.json`."""
    metrics, run = results / cell.folder("evaluate"), results / cell.folder("train")
    if not (metrics / METRICS).exists():
        return None
    found = Metrics.read(metrics)
    # A job that retries the seed may replace the record of another outcome at any time, so only "ok" is checked.
    if found.outcome.state == "ok":
        check_listed(metrics / METRICS)
        check_listed(run / RECORD)
    return Finished(found, RunRecord.read(run) if found.outcome.state != NOT_RUN else None)


def _place(placement: Placement) -> dict[str, Any]:
    """Return the columns that all rows of a placement share."""
    return {
        "dataset": placement.dataset,
        "scheme": placement.scheme,
        "clients": placement.clients,
        "method": placement.method,
        "backbone": placement.backbone,
        "label": placement.label,
        "seed": placement.cell.seed,
        "cell": placement.cell.id,
        "participation": placement.cell.method.spec["training"]["participation"],
        "local_epochs": placement.cell.method.spec["training"]["local_epochs"],
    }


def _run_rows(placement: Placement, found: Finished | None, reason: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of `runs.parquet` for one placement."""
    outcome = found.metrics.outcome if found else Outcome(state=NOT_RUN, reason=reason)
    run = found.run if found else None
    common = {
        **_place(placement),
        "split": "",
        "reading": "",
        "mean": "",
        "evaluated": 0,
        "of": 0,
        "device": str(run.device) if run and run.device else "",
        "outcome": outcome.state,
        "outcome_round": np.nan if outcome.round is None else outcome.round,
        "reason": outcome.reason or "",
    }
    if found is None or run is None or outcome.state != "ok":
        yield {**common, "metric": "outcome", "value": np.nan}
        return
    for metric in (name for name in _RUN_METRICS if getattr(run, name) is not None):
        yield {**common, "metric": metric, "value": getattr(run, metric)}
    for metric in ("bytes_up", "bytes_down"):
        yield {**common, "metric": metric, "value": getattr(found.metrics, metric)}
    if run.client_rounds:
        yield {**common, "metric": "client_rounds", "value": float(np.mean(run.client_rounds))}
    for name, reading in found.metrics.readings.items():
        for split, metrics in reading.splits():
            for metric, means in metrics.items():
                counts = {"evaluated": means["evaluated"], "of": means["of"]}
                for mean, value in _client_means(means):
                    at = {"split": split, "reading": name, "mean": mean}
                    yield {**common, **at, **counts, "metric": metric, "value": value}


def _client_means(means: Means) -> Iterator[tuple[str, float]]:
    """Yield the client means of an entry by name, with nan if no client has a value."""
    of_some = {"nodes": "node_mean", "weighted": "weighted"}
    for mean in ("pooled", "macro", *(mean for mean, key in of_some.items() if key in means)):
        value = value_of(means, mean)
        yield mean, np.nan if value is None else value


def _curve(placement: Placement, found: Finished | None, results: Path) -> list[pd.DataFrame]:
    """Return one frame with a row for every round; an empty list if no round was recorded."""
    path = results / placement.cell.folder("train") / "history.npz"
    if found is None or found.run is None or not path.exists():
        return []
    history = _arrays(path, found.run)
    if not len(history["round"]):  # the run diverged in the first round
        return []
    split_card = results / placement.cell.folder("split") / "card.json"
    check_listed(split_card)
    card, spec = read_json(split_card), placement.cell.method.spec
    task = task_of(spec)
    scores = {
        f"{role}_score": task.score(history, role, np.asarray(card[role]), spec["mean"]) for role in ("val", "test")
    }
    losses = np.ma.masked_invalid(history["train_loss"]).mean(axis=1).filled(np.nan)
    frame = pd.DataFrame(
        {
            **_place(placement),
            "round": history["round"],
            "train_seconds": history["train_seconds"],
            "bytes_up": history["bytes_up"],
            "bytes_down": history["bytes_down"],
            **scores,
            "train_loss": losses,
        }
    )
    phased = "phase" in history and len(np.unique(history["phase"])) > 1
    return [frame.assign(phase=history["phase"]) if phased else frame]


def _mixing(placement: Placement, found: Finished | None, results: Path, reading: str) -> list[pd.DataFrame]:
    """Return one frame with the mixing weights that each client received in the round of the reading.

    Return an empty list if that round has no recorded weights.
    """
    path = results / placement.cell.folder("train") / "mixing.npz"
    if found is None or found.run is None or found.metrics.outcome.state != "ok" or not path.exists():
        return []
    stored = _arrays(path, found.run)
    number = found.metrics.readings[reading].round
    matrices = stored["mixing"][stored["rounds"] == number]
    place = _place(placement)
    return [
        pd.DataFrame({"client": range(len(matrix)), "weights": list(matrix)}).assign(round=number, **place)
        for matrix in matrices
    ]


def _arrays(path: Path, run: RunRecord) -> dict[str, np.ndarray]:
    """Load an .npz file beside the record of a run, after comparing it with its checksum in the record."""
    check_file(path, run.files.get(path.name, "none"), path.with_name(RECORD))
    return read_npz(path)


def _partitions(expansion: Expansion, results: Path, archive: Archive) -> pd.DataFrame:
    """Return one row for every client of every partition and seed."""
    frames: dict[str, pd.DataFrame] = {}
    for placement in expansion.placements:
        split = placement.cell.folder("split")
        if split in frames or placement.cell.partition.spec["scheme"] == "whole":
            continue
        place: dict[str, Any] = {"dataset": placement.dataset, "scheme": placement.scheme, "clients": placement.clients}
        place |= {"seed": placement.cell.seed, "split": split}
        path = results / split / "card.json"
        if path.exists():
            check_listed(path)
            frames[split] = pd.DataFrame(_client_rows(read_json(path))).assign(**place)
        elif split in archive.partitions:
            frames[split] = archive.partitions[split].assign(**place)
    return pd.concat(frames.values()) if frames else pd.DataFrame()


def _client_rows(card: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row for every client, from the partition card."""
    per_client = ["nodes", "edges", "classes", "train", "val", "test"]
    per_client += [name for name in ("communities", "anchors") if name in card]
    return [
        {
            "client": client,
            **{name: card[name][client] for name in per_client},
            "cut_edges": card["cut_edges"],
            "cosine_distance": card["cosine_distance"],
        }
        for client in range(len(card["nodes"]))
    ]


def _open_keys(study: Study, asked: dict[str, Any]) -> dict[str, str]:
    """Return the default reading, mean and score for a table or figure that does not set them."""
    (task, *_) = tasks_shown(study, asked["where"].get("dataset"))
    return {"reading": study.protocol.reading, "mean": study.protocol.mean, "metric": selecting_metric(task)}


def _drawn(study: Study, figure: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a figure, with defaults for the keys that it does not set."""
    keys = _open_keys(study, figure)
    return {**figure, **keys, "metric": figure["metric"] or keys["metric"]}


def _resolved(study: Study, table: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a table, with defaults for the keys that it does not set."""
    found = {**table, **{key: table[key] or value for key, value in _open_keys(study, table).items()}}
    tasks = tasks_shown(study, table["where"].get("dataset"))
    better = found["better"] or next(filter(None, (metrics_of(task).get(found["metric"]) for task in tasks)), None)
    return {**found, "better": better, "targets": " or ".join(dict.fromkeys(map(targets_of, tasks)))}


def _told(protocol: Protocol) -> dict[str, Any]:
    """Return the protocol settings that captions show.

    If the task draws its own roles, its own settings are added, and the split settings that only node roles use are
    left out.
    """
    values, task = protocol.model_dump(), protocol.task
    if not has_own_roles(task.name):
        return values
    settings = component_settings("task", task).model_dump()
    split = {name: value for name, value in values["split"].items() if name in OF_ANY_TASK}
    return {**values, "task": {**values["task"], **settings}, "split": split}


def _study(
    expansion: Expansion,
    name: str,
    results: Path,
    loaded: dict[str, Finished | None],
    archive: Archive,
    outcomes: dict[str, int],
    reused: int,
) -> dict[str, Any]:
    """Return the content of `study.json`."""
    study = expansion.study.model_dump()
    runs = [own.run for own in loaded.values() if own and own.run]
    used = [run.versions | ({"mode": run.mode} if run.mode else {}) for run in runs]
    used += [settings["versions"] for settings in archive.studies]
    versions = {
        name: ", ".join(sorted({text for run in used if name in run for text in run[name].split(", ")}))
        for name in sorted({name for run in used for name in run})
    }
    devices = {str(run.device) for run in runs if run.device}
    devices |= {device for settings in archive.studies for device in settings["hardware"]["devices"]}
    cores = [run.cores for run in runs] + [settings["hardware"]["cores"] for settings in archive.studies]
    tables = [_resolved(expansion.study, table) for table in study.pop("tables")]
    figures = [_drawn(expansion.study, figure) for figure in study.pop("figures")]
    return {
        "name": name,
        "title": study["title"],
        "notes": study["notes"],
        "reference": study["reference"],
        "protocol": _told(expansion.study.protocol),
        "metric": selecting_metric(expansion.study.protocol.task.name),
        "metrics": {label: selecting_metric(own.task.name) for label, own in other_protocols(expansion.study).items()},
        "protocols": {label: _told(own) for label, own in other_protocols(expansion.study).items()},
        "training": study["training"],
        "settings": study,
        "tables": tables,
        "figures": figures,
        "sizes": _sizes(expansion, results),
        "order": expansion.order,
        "names": expansion.names,
        "printed": expansion.printed,
        "seeds": _seeds(expansion.study),
        "cells": len(expansion.cells),
        "outcomes": outcomes,
        "published": reused,
        "evaluate_version": EVALUATE_VERSION,
        "centralised": sorted({p.method for p in expansion.placements if p.cell.partition.spec["scheme"] == "whole"}),
        "versions": versions or {"fglbench": __version__},
        "hardware": {"devices": sorted(devices), "cores": max(filter(None, cores), default=None)},
    }


def _sizes(expansion: Expansion, results: Path) -> dict[str, dict[str, int]]:
    """Return the catalogue's counts of every dataset, by label.

    A dataset with announced counts has its number of edges from its data card, and no number before the card exists.
    """
    found = {}
    for label, entry in selected(expansion.study.datasets, None):
        found[label] = asdict(catalogue.get(entry.name).counts_for(entry.settings))
        if catalogue.get(entry.name).announced is not None:
            del found[label]["edges"]
            card = results / "download" / dataset_part(entry).slug / "graph.json"
            if card.exists():
                found[label]["edges"] = read_json(card)["edges"]
    return found


def _seeds(study: Study) -> list[int]:
    """Return the seeds of every cell; an empty list if the grids have different seeds."""
    own = {tuple(seed_list(study.seeds if grid.seeds is None else grid.seeds)) for grid in grids_of(study)}
    return list(own.pop()) if len(own) == 1 else []


def _write_parquet(path: Path, frame: pd.DataFrame) -> None:
    """Write a frame as Parquet, and replace an older file only when the new one is complete."""
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False)
