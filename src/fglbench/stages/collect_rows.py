"""Rows of the frames that the collect stage writes, each from the records of one placement or partition."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fglbench.config.expand import Expansion, Placement
from fglbench.evaluation.client_means import ClientMeans, value_of
from fglbench.partition.card import PartitionCard
from fglbench.records.archive import Archive
from fglbench.records.checksums import check_file, check_listed
from fglbench.records.metrics import Metrics
from fglbench.records.run import HISTORY, MIXING, NOT_RUN, RUN, Outcome, RunRecord
from fglbench.records.split import SPLIT_CARD, read_split_card
from fglbench.records.study import PROBLEM
from fglbench.storage import read_npz
from fglbench.tasks import task_of

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


@dataclass(frozen=True)
class Finished:
    """The records of a cell whose outcome is known.

    Attributes:
        metrics: the scores of the cell.
        run: the record of the training; None if the outcome is `not_run`.
    """

    metrics: Metrics
    run: RunRecord | None


def partition_coordinates(placement: Placement) -> dict[str, Any]:
    """Return the columns that identify a partition, apart from its seed.

    Args:
        placement: a cell in its study.

    Returns:
        Dataset, scheme and clients.
    """
    return {name: getattr(placement, name) for name in PROBLEM}


def coordinates(placement: Placement) -> dict[str, Any]:
    """Return the columns that all rows of a placement share.

    Args:
        placement: a cell in its study.

    Returns:
        Dataset, scheme, clients, method, backbone, label, seed and cell, and the axes of training.
    """
    return {
        **partition_coordinates(placement),
        "method": placement.method,
        "backbone": placement.backbone,
        "label": placement.label,
        "seed": placement.cell.seed,
        "cell": placement.cell.id,
        "participation": placement.cell.method.spec["training"]["participation"],
        "local_epochs": placement.cell.method.spec["training"]["local_epochs"],
    }


def run_rows(placement: Placement, finished: Finished | None, reason: str | None = None) -> Iterator[dict[str, Any]]:
    """Return the rows of `runs.parquet` for one placement.

    Args:
        placement: a cell in its study.
        finished: the records of the cell; None: it has none.
        reason: why the cell has no records; None: there is no reason to show.

    Yields:
        One row for each split, reading, client mean and metric; a single row if the outcome is not "ok".
    """
    outcome = finished.metrics.outcome if finished else Outcome(state=NOT_RUN, reason=reason)
    run = finished.run if finished else None
    common = {
        **coordinates(placement),
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
    if finished is None or run is None or outcome.state != "ok":
        yield {**common, "metric": "outcome", "value": np.nan}
        return
    for metric in (name for name in _RUN_METRICS if getattr(run, name) is not None):
        yield {**common, "metric": metric, "value": getattr(run, metric)}
    for metric in ("bytes_up", "bytes_down"):
        yield {**common, "metric": metric, "value": getattr(finished.metrics, metric)}
    if run.client_rounds:
        yield {**common, "metric": "client_rounds", "value": float(np.mean(run.client_rounds))}
    for name, reading in finished.metrics.readings.items():
        for split, metrics in reading.splits():
            for metric, means in metrics.items():
                counts = {"evaluated": means["evaluated"], "of": means["of"]}
                for mean, value in _client_means(means):
                    score = {"split": split, "reading": name, "mean": mean, "metric": metric, "value": value}
                    yield {**common, **counts, **score}


def _client_means(means: ClientMeans) -> Iterator[tuple[str, float]]:
    """Yield the client means of an entry by name, with nan if no client has a value."""
    optional = {"nodes": "node_mean", "weighted": "weighted"}
    for mean in ("pooled", "macro", *(mean for mean, key in optional.items() if key in means)):
        value = value_of(means, mean)
        yield mean, np.nan if value is None else value


def curve(placement: Placement, finished: Finished | None, results: Path) -> list[pd.DataFrame]:
    """Return the training curve of one placement.

    Args:
        placement: a cell in its study.
        finished: the records of the cell; None: it has none.
        results: the results folder.

    Returns:
        One frame with a row for every round; an empty list if no round was recorded.

    Raises:
        StorageError: a file is missing, or does not match its checksum.
    """
    path = results / placement.cell.folder("train") / HISTORY
    if finished is None or finished.run is None or not path.exists():
        return []
    history = _arrays(path, finished.run)
    if not len(history["round"]):  # the run diverged in the first round
        return []
    split = results / placement.cell.folder("split")
    check_listed(split / SPLIT_CARD)
    card, spec = read_split_card(split), placement.cell.method.spec
    task, counts = task_of(spec), {"val": card["val"], "test": card["test"]}
    scores = {
        f"{role}_score": task.score(history, role, np.asarray(of_clients), spec["mean"])
        for role, of_clients in counts.items()
    }
    losses = np.ma.masked_invalid(history["train_loss"]).mean(axis=1).filled(np.nan)
    frame = pd.DataFrame(
        {
            **coordinates(placement),
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


def mixing(placement: Placement, finished: Finished | None, results: Path, reading: str) -> list[pd.DataFrame]:
    """Return the mixing weights that each client received in the round of a reading.

    Args:
        placement: a cell in its study.
        finished: the records of the cell; None: it has none.
        results: the results folder.
        reading: name of the reading.

    Returns:
        One frame with a row for every client; an empty list if that round has no recorded weights.

    Raises:
        StorageError: a file is missing, or does not match its checksum.
    """
    path = results / placement.cell.folder("train") / MIXING
    if finished is None or finished.run is None or finished.metrics.outcome.state != "ok" or not path.exists():
        return []
    stored = _arrays(path, finished.run)
    number = finished.metrics.readings[reading].round
    matrices = stored["mixing"][stored["rounds"] == number]
    common = coordinates(placement)
    return [
        pd.DataFrame({"client": range(len(matrix)), "weights": list(matrix)}).assign(round=number, **common)
        for matrix in matrices
    ]


def _arrays(path: Path, run: RunRecord) -> dict[str, np.ndarray]:
    """Load an .npz file beside the record of a run, after comparing it with its checksum in the record."""
    check_file(path, run.files.get(path.name, "none"), path.with_name(RUN))
    return read_npz(path)


def partitions(expansion: Expansion, results: Path, archive: Archive) -> pd.DataFrame:
    """Return the clients of all partitions of a study.

    Args:
        expansion: the placements and cells of the study.
        results: the results folder.
        archive: the partitions of reused cells.

    Returns:
        One row for every partition, seed and client.

    Raises:
        StorageError: a partition card does not match its checksum.
    """
    frames: dict[str, pd.DataFrame] = {}
    for placement in expansion.placements:
        split = placement.cell.folder("split")
        if split in frames or placement.cell.partition.spec["scheme"] == "whole":
            continue
        common = {**partition_coordinates(placement), "seed": placement.cell.seed, "split": split}
        folder = results / split
        if (folder / SPLIT_CARD).exists():
            check_listed(folder / SPLIT_CARD)
            frames[split] = pd.DataFrame(_client_columns(read_split_card(folder))).assign(**common)
        elif split in archive.partitions:
            frames[split] = archive.partitions[split].assign(**common)
    return pd.concat(frames.values()) if frames else pd.DataFrame()


def _client_columns(card: PartitionCard) -> dict[str, Any]:
    """Return the columns of the frame with one row for every client, from the partition card."""
    columns: dict[str, Any] = {
        "client": range(len(card["nodes"])),
        "nodes": card["nodes"],
        "edges": card["edges"],
        "classes": card["classes"],
        "train": card["train"],
        "val": card["val"],
        "test": card["test"],
    }
    if "communities" in card:
        columns["communities"] = card["communities"]
    if "anchors" in card:
        columns["anchors"] = card["anchors"]
    return columns | {"cut_edges": card["cut_edges"], "cosine_distance": card["cosine_distance"]}
