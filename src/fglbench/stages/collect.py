"""Stage collect: the records of a study's cells as tidy tables, the only input of tables, figures and report.

`runs.parquet` has one row per placement, split, reading, client mean and metric; `curves.parquet` one per round;
`partitions.parquet` one per client; `study.json` what the study asked for and what it ran on.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fglbench import __version__
from fglbench.config.expand import Expansion, Placement, seed_list
from fglbench.config.identity import Cell
from fglbench.storage import read_json, read_npz, replacing, write_json

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
}
_RUN_METRICS = ("train_seconds", "eval_seconds", "total_seconds", "peak_memory_mb", "selected_round")


def collect(expansion: Expansion, name: str, results: Path, folder: Path) -> dict[str, int]:
    """Writes the four files of a study.

    Args:
        expansion: the study's cells.
        name: of the study.
        results: the results folder.
        folder: where to write.

    Returns:
        The number of cells per outcome; cells without a record count as `not_run`.
    """
    loaded = {cell.id: _load(cell, results) for cell in expansion.cells}
    cells = [(placement, loaded[placement.cell.id]) for placement in expansion.placements]
    runs = pd.DataFrame(
        [row for placement, record in cells for row in _run_rows(placement, record)], columns=list(RUN_COLUMNS)
    ).astype(RUN_COLUMNS)
    curves = pd.concat(
        [frame for placement, record in cells if (frame := _curve(placement, record, results)) is not None]
        or [pd.DataFrame()]
    )
    _write_parquet(folder / "runs.parquet", runs)
    _write_parquet(folder / "curves.parquet", curves)
    _write_parquet(folder / "partitions.parquet", pd.DataFrame(list(_partition_rows(expansion, results))))
    outcomes = Counter(record["metrics"]["outcome"]["state"] if record else "not_run" for record in loaded.values())
    write_json(folder / "study.json", _study(expansion, name, loaded, dict(outcomes)))
    return dict(outcomes)


def _load(cell: Cell, results: Path) -> dict[str, Any] | None:
    metrics = results / cell.folder("evaluate") / "metrics.json"
    if not metrics.exists():
        return None
    return {"metrics": read_json(metrics), "run": read_json(results / cell.folder("train") / "run.json")}


def _place(placement: Placement) -> dict[str, Any]:
    return {
        "dataset": placement.dataset,
        "scheme": placement.scheme,
        "clients": placement.clients,
        "method": placement.method,
        "backbone": placement.backbone,
        "label": placement.label,
        "seed": placement.cell.seed,
        "cell": placement.cell.id,
    }


def _run_rows(placement: Placement, record: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    outcome = record["metrics"]["outcome"] if record else {"state": "not_run", "round": None, "reason": None}
    device = (record["run"]["device"] or {}).get("type", "") if record else ""
    common = {
        **_place(placement),
        "split": "",
        "reading": "",
        "mean": "",
        "evaluated": 0,
        "of": 0,
        "device": device,
        "outcome": outcome["state"],
        "outcome_round": np.nan if outcome["round"] is None else outcome["round"],
        "reason": outcome["reason"] or "",
    }
    if record is None or outcome["state"] != "ok":
        yield {**common, "metric": "outcome", "value": np.nan}
        return
    for metric in _RUN_METRICS:
        yield {**common, "metric": metric, "value": record["run"][metric]}
    for metric in ("bytes_up", "bytes_down"):
        yield {**common, "metric": metric, "value": record["metrics"][metric]}
    for reading, splits in record["metrics"]["readings"].items():
        for split in (name for name in splits if name != "round"):
            for metric, means in splits[split].items():
                counts = {"evaluated": means["evaluated"], "of": means["of"]}
                for mean in ("pooled", "macro"):
                    value = np.nan if means[mean] is None else means[mean]
                    at = {"split": split, "reading": reading, "mean": mean}
                    yield {**common, **at, **counts, "metric": metric, "value": value}


def _curve(placement: Placement, record: dict[str, Any] | None, results: Path) -> pd.DataFrame | None:
    path = results / placement.cell.folder("train") / "history.npz"
    if record is None or not path.exists():
        return None
    history = read_npz(path)
    card = read_json(results / placement.cell.folder("split") / "card.json")
    mean = placement.cell.method.spec["mean"]
    losses = np.ma.masked_invalid(history["train_loss"]).mean(axis=1).filled(np.nan)
    return pd.DataFrame(
        {
            **_place(placement),
            "round": history["round"],
            "train_seconds": history["train_seconds"],
            "bytes_up": history["bytes_up"],
            "bytes_down": history["bytes_down"],
            "val_accuracy": _accuracy(history["val_correct"], np.asarray(card["val"]), mean),
            "test_accuracy": _accuracy(history["test_correct"], np.asarray(card["test"]), mean),
            "train_loss": losses,
        }
    )


def _accuracy(correct: np.ndarray, sizes: np.ndarray, mean: str) -> np.ndarray:
    """[R] accuracy by the protocol's client mean from [R, C] correct nodes; nan where no client has such nodes."""
    present = sizes > 0
    if not present.any():
        return np.full(len(correct), np.nan)
    if mean == "pooled":
        return correct.sum(1) / sizes.sum()
    return (correct[:, present] / sizes[present]).mean(1)


def _partition_rows(expansion: Expansion, results: Path) -> Iterator[dict[str, Any]]:
    seen = set()
    for placement in expansion.placements:
        path = results / placement.cell.folder("split") / "card.json"
        if path in seen or placement.cell.partition.spec["scheme"] == "whole" or not path.exists():
            continue
        seen.add(path)
        card = read_json(path)
        for client in range(placement.clients):
            yield {
                "dataset": placement.dataset,
                "scheme": placement.scheme,
                "clients": placement.clients,
                "seed": placement.cell.seed,
                "client": client,
                "nodes": card["nodes"][client],
                "edges": card["edges"][client],
                "cut_edges": card["cut_edges"],
                "cosine_distance": card["cosine_distance"],
                "classes": card["classes"][client],
                "train": card["train"][client],
                "val": card["val"][client],
                "test": card["test"][client],
            }


def _study(
    expansion: Expansion, name: str, loaded: dict[str, dict[str, Any] | None], outcomes: dict[str, int]
) -> dict[str, Any]:
    study = expansion.study.model_dump()
    runs = [record["run"] for record in loaded.values() if record]
    versions = {
        name: ", ".join(sorted({run["versions"][name] for run in runs if name in run["versions"]}))
        for name in sorted({name for run in runs for name in run["versions"]})
    }
    hardware = sorted({f"{run['device']['type']}: {run['device']['name']}" for run in runs if run["device"]})
    shown = {key: study["protocol"][key] for key in ("reading", "mean")}
    tables = [{**table, **{key: table[key] or shown[key] for key in shown}} for table in study.pop("tables")]
    figures = [{**figure, **shown} for figure in study.pop("figures")]
    return {
        "name": name,
        "title": study["title"],
        "notes": study["notes"],
        "reference": study["reference"],
        "protocol": study["protocol"],
        "training": study["training"],
        "settings": study,
        "tables": tables,
        "figures": figures,
        "order": expansion.order,
        "names": expansion.names,
        "seeds": seed_list(expansion.study),
        "cells": len(expansion.cells),
        "outcomes": outcomes,
        "versions": {**versions, "fglbench": __version__},
        "hardware": {"devices": hardware, "cores": max((run["cores"] for run in runs), default=None)},
    }


def _write_parquet(path: Path, frame: pd.DataFrame) -> None:
    with replacing(path) as temporary:
        frame.to_parquet(temporary, index=False)
