"""Small made-up records of a study, for tests of tables, figures and the report."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fglbench.records.presentation import FigureSpec, TableSpec
from fglbench.records.study import StudyRecord
from fglbench.storage import write_json

SCORES = ("accuracy", "f1_micro", "f1_macro")
ACCURACY = {"Global": 0.86, "Local": 0.70, "FedAvg": 0.80, "FedProx": 0.81}
HARDWARE = {"devices": ["cpu: made-up"], "cores": 2}
METHODS = {"Global": "global", "Local": "local", "FedAvg": "fedavg", "FedProx": "fedprox"}


def table_spec(**changes: Any) -> TableSpec:
    """A table of accuracy by dataset."""
    base = {
        "name": "main",
        "title": "Main results",
        "columns": ["dataset"],
        "metric": "accuracy",
        "where": {"scheme": ["louvain"], "clients": [10]},
    }
    return TableSpec(**base | changes)


def figure_spec(kind: str, **changes: Any) -> FigureSpec:
    """A figure of accuracy for the Louvain partitions."""
    base = {"name": kind, "kind": kind, "title": "A title", "metric": "accuracy", "where": {"scheme": ["louvain"]}}
    return FigureSpec(**base | changes)


def run_rows(
    values: list[float] | dict[int, float] | None,
    *,
    dataset: str = "cora",
    scheme: str = "louvain",
    clients: int = 10,
    label: str = "FedAvg",
    method: str | None = None,
    backbone: str = "gcn",
    outcomes: dict[int, dict[str, Any]] | None = None,
    device: str = "cpu",
    seconds: float = 2.0,
    evaluated: int | None = None,
    participation: float = 1.0,
    local_epochs: int = 3,
) -> list[dict[str, Any]]:
    """Rows of runs.parquet for one cell placement.

    Args:
        values: test accuracy (fraction) by seed, or in the order of seeds 0, 1, ...
        outcomes: by seed, what did not end well: {"outcome", "outcome_round", "reason"}.
    """
    by_seed = dict(enumerate(values)) if isinstance(values, list) else dict(values or {})
    outcomes = outcomes or {}
    rows: list[dict[str, Any]] = []
    for seed in sorted(by_seed.keys() | outcomes.keys()):
        base = {
            "dataset": dataset,
            "scheme": scheme,
            "clients": clients,
            "method": method or METHODS.get(label, label.lower()),
            "backbone": backbone,
            "label": label,
            "seed": seed,
            "split": "",
            "reading": "",
            "mean": "",
            "metric": "outcome",
            "value": np.nan,
            "cell": f"{dataset}-{scheme}-{clients}-{label}-{backbone}",
            "outcome": "ok",
            "outcome_round": np.nan,
            "reason": None,
            "device": device,
            "evaluated": pd.NA,
            "of": pd.NA,
            "participation": participation,
            "local_epochs": local_epochs,
        }
        if seed in outcomes:
            rows.append(base | outcomes[seed])
            continue
        counted = {"evaluated": clients if evaluated is None else evaluated, "of": clients}
        for metric in SCORES:
            for reading, shift in (("val", 0.0), ("last", -0.01), ("test", 0.02)):
                for mean, lift in (("pooled", 0.0), ("macro", -0.03)):
                    value = by_seed[seed] + shift + lift
                    place = {"split": "test", "reading": reading, "mean": mean, "metric": metric, "value": value}
                    rows.append(base | counted | place)
        sent = 0.0 if label in ("Global", "Local") else 4.0e6
        for metric, value in (
            ("train_seconds", seconds + 0.1 * seed),
            ("server_seconds", 0.25 * seconds),
            ("bytes_up", sent),
            ("bytes_down", sent),
            ("selected_round", 10.0 + seed),
        ):
            rows.append(base | {"metric": metric, "value": value})
    return rows


def frame(*parts: list[dict[str, Any]]) -> pd.DataFrame:
    """One runs frame from several cells."""
    rows = [row for part in parts for row in part]
    return pd.DataFrame(rows).astype({"evaluated": "Int64", "of": "Int64", "reason": "string"})


def study_of(runs: pd.DataFrame, seeds: list[int] | None = None, **settings: Any) -> StudyRecord:
    """A study around a runs frame, without curves and partitions."""
    base = {
        "name": "small",
        "title": "A small study",
        "seeds": seeds,
        "order": {},
        "protocol": {"evaluate": "aggregated"},
        "hardware": HARDWARE,
    }
    return StudyRecord(settings=base | settings, runs=runs, curves=pd.DataFrame(), partitions=pd.DataFrame())


def full_study(
    datasets: tuple[str, ...] = ("cora", "citeseer"), schemes: tuple[str, ...] = ("louvain", "metis"), seeds: int = 3
) -> StudyRecord:
    """A study with curves, partitions, all figures and tables, one diverged cell and one method without a dataset."""
    random = np.random.default_rng(7)
    parts, curves, partitions, mixing, drawings = [], [], [], [], []
    for dataset in datasets:
        for scheme in schemes:
            for clients in (5, 10):
                for label, base in ACCURACY.items():
                    place = {"dataset": dataset, "scheme": scheme, "clients": clients, "label": label}
                    lower = 0.01 * clients / 5 + 0.08 * (dataset != datasets[0])
                    values = (base - (lower if label != "Global" else 0) + random.normal(0, 0.012, seeds)).tolist()
                    failed = label == "FedProx" and dataset == datasets[-1] and clients == 10
                    outcomes = {1: {"outcome": "diverged", "outcome_round": 12.0, "reason": "loss is not finite"}}
                    parts.append(run_rows(values, outcomes=outcomes if failed else None, **place))  # type: ignore[arg-type]
                    curves += _curve(place, values, random)
                    if label == "FedProx":
                        mixing += _mixing(place, seeds)
                partitions += _partition(dataset, scheme, clients, seeds, random)
                drawings += _drawings({"dataset": dataset, "scheme": scheme, "clients": clients}, random)
    runs = frame(*parts)
    settings = _settings(datasets, schemes, seeds)
    return StudyRecord(settings, runs, *(pd.DataFrame(rows) for rows in (curves, partitions, mixing, drawings)))


def _drawings(place: dict[str, Any], random: np.random.Generator) -> list[dict[str, Any]]:
    """Rings of ten nodes, of which the first is an anchor; the whole graph is one too."""
    around = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    ring = {"x": np.cos(around), "y": np.sin(around), "source": np.arange(10), "target": np.roll(np.arange(10), -1)}
    return [
        {
            **place,
            **ring,
            "seed": 0,
            "client": client,
            "label": random.integers(3, size=10),
            "anchor": np.arange(10) < 1,
        }
        for client in range(-1, place["clients"])
    ]


def _mixing(place: dict[str, Any], seeds: int) -> list[dict[str, Any]]:
    """Every client keeps half of its own model and takes the rest from the next one."""
    clients = place["clients"]
    matrix = (np.eye(clients) + np.roll(np.eye(clients), 1, axis=1)) / 2
    known = {"method": METHODS[place["label"]], "backbone": "gcn", "round": 10, "cell": str(place)}
    return [
        {**place, **known, "seed": seed, "client": client, "weights": matrix[client]}
        for seed in range(seeds)
        for client in range(clients)
    ]


def _curve(place: dict[str, Any], values: list[float], random: np.random.Generator) -> list[dict[str, Any]]:
    rows = []
    for seed, final in enumerate(values):
        for number in range(30):
            accuracy = final * (1 - np.exp(-(number + 1) / 6)) + random.normal(0, 0.004)
            rows.append(
                {
                    **place,
                    "method": METHODS[place["label"]],
                    "backbone": "gcn",
                    "seed": seed,
                    "cell": f"{place['dataset']}-{place['scheme']}-{place['clients']}-{place['label']}-gcn",
                    "round": number,
                    "train_seconds": (number + 1) * (0.05 + 0.01 * seed),
                    "bytes_up": 1000 * number,
                    "bytes_down": 1000 * number,
                    "val_score": accuracy,
                    "test_score": accuracy,
                    "train_loss": float(np.exp(-number / 10)),
                }
            )
    return rows


def _partition(
    dataset: str, scheme: str, clients: int, seeds: int, random: np.random.Generator
) -> list[dict[str, Any]]:
    rows = []
    for seed in range(seeds):
        for client in range(clients):
            classes = random.multinomial(2700 // clients, random.dirichlet(np.full(7, 0.5))).tolist()
            nodes = sum(classes)
            rows.append(
                {
                    "dataset": dataset, "scheme": scheme, "clients": clients, "seed": seed, "client": client,
                    "nodes": nodes, "edges": 2 * nodes, "cut_edges": 400 + seed, "cosine_distance": 0.4 + 0.01 * seed,
                    "classes": classes, "train": nodes // 5, "val": nodes // 5 * 2, "test": nodes // 5 * 2,
                }
            )  # fmt: skip
    return rows


def _settings(datasets: tuple[str, ...], schemes: tuple[str, ...], seeds: int) -> dict[str, Any]:
    kinds = ("accuracy_per_round", "accuracy_per_second", "accuracy_by_clients", "label_heatmap", "bytes_by_accuracy")
    return {
        "name": "small",
        "title": "A small study of federated methods",
        "notes": "Made-up numbers.\n\nOnly for tests.",
        "protocol": {"split": {"train": 0.2, "val": 0.4, "test": 0.4}, "evaluate": "aggregated", "reading": "val"},
        "training": {"rounds": 100, "local_epochs": 3, "lr": 0.01, "hidden": 64},
        "tables": [
            table_spec(
                reference={"table": "3", "where": {"backbone": ["gcn"], "dataset": list(datasets)}}
            ).model_dump(),
            table_spec(
                name="wide", title="Every partition", rows=["label"], columns=["dataset", "scheme", "clients"], where={}
            ).model_dump(),
        ],
        "figures": [figure_spec(kind, title=kind.replace("_", " ")).model_dump() for kind in kinds],
        "versions": {"fglbench": "0.1.0", "python": "3.11"},
        "hardware": HARDWARE,
        "cells": len(datasets) * len(schemes) * 2 * len(ACCURACY),
        "seeds": list(range(seeds)),
        "reference": "fedgta",
        "order": {
            "dataset": list(datasets),
            "scheme": list(schemes),
            "clients": [5, 10],
            "label": list(ACCURACY),
            "backbone": ["gcn"],
            "method": list(METHODS.values()),
        },
    }


def write_study(study: StudyRecord, folder: Path) -> None:
    """Writes what the collect stage writes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "study.json", study.settings)
    study.runs.to_parquet(folder / "runs.parquet")
    study.curves.to_parquet(folder / "curves.parquet")
    study.partitions.to_parquet(folder / "partitions.parquet")
    study.mixing.to_parquet(folder / "mixing.parquet")
    study.drawings.to_parquet(folder / "drawings.parquet")
