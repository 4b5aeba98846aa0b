"""What is wrong with a well-typed study: names, settings, duplicates, counts, and what cannot work together."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from fglbench import registry
from fglbench.config.changes import change_problems, seed_problems, settings_problems
from fglbench.config.entries import chosen, component_settings, labels
from fglbench.config.merge import grids_of, known_tasks, merged_protocol
from fglbench.config.partition_files import may_hold_out, partition_file_problems
from fglbench.config.schema import Entry, Figure, Study, Table
from fglbench.datasets import catalogue
from fglbench.errors import FglbenchError, suggest
from fglbench.partition.split import OF_ANY_TASK, held_out_nodes
from fglbench.reporting.quantities import OF_RUNS
from fglbench.tasks import has_own_roles, metrics_of, metrics_of_logits

_PRINTED = {
    "dataset": ("dataset",),
    "scheme": ("partition",),
    "method": ("method", "backbone", "variant"),
    "backbone": (),
}


def study_problems(study: Study) -> list[str]:
    """Everything wrong in a well-typed study: names, settings, duplicates, counts."""
    axes = [
        ("datasets", "dataset", study.datasets),
        ("partitions", "scheme", study.partitions),
        ("methods", "method", study.methods),
        ("backbones", "backbone", study.backbones),
    ]
    found: list[str] = []
    for key, kind, entries in axes:
        found += _entry_problems(key, kind, entries)
        sound = [entry for entry in entries if not _entry_problems(key, kind, [entry])]
        # Entries with labels of their own may be alike: overrides and grids can tell them apart.
        resolved = [
            (entry.name, f"{entry.label} {component_settings(kind, entry)} {entry.training} {entry.protocol}")
            for entry in sound
        ]
        twice = _duplicates(key, resolved, _entry_text)
        found += twice or _duplicates(key, labels(entries), lambda label: f"label '{label}'")
    found += _task_problems("protocol.task", study.protocol.task)
    found += _dataset_tasks(study)
    found += _duplicates("clients", study.clients, str)
    found += seed_problems("seeds", study.seeds)
    found += change_problems(study)
    found += _client_problems(study)
    found += _native_problems(study)
    found += partition_file_problems(study)
    found += _protocol_problems(study)
    for key, shown in (("tables", study.tables), ("figures", study.figures)):
        names = [item.name for item in shown]
        if key == "tables":
            names += [f"{table.name}-compared" for table in study.tables if table.reference]
        found += _duplicates(key, names, lambda name: f"name '{name}'")
    return found


def shown_problems(study: Study) -> list[str]:
    """A cell of a table must hold one method in one setting: what varies stands in its rows, columns or `where`. Tables
    and figures must show something of the study."""
    values, found = _axis_values(study), []
    for index, table in enumerate(study.tables):
        if table.kind != "cells":
            found += _where_problems(f"tables[{index}]", table.where, values)
            continue
        tasks = known_tasks(study, table.where.get("dataset"))
        if len(tasks) > 1 and table.metric is None:
            found.append(f"tables[{index}].metric: {_TASKS.format(', '.join(tasks))}, or name a metric.")
        found += _score_problems(f"tables[{index}]", table, study, tasks)
        if table.mean == "weighted" != study.protocol.mean:
            found.append(
                f"tables[{index}].mean: 'weighted' needs protocol.mean: 'weighted', so that weights are stored."
            )
        found += _duplicates(f"tables[{index}]", [*table.rows, *table.columns], lambda axis: f"axis '{axis}'")
        found += _where_problems(f"tables[{index}]", table.where, values)
        fixed: dict[str, list[Any]] = {str(axis): list(kept) for axis, kept in table.where.items()}
        for axis, known in values.items():
            kept = [value for value in known if value in fixed.get(axis, known)]
            if axis == "label":
                kept = _labels_in_one_cell(study, kept, fixed.get("method"), "method" in [*table.rows, *table.columns])
            # Methods of one name are told apart by their labels.
            if axis != "method" and len(kept) > 1 and axis not in [*table.rows, *table.columns]:
                found.append(
                    f"tables[{index}]: '{axis}' has {len(kept)} values in this study, so it must be among the table's "
                    "rows or columns, or be fixed under 'where'."
                )
    for index, figure in enumerate(study.figures):
        found += _where_problems(f"figures[{index}]", figure.where, values)
        found += _figure_problems(f"figures[{index}]", figure, study, values["label"])
        if len(tasks := known_tasks(study, figure.where.get("dataset"))) > 1:
            found.append(f"figures[{index}].where: {_TASKS.format(', '.join(tasks))}.")
    return found


_CURVES = ("accuracy_per_round", "accuracy_per_second", "labels_and_convergence")


def _score_problems(where: str, shown: Table | Figure, study: Study, tasks: list[str]) -> list[str]:
    """What is wrong with the score that a table or figure asks for, of datasets with these tasks."""
    found = []
    metrics = [metric for task in tasks for metric in metrics_of(task)] + [*OF_RUNS]
    if shown.metric is not None and shown.metric not in metrics:
        found.append(f"{where}.metric: '{shown.metric}' is not a metric. {suggest(shown.metric, metrics)}")
    if shown.split == "global_test" and study.protocol.global_test is None:
        found.append(f"{where}.split: 'global_test' needs protocol.global_test: 'whole' or 'held_out'.")
    of_logits = [metric for task in tasks for metric in metrics_of_logits(task)]
    if shown.metric in of_logits and not study.protocol.logits:
        found.append(f"{where}.metric: '{shown.metric}' needs protocol.logits: true, so that it is stored.")
    return found


def _figure_problems(where: str, figure: Figure, study: Study, known: list[Any]) -> list[str]:
    found = _score_problems(where, figure, study, known_tasks(study, figure.where.get("dataset")))
    if figure.kind in _CURVES and (figure.metric is not None or figure.split not in ("test", "val")):
        found.append(f"{where}: rounds have the score that selects, on 'test' and 'val'; leave metric and split out.")
    if figure.gains and figure.kind != "accuracy_by_clients":
        found.append(f"{where}.gains: only figures of kind 'accuracy_by_clients' draw gains.")
    found += [
        f"{where}.gains: '{label}' is no label of the study. {suggest(label, map(str, known))}"
        for label in [*figure.gains, *figure.gains.values()]
        if label not in known
    ]
    found += [
        f"{where}.gains: '{label}' is not among the labels under 'where'; add it there."
        for label in [*figure.gains, *figure.gains.values()]
        if label not in figure.where.get("label", [label])
    ]
    return found


_TASKS = "the datasets have several tasks ({}), each with scores of its own; choose datasets of one under 'where'"


def _labels_in_one_cell(study: Study, kept: list[Any], methods: list[Any] | None, by_method: bool) -> list[str]:
    """The labels that would share a cell of a table: of all its methods, or of the one with the most."""
    found: dict[str, list[str]] = {}
    for label, entry in chosen(study.methods, None):
        if label in kept and (methods is None or entry.name in methods):
            found.setdefault(entry.name if by_method else "", []).append(label)
    return max(found.values(), key=len, default=[])


def _axis_values(study: Study) -> dict[str, list[Any]]:
    """What each axis of tables and figures can be in a study."""
    return {
        "dataset": labels(study.datasets),
        "scheme": labels(study.partitions),
        "clients": study.clients,
        "backbone": labels(study.backbones),
        "label": labels(study.methods),
        "method": [entry.name for entry in study.methods],
    }


def _where_problems(owner: str, where: Mapping[Any, list[Any]], values: Mapping[str, list[Any]]) -> list[str]:
    """Values of a filter that the study does not have: what they were meant for would be missing without a word."""
    found = []
    for axis, wanted in where.items():
        for value in (value for value in wanted if value not in values[axis]):
            known = [str(other) for other in values[axis]]
            quoted = f"'{value}' is text; write {value} without quotes."
            unknown = f"'{value}' is not in this study. {suggest(value, known)}"
            found.append(f"{owner}.where.{axis}: {quoted if value in known else unknown}")
    return found


def _entry_problems(key: str, kind: str, entries: list[Entry]) -> list[str]:
    found = []
    for index, entry in enumerate(entries):
        where = f"{key}[{index}]"
        if kind == "scheme" and entry.name == "whole":
            found.append(f"{where}: 'whole' is what centralised methods use by themselves; name a partition scheme.")
            continue
        found += settings_problems(where, kind, entry)
        if kind == "scheme" and entry.training:
            found.append(f"{where}.training: a partition scheme trains nothing; give it to a dataset or a grid.")
        if kind != "dataset" and entry.protocol:
            found.append(f"{where}.protocol: only datasets have a protocol of their own.")
        for column in entry.printed:
            if column not in _PRINTED[kind]:
                found.append(
                    f"{where}.printed.{column}: other names in a reference file have the dataset of an entry of "
                    "datasets, the partition of one of partitions, and method, backbone and variant of one of methods."
                )
    return found


def _task_problems(where: str, task: Entry) -> list[str]:
    given = {"label": task.label, "training": task.training, "protocol": task.protocol, "printed": task.printed}
    beside = [f"{where}.{key}: a task has a name and settings alone." for key, value in given.items() if value]
    return beside or settings_problems(where, "task", task)


def _dataset_tasks(study: Study) -> list[str]:
    """What is wrong with the tasks of datasets, and settings that speak of nodes with roles where the task draws roles
    of its own."""
    found, with_node_roles = [], False
    for index, entry in enumerate(study.datasets):
        where = f"datasets[{index}].protocol"
        try:
            protocol = merged_protocol(study, entry)
        except ValidationError:
            continue  # said already
        name = protocol.task.name
        if "task" in entry.protocol:
            found += _task_problems(f"{where}.task", protocol.task)
        if _roles_of_nodes(name):
            with_node_roles = True
            continue
        if protocol.setting != "transductive":
            key = f"{where if 'setting' in entry.protocol else 'protocol'}.setting"
            found.append(f"{key}: {name} knows the transductive setting alone; leave it out.")
        found += [f"{where}.split.{key}: {_OWN.format(name)}" for key in _of_nodes(entry.protocol.get("split") or {})]
        for key in ("global_test", "logits"):
            if getattr(protocol, key):
                found.append(f"protocol.{key}: {name} has no use for it; leave it out.")
        found += [f"{key}.batch_size: {_WHOLE.format(name)}" for key in _batched(study, index, entry)]
    if not with_node_roles:
        given = study.protocol.split.model_dump(exclude_unset=True)
        found += [f"protocol.split.{key}: {_OWN.format(study.protocol.task.name)}" for key in _of_nodes(given)]
    return list(dict.fromkeys(found))


def _roles_of_nodes(task: str) -> bool:
    """Whether nodes have roles under a task, as under a name that is none, which is told elsewhere."""
    return task not in registry.names("task") or not has_own_roles(task)


_OWN = "{} draws roles of its own, see its settings; leave it out."
_WHOLE = "{} trains on all nodes of a client at once; leave it out."


def _batched(study: Study, index: int, dataset: Entry) -> list[str]:
    """Where batches are asked for that a dataset would train with."""
    if "batch_size" in dataset.training:
        found = [f"datasets[{index}].training"] if dataset.training["batch_size"] else []
    else:
        found = ["training"] if study.training.batch_size else []
    for key in ("methods", "backbones", "grids", "overrides"):
        given = [entry.training.get("batch_size") for entry in getattr(study, key)]
        found += [f"{key}[{place}].training" for place, size in enumerate(given) if size]
    return found


def _of_nodes(split: Iterable[str]) -> list[str]:
    return [key for key in split if key not in OF_ANY_TASK]


def _protocol_problems(study: Study) -> list[str]:
    """What a dataset cannot serve is known before it is read."""
    found = []
    for index, entry in enumerate(study.datasets):
        try:
            spec, protocol = catalogue.get(entry.name), merged_protocol(study, entry)
        except (FglbenchError, ValidationError):
            continue  # said already
        split = entry.protocol.get("split")
        of_split = f"datasets[{index}].protocol" if isinstance(split, dict) and "kind" in split else "protocol"
        of_features = f"datasets[{index}].protocol" if "features" in entry.protocol else "protocol"
        if protocol.split.kind == "public" and _roles_of_nodes(protocol.task.name) and not spec.has_public_split:
            found.append(f"{of_split}.split.kind: '{spec.name}' has no public split; use ratios.")
        if protocol.features == "row" and spec.has_negative_features:
            found.append(f"{of_features}.features: '{spec.name}' has negative features; use raw.")
        by_scheme = all(map(may_hold_out, study.partitions))
        if protocol.global_test == "held_out" and protocol.split.held_out is None and not by_scheme:
            found.append("protocol.global_test: 'held_out' needs a fraction of nodes under protocol.split.held_out.")
    return list(dict.fromkeys(found))


def _client_problems(study: Study) -> list[str]:
    found = [
        f"clients[{i}]: {count}: a federation has at least 1 client."
        for i, count in enumerate(study.clients)
        if count < 1
    ]
    for label, entry in chosen(study.datasets, None):
        try:
            nodes = catalogue.get(entry.name).counts_for(entry.settings).nodes
            held_out = merged_protocol(study, entry).split.held_out
        except (FglbenchError, ValidationError):
            continue  # said already
        left = nodes - held_out_nodes(nodes, held_out)
        whose = f"{nodes} nodes of '{entry.name}'" if left == nodes else f"{left} nodes of '{entry.name}' that are left"
        grids = [grid for grid in grids_of(study) if not grid.datasets or {label, entry.name} & set(grid.datasets)]
        found += [
            f"clients[{i}]: {count} clients cannot share the {whose}."
            for i, count in enumerate(study.clients)
            if count > left and any(grid.clients is None or count in grid.clients for grid in grids)
        ]
    return found


def _native_problems(study: Study) -> list[str]:
    """The scheme `native` is for datasets that come split, and for their own numbers of clients."""
    found = []
    for grid in grids_of(study):
        if "native" not in (entry.name for _, entry in chosen(study.partitions, grid.partitions)):
            continue
        counts = [count for count in study.clients if grid.clients is None or count in grid.clients]
        for _, entry in chosen(study.datasets, grid.datasets):
            try:
                own = catalogue.get(entry.name).native_clients
            except FglbenchError:
                continue  # said already
            if not own:
                split = ", ".join(name for name in catalogue.names() if catalogue.get(name).native_clients)
                found.append(
                    f"partitions: 'native' needs a dataset that comes split, and '{entry.name}' does not. Those that "
                    f"do: {split}."
                )
            found += [
                f"clients[{study.clients.index(count)}]: {count}: '{entry.name}' comes split into {own} clients, and "
                "'native' takes these."
                for count in counts
                if own and count != own
            ]
    return list(dict.fromkeys(found))


def _entry_text(entry: tuple[str, str]) -> str:
    return f"'{entry[0]}'"


def _duplicates(key: str, values: list[Any], text: Callable[[Any], str]) -> list[str]:
    return [f"{key}: {text(value)} is listed {n} times." for value, n in Counter(values).items() if n > 1]
