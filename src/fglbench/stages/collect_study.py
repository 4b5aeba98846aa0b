"""Content of `study.json`: the settings of a study with its defaults, and the versions and hardware of its runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fglbench import __version__
from fglbench.config.entries import component_settings, seed_list, selected
from fglbench.config.expand import Expansion, dataset_part, other_protocols
from fglbench.config.merge import grids_of, tasks_shown
from fglbench.config.schema import Protocol, Study
from fglbench.datasets import catalogue
from fglbench.partition.split import without_node_roles
from fglbench.records.archive import Archive
from fglbench.records.graph import GRAPH_CARD, read_card
from fglbench.records.metrics import EVALUATE_VERSION
from fglbench.records.presentation import FigureSettings, FigureSpec, TableSettings, TableSpec
from fglbench.records.run import RunRecord
from fglbench.records.study import Hardware, StudySettings
from fglbench.stages.collect_rows import Finished
from fglbench.tasks import has_own_roles, metrics_of, selecting_metric, targets_of


def _figure(study: Study, figure: FigureSettings) -> FigureSpec:
    """Return the settings of a figure, with defaults for the keys that it does not set."""
    chosen = {"metric": figure.metric or selecting_metric(tasks_shown(study, figure.where.get("dataset"))[0])}
    return FigureSpec(**figure.model_dump() | chosen, reading=study.protocol.reading, mean=study.protocol.mean)


def _table(study: Study, table: TableSettings) -> TableSpec:
    """Return the settings of a table, with defaults for the keys that it does not set."""
    tasks = tasks_shown(study, table.where.get("dataset"))
    metric = table.metric or selecting_metric(tasks[0])
    chosen = {
        "metric": metric,
        "reading": table.reading or study.protocol.reading,
        "mean": table.mean or study.protocol.mean,
        "better": table.better or next(filter(None, (metrics_of(task).get(metric) for task in tasks)), None),
    }
    return TableSpec(**table.model_dump() | chosen, targets=" or ".join(dict.fromkeys(map(targets_of, tasks))))


def _shown_protocol(protocol: Protocol) -> dict[str, Any]:
    """Return the protocol settings that captions show.

    If the task draws its own roles, its own settings are added, and the split settings that only node roles use are
    left out.
    """
    values, task = protocol.model_dump(), protocol.task
    if not has_own_roles(task.name):
        return values
    settings = component_settings("task", task).model_dump()
    return {**values, "task": {**values["task"], **settings}, "split": without_node_roles(values["split"])}


def study_content(
    expansion: Expansion,
    name: str,
    results: Path,
    loaded: dict[str, Finished | None],
    archive: Archive,
    outcomes: dict[str, int],
    reused: int,
) -> StudySettings:
    """Return the content of `study.json`.

    Args:
        expansion: the placements and cells of the study.
        name: of the study.
        results: the results folder.
        loaded: the records of the cells that are not reused, by cell id; None for a cell without records.
        archive: the records of reused cells.
        outcomes: the number of cells per outcome.
        reused: the number of reused cells.

    Returns:
        All keys.
    """
    study = expansion.study.model_dump(exclude={"tables", "figures"})
    tables = [_table(expansion.study, table).model_dump() for table in expansion.study.tables]
    figures = [_figure(expansion.study, figure).model_dump() for figure in expansion.study.figures]
    runs = [finished.run for finished in loaded.values() if finished and finished.run]
    protocols = other_protocols(expansion.study)
    return {
        "name": name,
        "title": study["title"],
        "notes": study["notes"],
        "reference": study["reference"],
        "protocol": _shown_protocol(expansion.study.protocol),
        "metric": selecting_metric(expansion.study.protocol.task.name),
        "metrics": {label: selecting_metric(protocol.task.name) for label, protocol in protocols.items()},
        "protocols": {label: _shown_protocol(protocol) for label, protocol in protocols.items()},
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
        "versions": _versions(runs, archive) or {"fglbench": __version__},
        "hardware": _hardware(runs, archive),
    }


def _versions(runs: list[RunRecord], archive: Archive) -> dict[str, str]:
    """Return the versions and modes of all runs by name, several of them joined by commas."""
    used = [run.versions | ({"mode": run.mode} if run.mode else {}) for run in runs]
    used += [settings["versions"] for settings in archive.studies]
    versions: dict[str, set[str]] = {}
    for name, text in (item for run in used for item in run.items()):
        versions.setdefault(name, set()).update(text.split(", "))
    return {name: ", ".join(sorted(texts)) for name, texts in sorted(versions.items())}


def _hardware(runs: list[RunRecord], archive: Archive) -> Hardware:
    """Return the devices of all runs, and the largest number of cores."""
    hardware = [settings["hardware"] for settings in archive.studies]
    devices = {str(run.device) for run in runs if run.device}.union(*(old["devices"] for old in hardware))
    cores = [run.cores for run in runs] + [old["cores"] for old in hardware]
    return {"devices": sorted(devices), "cores": max(filter(None, cores), default=None)}


def _sizes(expansion: Expansion, results: Path) -> dict[str, dict[str, int]]:
    """Return the catalogue's counts of every dataset, by label.

    A dataset with announced counts has its number of edges from its data card, and no number before the card exists.
    """
    sizes = {}
    for label, entry in selected(expansion.study.datasets, None):
        sizes[label] = asdict(catalogue.get(entry.name).counts_for(entry.settings))
        if catalogue.get(entry.name).announced is not None:
            del sizes[label]["edges"]
            folder = results / "download" / dataset_part(entry).slug
            if (folder / GRAPH_CARD).exists():
                sizes[label]["edges"] = read_card(folder)["edges"]
    return sizes


def _seeds(study: Study) -> list[int]:
    """Return the seeds of every cell; an empty list if the grids have different seeds."""
    seeds = {tuple(seed_list(study.seeds if grid.seeds is None else grid.seeds)) for grid in grids_of(study)}
    return list(seeds.pop()) if len(seeds) == 1 else []
