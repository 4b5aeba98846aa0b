"""Expansion of a study into cells: all combinations, with resolved settings and the path of each stage."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from fglbench import registry
from fglbench.config.entries import aggregation_entry, component_settings, labels, sampler_entry, seed_list, selected
from fglbench.config.identity import (
    ENGINE_VERSION,
    OVERLAPPING_SPLIT_VERSION,
    PREPROCESS_VERSION,
    SPLIT_VERSION,
    Cell,
    Part,
    Spec,
    slug,
)
from fglbench.config.merge import Combination, grids_of, merged_entries, merged_protocol, merged_training
from fglbench.config.partition_files import FILE, content_of
from fglbench.config.schema import Entry, Grid, Protocol, Study, Training
from fglbench.datasets import catalogue
from fglbench.errors import ConfigError
from fglbench.partition.split import without_node_roles
from fglbench.tasks import DEFAULT_TASK, has_own_roles


@dataclass(frozen=True)
class Placement:
    """The place where a table shows a cell. A centralised cell has a placement in every column it belongs to."""

    dataset: str
    scheme: str
    clients: int
    method: str
    backbone: str
    label: str
    cell: Cell

    @property
    def key(self) -> tuple[Any, ...]:
        """The values that identify a placement within its study."""
        return (self.dataset, self.scheme, self.clients, self.label, self.backbone, self.cell.seed)


@dataclass(frozen=True)
class Expansion:
    """All placements of a study, and the distinct cells behind them."""

    study: Study
    placements: list[Placement]

    @cached_property
    def cells(self) -> list[Cell]:
        """The distinct cells, in the order of their first placements."""
        return list({(p.cell.folder("train")): p.cell for p in self.placements}.values())

    @cached_property
    def names(self) -> dict[str, dict[str, str]]:
        """For the axes dataset, scheme and backbone: label -> name in the papers' reference files."""
        axes = {"dataset": self.study.datasets, "scheme": self.study.partitions, "backbone": self.study.backbones}
        return {
            axis: {label: next(iter(entry.printed.values()), entry.name) for label, entry in _labelled(entries)}
            for axis, entries in axes.items()
        }

    @cached_property
    def printed(self) -> dict[str, dict[str, str]]:
        """Names in the paper's reference file, for the methods that have other names there: label -> column -> name."""
        return {
            label: {str(key): name for key, name in entry.printed.items()}
            for label, entry in _labelled(self.study.methods)
            if entry.printed
        }

    @cached_property
    def order(self) -> dict[str, list[Any]]:
        """The values of every axis in the order of the study, for tables and figures."""
        study = self.study
        return {
            "dataset": labels(study.datasets),
            "scheme": labels(study.partitions),
            "clients": study.clients,
            "method": list(dict.fromkeys(entry.name for entry in study.methods)),
            "backbone": labels(study.backbones),
            "label": labels(study.methods),
        }


def other_protocols(study: Study) -> dict[str, Protocol]:
    """Return the protocols of the datasets whose protocol differs from the study's.

    Args:
        study: a validated study.

    Returns:
        Label of a dataset -> its protocol; empty if all datasets have the study's protocol.
    """
    protocols = {label: merged_protocol(study, entry) for label, entry in _labelled(study.datasets)}
    return {label: protocol for label, protocol in protocols.items() if protocol != study.protocol}


def expand(study: Study) -> Expansion:
    """Return all placements of a study.

    A study is the union of its grids. Each grid is the product datasets x schemes x client counts x backbones x methods
    x seeds.

    Args:
        study: a validated study.

    Returns:
        The study with its placements, each once, in the order of the grids.

    Raises:
        ConfigError: two grids give the same placement different settings.
        PartitionError: the file of the scheme `file` cannot be read.
    """
    placements: dict[tuple[Any, ...], Placement] = {}
    for grid in grids_of(study):
        for placement in _expand(study, grid):
            first = placements.setdefault(placement.key, placement)
            if first is not placement and first.cell.folder("train") != placement.cell.folder("train"):
                coordinates = ", ".join(map(str, placement.key))
                raise ConfigError(
                    [
                        f"grids: two grids train ({coordinates}) with different settings. Add an entry of methods with "
                        "its own label for each of them, and name each entry in one grid only."
                    ]
                )
    return Expansion(study, list(placements.values()))


def _expand(study: Study, grid: Grid) -> Iterable[Placement]:
    seeds = seed_list(study.seeds if grid.seeds is None else grid.seeds)
    schemes = selected(study.partitions, grid.partitions)
    clients_kept = [clients for clients in study.clients if grid.clients is None or clients in grid.clients]
    backbones, methods = selected(study.backbones, grid.backbones), selected(study.methods, grid.methods)
    central = {label: _centralised(entry) for label, entry in methods}
    for dataset, dataset_entry in selected(study.datasets, grid.datasets):
        dataset_spec, protocol = dataset_part(dataset_entry), merged_protocol(study, dataset_entry)
        whole = partition_part(dataset_spec, Entry(name="whole"), 1, protocol)
        parts: dict[int, list[tuple[str, str, str, Part, Part]]] = {clients: [] for clients in clients_kept}
        for clients, backbone, method in product(clients_kept, backbones, methods):
            at = Combination((dataset, dataset_entry), backbone, method, clients)
            training, (model, federated) = merged_training(study, grid, at), merged_entries(study, at)
            preprocessed = preprocessed_part(model, federated, training, protocol)
            trained = method_part(federated, model, training, protocol)
            parts[clients].append((backbone[0], method[0], federated.name, preprocessed, trained))
        for (scheme, scheme_entry), clients in product(schemes, clients_kept):
            part = partition_part(dataset_spec, scheme_entry, clients, protocol)
            for backbone_label, label, name, preprocessed, trained in parts[clients]:
                partition = whole if central[label] else part
                for seed in seeds:
                    cell = Cell(dataset_spec, partition, preprocessed, trained, seed)
                    yield Placement(dataset, scheme, clients, name, backbone_label, label, cell)


def _labelled(entries: list[Entry]) -> Iterable[tuple[str, Entry]]:
    return zip(labels(entries), entries, strict=True)


def _centralised(entry: Entry) -> bool:
    return bool(registry.declaration("method", entry.name).constants.get("CENTRALISED", False))


def dataset_part(entry: Entry) -> Part:
    """Return the dataset's segment of a cell's path.

    The slug of a dataset without settings is its bare name, which keeps paths readable. The slug of a
    user's own dataset always has a hash, and its specification has the counts and the content hash from the file.
    Another version of it, or another dataset of the same name, is a different graph and gets a folder of its own.

    Args:
        entry: an entry of `datasets`.

    Returns:
        Slug and specification: name, version, settings, and for a user's own dataset `counts` and `content_hash`.
    """
    row = catalogue.get(entry.name)
    settings = component_settings("dataset", entry).model_dump(exclude_none=True)
    spec = {"name": entry.name, "version": row.version, "settings": settings}
    if row.component is not None:
        spec |= {"counts": asdict(row.counts), "content_hash": row.content_hash}
    return Part(slug(entry.name, spec) if settings or row.component else entry.name, spec)


def partition_part(dataset: Part, entry: Entry, clients: int, protocol: Protocol) -> Part:
    """Return the partition's segment of a cell's path.

    Its hash covers the dataset, the scheme, the number of clients and the split. If the task draws roles of its own,
    the hash also covers the task. For the scheme `file`, it covers the content of the file and not its path.

    Args:
        dataset: the dataset's segment.
        entry: an entry of `partitions`.
        clients: number of clients.
        protocol: the dataset's protocol, with split and task.

    Returns:
        Slug, specification and, for the scheme `file`, the absolute path of the file.

    Raises:
        PartitionError: the file of the scheme `file` cannot be read.
    """
    declared = registry.declaration("scheme", entry.name)
    overlaps = declared.constants.get("OVERLAPS", False)
    settings, file = component_settings("scheme", entry).model_dump(exclude_none=True), None
    if entry.name == FILE:
        path = settings.pop("path")
        settings["sha256"], file = content_of(path), str(Path(path).absolute())
    split, task = protocol.split.spec(), {}
    if has_own_roles(protocol.task.name):
        split, task = without_node_roles(split), _task_spec(protocol.task)
    spec = {
        "dataset": dataset.spec,
        "scheme": entry.name,
        "version": declared.version,
        "settings": settings,
        "clients": clients,
        "split": split,
        **task,
        "split_version": OVERLAPPING_SPLIT_VERSION if overlaps else SPLIT_VERSION,
    }
    return Part(slug(f"{entry.name}-k{clients}", spec), spec, file)


def _backbone_settings(entry: Entry, training: Training) -> Any:
    return component_settings("backbone", entry, {"hidden": training.hidden, "dropout": training.dropout})


def preprocessed_part(backbone: Entry, method: Entry, training: Training, protocol: Protocol) -> Part:
    """Return the segment of a cell's path for the output of preprocessing.

    Backbones with the same requirements share this output, and so do all methods that do not change the graph.

    Args:
        backbone: the backbone with its settings.
        method: the method with its settings.
        training: local training, with hidden width and dropout.
        protocol: the dataset's protocol, with features and setting.

    Returns:
        Slug and specification: the backbone's propagation, the features, and the setting if it is inductive.
    """
    needs = _backbone_settings(backbone, training).propagation().spec()
    if registry.declaration("method", method.name).changes_graph:
        needs["propagate"] = False
    label = f"{protocol.features}-hops{needs['hops']}"
    spec = {**needs, "features": protocol.features, "version": PREPROCESS_VERSION}
    if protocol.setting == "inductive":  # transductive is left out, because its paths are older than this key
        label, spec = f"{label}-inductive", {**spec, "setting": protocol.setting}
    return Part(slug(label, spec), spec)


def _task_spec(entry: Entry) -> Spec:
    """Return the key `task` of a specification.

    It is left out for version 1 of the default task, whose paths are older than this key.
    """
    spec = {
        "name": entry.name,
        "version": registry.declaration("task", entry.name).version,
        "settings": component_settings("task", entry).model_dump(exclude_none=True),
    }
    return {} if spec == {"name": DEFAULT_TASK, "version": 1, "settings": {}} else {"task": spec}


def _backbone_spec(entry: Entry, training: Training) -> Spec:
    settings = _backbone_settings(entry, training)
    spec = {
        "name": entry.name,
        "version": registry.declaration("backbone", entry.name).version,
        "settings": settings.model_dump(exclude_none=True),
    }
    if sampler := sampler_entry(settings):
        spec["settings"]["sampler_settings"] = component_settings("sampler", sampler).model_dump(exclude_none=True)
        spec["sampler_version"] = registry.declaration("sampler", sampler.name).version
    return spec


def method_part(entry: Entry, backbone: Entry, training: Training, protocol: Protocol) -> Part:
    """Return the method's segment of a cell's path: method, backbone, training and what is scored.

    Settings that are null are left out. A new setting whose default is null therefore keeps all existing paths.

    Args:
        entry: the method with its settings.
        backbone: the backbone with its settings.
        training: local training.
        protocol: the dataset's protocol.

    Returns:
        Slug and specification; the specification includes that of preprocessing.
    """
    settings = component_settings("method", entry)
    resolved, versions = settings.model_dump(exclude_none=True), {}
    if inner := aggregation_entry(settings):
        resolved["aggregation_settings"] = component_settings("method", inner).model_dump(exclude_none=True)
        versions["aggregation_version"] = registry.declaration("method", inner.name).version
    spec = {
        "method": entry.name,
        "version": registry.declaration("method", entry.name).version,
        **versions,
        "settings": resolved,
        "backbone": _backbone_spec(backbone, training),
        "prepared": preprocessed_part(backbone, entry, training, protocol).spec,
        "training": training.model_dump(exclude={"hidden", "dropout"}, exclude_none=True),
        "evaluate": protocol.evaluate,
        "mean": protocol.mean,
        **{name: value for name in ("global_test", "logits") if (value := getattr(protocol, name))},
        **_task_spec(protocol.task),
        "engine_version": ENGINE_VERSION,
    }
    return Part(slug(f"{entry.name}-{backbone.name}", spec), spec)
