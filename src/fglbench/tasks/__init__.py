"""What is predicted and scored: one file a task; `base.py` holds the contract."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fglbench import registry

if TYPE_CHECKING:
    from fglbench.tasks.base import Task

DEFAULT_TASK = "node-classification"


def task_name(spec: Mapping[str, Any]) -> str:
    """The name of a cell's task, from the specification of its method."""
    name: str = spec["task"]["name"] if "task" in spec else DEFAULT_TASK
    return name


def task_of(spec: Mapping[str, Any]) -> "Task":
    """The task of a cell, from the specification of its method or split; one that names none has the default."""
    spec = spec.get("task", {"name": DEFAULT_TASK, "settings": {}})
    settings = registry.declaration("task", spec["name"]).settings(**spec["settings"])
    task: Task = registry.module("task", spec["name"]).Task(settings)
    return task


def has_own_roles(name: str) -> bool:
    """Whether a task draws roles of its own, as `Task.roles` says; `protocol.split` gives those of nodes."""
    return bool(registry.declaration("task", name).constants.get("OWN_ROLES", False))


def targets_of(name: str) -> str:
    """What a task predicts, in a caption: "nodes" unless it says otherwise."""
    found: str = registry.declaration("task", name).constants.get("TARGETS", "nodes")
    return found


def metrics_of(name: str) -> dict[str, str]:
    """All scores of a task, the one that selects first, each with its better direction ("higher" or "lower")."""
    found: dict[str, str] = registry.declaration("task", name).constants["METRICS"]
    return found


def metrics_of_logits(name: str) -> tuple[str, ...]:
    """The scores of a task that are only there if logits are stored."""
    found: tuple[str, ...] = registry.declaration("task", name).constants.get("OF_LOGITS", ())
    return found


def selecting_metric(name: str) -> str:
    """The score of a task that selects the round, and that tables show unless they say otherwise."""
    return next(iter(metrics_of(name)))
