"""Compute the scores of stored predictions. The task's evaluator scores all methods alike. Torch is not needed."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fglbench.errors import StorageError
from fglbench.evaluation.client_means import ClientMeans, means, weighted_mean
from fglbench.partition.split import ROLES
from fglbench.records.checksums import check_file, check_listed
from fglbench.records.graph import read_labels
from fglbench.records.metrics import Metrics, Reading
from fglbench.records.run import NOT_RUN, PREDICTIONS, RUN, Outcome, RunRecord
from fglbench.records.split import SPLIT_ARRAYS, check_split, split_checksum
from fglbench.storage import MAKE_AGAIN, read_npz
from fglbench.tasks import task_of
from fglbench.tasks.base import Targets, Task

READINGS = ("val", "last", "test")

Arrays = dict[str, np.ndarray]


def evaluate(train_folder: Path, split_folder: Path, graph_folder: Path, seeds: list[int], folder: Path) -> None:
    """Write `seed<k>/metrics.json` for every seed of one method on one partition.

    Equal predictions give equal bytes, because no time, host or version is written. A run whose outcome is not "ok"
    gets its outcome and no readings.

    Args:
        train_folder: holds `seed<k>/run.json` and `seed<k>/predictions.npz`.
        split_folder: holds `seed<k>/split.npz` and its card.
        graph_folder: holds `graph.npz` and its card; only the labels are read.
        seeds: the seeds to evaluate.
        folder: where `seed<k>/metrics.json` is written.

    Raises:
        StorageError: a file is missing, does not match its recorded checksum, or does not fit the split.
    """
    labels = read_labels(Path(graph_folder))
    for seed in seeds:
        name = f"seed{seed}"
        evaluate_run(Path(train_folder) / name, Path(split_folder) / name, labels).write(Path(folder) / name)


def record_not_run(seeds: Mapping[int, str], folder: Path) -> None:
    """Write the `metrics.json` of seeds that could not be run: their outcome and the reason, without readings.

    Args:
        seeds: the reason, by seed.
        folder: where `seed<k>/metrics.json` is written.
    """
    for seed, reason in seeds.items():
        outcome = Outcome(state=NOT_RUN, round=None, reason=reason)
        Metrics(outcome=outcome, readings={}).write(Path(folder) / f"seed{seed}")


def evaluate_run(train_folder: Path, split_folder: Path, labels: np.ndarray) -> Metrics:
    """Compute the scores of one run.

    Args:
        train_folder: of the seed; holds `run.json` and `predictions.npz`.
        split_folder: of the seed; holds `split.npz` and its card.
        labels: [num_nodes] int64 classes of the whole graph, -1 for nodes without a label.

    Returns:
        The content of `metrics.json`; without readings unless the outcome is "ok".

    Raises:
        StorageError: a file is missing, does not match its recorded checksum, or does not fit the split.
    """
    run = RunRecord.read(train_folder)
    if run.outcome.state != "ok":
        return _metrics(run, {})
    # A job that retries the seed may replace the record of another outcome at any time, so only "ok" is checked.
    check_listed(train_folder / RUN)
    predicted = _read_predictions(train_folder, run.files)
    if run.split != split_checksum(split_folder):
        raise StorageError(
            f"{train_folder} was trained on another split than the present one in {split_folder}. Run the train stage "
            "again (snakemake --forcerun train_cell): it keeps the seeds whose split is unchanged."
        )
    check_split(split_folder)
    split = read_npz(split_folder / SPLIT_ARRAYS)
    if split["nodes"].size and split["nodes"].max() >= len(labels):
        raise StorageError(
            f"{split_folder / 'split.npz'} names node {split['nodes'].max()}, but the graph has {len(labels)} nodes. "
            f"The split belongs to another graph. {MAKE_AGAIN}"
        )
    global_test = run.settings["method"].get("global_test")
    task = task_of(run.settings["method"])
    targets = task.targets(split, labels)
    readings = {}
    for reading in READINGS:
        scores = _local(task, reading, predicted, targets, train_folder)
        if global_test:
            scores["global_test"] = _global(task, reading, predicted, split, labels, global_test, train_folder)
        if f"{reading}_weights" in predicted:
            _weigh(scores, predicted[f"{reading}_weights"])
        readings[reading] = Reading(round=int(predicted[f"{reading}_round"]), **scores)
    return _metrics(run, readings)


def _metrics(run: RunRecord, readings: dict[str, Reading]) -> Metrics:
    """Return the metrics record of a run with these readings."""
    return Metrics(
        cell=run.cell, outcome=run.outcome, bytes_up=run.bytes_up, bytes_down=run.bytes_down, readings=readings
    )


def _weigh(scores: dict[str, dict[str, ClientMeans]], weights: np.ndarray) -> None:
    """Add `weighted` to every entry: the mean with the clients' weights at the server (Fed-GALA, section 5.1)."""
    for entries in scores.values():
        for entry in entries.values():
            entry["weighted"] = weighted_mean(entry["clients"], weights.tolist())


def _local(
    task: Task, reading: str, predicted: Arrays, targets: Targets, train_folder: Path
) -> dict[str, dict[str, ClientMeans]]:
    """Score every client's model on the targets of its own graph, by role."""
    _check_length(train_folder, reading, predicted[reading], len(targets.truth))
    logits = predicted.get(f"{reading}_logits")
    return {
        name: task.scores(predicted[reading], logits, targets, targets.role == role) for name, role in ROLES.items()
    }


def _global(
    task: Task, reading: str, predicted: Arrays, split: Arrays, labels: np.ndarray, kind: str, train_folder: Path
) -> dict[str, ClientMeans]:
    """Score every client's model on the same M nodes.

    The predictions are [G, M] or [G, M, ...] for G models; G = 1 if all clients have the same model.
    """
    tested = np.unique(split["nodes"][split["role"] == ROLES["test"]]) if kind == "whole" else split["held_out"]
    if kind == "held_out":
        tested = tested[labels[tested] >= 0]
    classes, logits = predicted[f"{reading}_global"], predicted.get(f"{reading}_global_logits")
    _check_length(train_folder, f"{reading}_global", classes[0], len(tested))
    models, clients = len(classes), len(split["ptr"]) - 1
    flat = None if logits is None else logits.reshape(models * len(tested), -1)
    rows, role = np.arange(models + 1) * len(tested), np.full(models * len(tested), ROLES["test"])
    targets = Targets(np.tile(labels[tested], models), rows, role)
    entries = task.scores(classes.reshape(-1, *classes.shape[2:]), flat, targets, role == ROLES["test"])
    return {
        name: means(entry["pooled"], entry["clients"] * (clients // models), entry["nodes"] * (clients // models))
        for name, entry in entries.items()
    }


def _check_length(train_folder: Path, name: str, predicted: np.ndarray, expected: int) -> None:
    """Refuse predictions whose number differs from the number of targets."""
    if len(predicted) != expected:
        raise StorageError(
            f"{train_folder / 'predictions.npz'}: '{name}' has {len(predicted)} entries, but the split has "
            f"{expected}. The run belongs to another split: remove its folder and run the train stage "
            "again."
        )


def _read_predictions(folder: Path, files: dict[str, str]) -> dict[str, np.ndarray]:
    """Load `predictions.npz` of a run, after comparing it with its checksum in the record."""
    path = folder / PREDICTIONS
    if path.name not in files or not path.exists():
        raise StorageError(f"{path} is missing although run.json says 'ok'. {MAKE_AGAIN}")
    check_file(path, files[path.name], folder / RUN)
    return read_npz(path)
