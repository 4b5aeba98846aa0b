"""The protocol: keys that a dataset or its task does not support. They are found before the data is read."""

from collections.abc import Iterable

from pydantic import ValidationError

from fglbench import registry
from fglbench.config.merge import merged_protocol
from fglbench.config.schema import Entry, Study
from fglbench.config.validation.entries import task_problems
from fglbench.config.validation.partitions import may_hold_out
from fglbench.datasets import catalogue
from fglbench.errors import FglbenchError
from fglbench.partition.split import OF_ANY_TASK
from fglbench.tasks import has_own_roles

_OWN = "{} draws its own roles, see its settings; leave out this key."
_WHOLE = "{} trains on all nodes of a client at once; leave out this key."


def protocol_problems(study: Study) -> list[str]:
    """Return the keys of the protocol that a dataset does not support.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems = []
    for index, entry in enumerate(study.datasets):
        try:
            spec, protocol = catalogue.get(entry.name), merged_protocol(study, entry)
        except (FglbenchError, ValidationError):
            continue  # the checks of entries report this
        split = entry.protocol.get("split")
        of_split = f"datasets[{index}].protocol" if isinstance(split, dict) and "kind" in split else "protocol"
        of_features = f"datasets[{index}].protocol" if "features" in entry.protocol else "protocol"
        if protocol.split.kind == "public" and _roles_of_nodes(protocol.task.name) and not spec.has_public_split:
            problems.append(f"{of_split}.split.kind: '{spec.name}' has no public split; use ratios.")
        if protocol.features == "row" and spec.has_negative_features:
            problems.append(f"{of_features}.features: '{spec.name}' has negative features; use raw.")
        by_scheme = all(map(may_hold_out, study.partitions))
        if protocol.global_test == "held_out" and protocol.split.held_out is None and not by_scheme:
            problems.append("protocol.global_test: 'held_out' needs a fraction of nodes under protocol.split.held_out.")
    return list(dict.fromkeys(problems))


def dataset_task_problems(study: Study) -> list[str]:
    """Return the problems of the datasets' tasks.

    A task that draws roles of its own does not support settings about the roles of nodes.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems: list[str] = []
    with_node_roles = False
    for index, entry in enumerate(study.datasets):
        where = f"datasets[{index}].protocol"
        try:
            protocol = merged_protocol(study, entry)
        except ValidationError:
            continue  # the checks of entries report this
        name = protocol.task.name
        if "task" in entry.protocol:
            problems += task_problems(f"{where}.task", protocol.task)
        if _roles_of_nodes(name):
            with_node_roles = True
            continue
        if protocol.setting != "transductive":
            key = f"{where if 'setting' in entry.protocol else 'protocol'}.setting"
            problems.append(f"{key}: {name} supports only the transductive setting; leave out this key.")
        problems += [
            f"{where}.split.{key}: {_OWN.format(name)}" for key in _of_nodes(entry.protocol.get("split") or {})
        ]
        for key in ("global_test", "logits"):
            if getattr(protocol, key):
                problems.append(f"protocol.{key}: {name} does not use this key; leave it out.")
        problems += [f"{key}.batch_size: {_WHOLE.format(name)}" for key in _batched(study, index, entry)]
    if not with_node_roles:
        given = study.protocol.split.model_dump(exclude_unset=True)
        problems += [f"protocol.split.{key}: {_OWN.format(study.protocol.task.name)}" for key in _of_nodes(given)]
    return list(dict.fromkeys(problems))


def _roles_of_nodes(task: str) -> bool:
    """Return whether a task gives roles to nodes; True for an unknown task, which another check reports."""
    return task not in registry.names("task") or not has_own_roles(task)


def _batched(study: Study, index: int, dataset: Entry) -> list[str]:
    """Return the keys of the study that request batches in the training of a dataset."""
    if "batch_size" in dataset.training:
        keys = [f"datasets[{index}].training"] if dataset.training["batch_size"] else []
    else:
        keys = ["training"] if study.training.batch_size else []
    for key in ("methods", "backbones", "grids", "overrides"):
        sizes = [entry.training.get("batch_size") for entry in getattr(study, key)]
        keys += [f"{key}[{position}].training" for position, size in enumerate(sizes) if size]
    return keys


def _of_nodes(split: Iterable[str]) -> list[str]:
    return [key for key in split if key not in OF_ANY_TASK]
