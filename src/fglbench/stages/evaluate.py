"""The evaluate stage: scores of stored predictions, by one evaluator for all methods. Needs numpy only."""

from pathlib import Path
from typing import Any

import numpy as np

from fglbench.errors import StorageError
from fglbench.evaluation.metrics import scores
from fglbench.storage import MAKE_AGAIN, hash_file, read_json, read_npz, write_json

READINGS = ("val", "last", "test")
ROLES = {"train": 1, "val": 2, "test": 3}


def evaluate(train_folder: Path, split_folder: Path, graph_folder: Path, seeds: list[int], folder: Path) -> None:
    """Writes `seed<k>/metrics.json` for every seed of one method on one partition.

    Equal predictions give equal bytes: no time, host or version is written. A run whose outcome is not ok gets its
    outcome and no readings.

    Args:
        train_folder: holds `seed<k>/run.json` and `seed<k>/predictions.npz`.
        split_folder: holds `seed<k>/split.npz`.
        graph_folder: holds `graph.npz`, of which only the labels are read.
        seeds: the seeds to evaluate.
        folder: where `seed<k>/metrics.json` goes.

    Raises:
        StorageError: a file is missing, does not match its recorded checksum, or does not fit the split.
    """
    labels = read_npz(Path(graph_folder) / "graph.npz", ["labels"])["labels"]
    for seed in seeds:
        name = f"seed{seed}"
        metrics = evaluate_run(Path(train_folder) / name, Path(split_folder) / name, labels)
        write_json(Path(folder) / name / "metrics.json", metrics)


def evaluate_run(train_folder: Path, split_folder: Path, labels: np.ndarray) -> dict[str, Any]:
    """The content of `metrics.json` for one run; `labels` [nodes of the whole graph] int64. Raises as `evaluate`."""
    run = read_json(train_folder / "run.json")
    metrics = {
        "cell": run["cell"],
        "outcome": run["outcome"],
        "bytes_up": run.get("bytes_up"),
        "bytes_down": run.get("bytes_down"),
        "readings": {},
    }
    if run["outcome"]["state"] != "ok":
        return metrics
    predictions = _read_predictions(train_folder, run["files"])
    if run["split"] != read_json(split_folder / "card.json")["sha256"]:
        raise StorageError(
            f"{train_folder} was trained on another split than the one in {split_folder}, which was made anew since. "
            "Run the train stage again (snakemake --forcerun train_cell): it keeps what still fits."
        )
    split = read_npz(split_folder / "split.npz", ["nodes", "ptr", "role"])
    if split["nodes"].size and split["nodes"].max() >= len(labels):
        raise StorageError(
            f"{split_folder / 'split.npz'} names node {split['nodes'].max()}, but the graph has {len(labels)} nodes. "
            f"The split belongs to another graph. {MAKE_AGAIN}"
        )
    client_labels = labels[split["nodes"]]
    for reading in READINGS:
        predicted = predictions[reading]
        if len(predicted) != len(client_labels):
            raise StorageError(
                f"{train_folder / 'predictions.npz'}: '{reading}' has {len(predicted)} nodes, but the split has "
                f"{len(client_labels)}. The run belongs to another split: remove its folder and run the train stage "
                "again."
            )
        metrics["readings"][reading] = {
            "round": int(predictions[f"{reading}_round"]),
            **{
                name: scores(predicted, client_labels, split["ptr"], split["role"] == role)
                for name, role in ROLES.items()
            },
        }
    return metrics


def _read_predictions(folder: Path, files: dict[str, str]) -> dict[str, np.ndarray]:
    path = folder / "predictions.npz"
    if path.name not in files or not path.exists():
        raise StorageError(f"{path} is missing although run.json says 'ok'. {MAKE_AGAIN}")
    found = hash_file(path)
    if found != files[path.name]:
        raise StorageError(
            f"{path} does not match its checksum in run.json (expected {files[path.name]}, found {found}): it was "
            f"altered or only partly copied. {MAKE_AGAIN}"
        )
    return read_npz(path, [name for reading in READINGS for name in (reading, f"{reading}_round")])
