"""Tasks: what is predicted and scored.

One file per task; `base.py` holds the contract.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fglbench import registry
from fglbench.evaluation.quantities import Direction

if TYPE_CHECKING:
    from fglbench.tasks.base import Task

DEFAULT_TASK = "node-classification"


def task_name(spec: Mapping[str, Any]) -> str:
    """Return the name of a cell's task.

    Args:
        spec: specification of the cell's method.

    Returns:
        The task that the specification names, or the default task.
    """
    name: str = spec["task"]["name"] if "task" in spec else DEFAULT_TASK
    return name


def task_of(spec: Mapping[str, Any]) -> "Task":
    """Make the task of a cell.

    Args:
        spec: specification of the cell's method or split.

    Returns:
        The task that the specification names, with its settings; the default task if it names none.
    """
    spec = spec.get("task", {"name": DEFAULT_TASK, "settings": {}})
    settings = registry.declaration("task", spec["name"]).settings(**spec["settings"])
    task: Task = registry.module("task", spec["name"]).Task(settings)
    return task


def has_own_roles(name: str) -> bool:
    """Return whether a task draws its own roles (see `Task.roles`) instead of those of nodes by `protocol.split`.

    Args:
        name: of the task.

    Returns:
        The constant `OWN_ROLES` of its file, False by default.
    """
    return bool(registry.declaration("task", name).constants.get("OWN_ROLES", False))


def targets_of(name: str) -> str:
    """Return the word for the targets of a task, for captions.

    Args:
        name: of the task.

    Returns:
        The constant `TARGETS` of its file, "nodes" by default.
    """
    word: str = registry.declaration("task", name).constants.get("TARGETS", "nodes")
    return word


def metrics_of(name: str) -> dict[str, Direction]:
    """Return all scores of a task.

    Args:
        name: of the task.

    Returns:
        Score -> its better direction; the score that selects the round is the first one.
    """
    metrics: dict[str, Direction] = registry.declaration("task", name).constants["METRICS"]
    return metrics


def metrics_of_logits(name: str) -> tuple[str, ...]:
    """Return the scores of a task that need stored logits.

    Args:
        name: of the task.

    Returns:
        Names of these scores; empty if there are none.
    """
    names: tuple[str, ...] = registry.declaration("task", name).constants.get("OF_LOGITS", ())
    return names


def selecting_metric(name: str) -> str:
    """Return the score of a task that selects the round; tables show it by default.

    Args:
        name: of the task.

    Returns:
        Name of the score.
    """
    return next(iter(metrics_of(name)))
