"""Settings of a cell: the study's settings, changed by a grid, by entries and by overrides.

A later value replaces an earlier one. The order for training is: study, grid, dataset, backbone, overrides, method. The
order for the protocol is: study, dataset. The order for settings of a component is: its defaults, overrides, its own
entry. A backbone takes hidden width and dropout from the merged training unless its own settings give them. Hidden
width and dropout in the training of a method's entry replace both, so values in an entry of methods are always used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from fglbench import registry
from fglbench.config.entries import selected, with_settings
from fglbench.config.schema import Entry, Grid, Override, Protocol, Search, Study, Training


@dataclass(frozen=True)
class Combination:
    """A dataset, a backbone and a method of a grid, each as (label, entry), and a number of clients."""

    dataset: tuple[str, Entry]
    backbone: tuple[str, Entry]
    method: tuple[str, Entry]
    clients: int


Selecting = TypeVar("Selecting", Override, Search)


def matching(study: Study, overrides: Sequence[Selecting], at: Combination) -> list[Selecting]:
    """Return the overrides or searches that select the dataset, backbone and method of a combination.

    Args:
        study: the study that they belong to.
        overrides: overrides or searches of the study.
        at: the combination; its number of clients is ignored.

    Returns:
        The overrides or searches that match, in their order.
    """

    def is_for(entries: list[Entry], wanted: Sequence[str] | None, entry: tuple[str, Entry]) -> bool:
        return wanted is None or entry[0] in (label for label, _ in selected(entries, wanted))

    return [
        override
        for override in overrides
        if is_for(study.datasets, override.datasets, at.dataset)
        and is_for(study.backbones, override.backbones, at.backbone)
        and is_for(study.methods, override.methods, at.method)
    ]


def overrides_at(study: Study, at: Combination) -> list[Override]:
    """Return the overrides of a study that select a combination.

    Args:
        study: a study with overrides.
        at: the combination, with its number of clients.

    Returns:
        The matching overrides, in their order.
    """
    overrides = matching(study, study.overrides, at)
    return [override for override in overrides if override.clients is None or at.clients in override.clients]


def merged_training(study: Study, grid: Grid, at: Combination) -> Training:
    """Return the training settings of a combination.

    Args:
        study: the study.
        grid: a grid of the study that has the combination.
        at: the combination.

    Returns:
        The study's training with all changes, in the order that the module describes.

    Raises:
        ValidationError: a changed key is unknown or invalid.
    """
    changes = [grid.training, at.dataset[1].training, at.backbone[1].training]
    changes += [override.training for override in overrides_at(study, at)]
    changes += [at.method[1].training]
    values = study.training.model_dump()
    for change in changes:
        values |= change
    return Training.model_validate(values)


def merged_protocol(study: Study, dataset: Entry) -> Protocol:
    """Return the protocol of a dataset.

    Args:
        study: the study.
        dataset: an entry of its datasets; it may change single keys of `split`.

    Returns:
        The study's protocol with the dataset's changes.

    Raises:
        ValidationError: a changed key is unknown or invalid.
    """
    values = study.protocol.model_dump()
    change = dict(dataset.protocol)
    if isinstance(change.get("split"), dict):
        change["split"] = values["split"] | change["split"]
    return Protocol.model_validate(values | change)


def datasets_of_tasks(study: Study, datasets: Sequence[str | int] | None = None) -> dict[str, list[str]]:
    """Return the datasets of each task of a study.

    Args:
        study: the study.
        datasets: labels or names of datasets; None: all datasets.

    Returns:
        Name of a task -> labels of its datasets, in the study's order.
    """
    wanted = None if datasets is None else [str(dataset) for dataset in datasets]
    by_task: dict[str, list[str]] = {}
    for label, entry in selected(study.datasets, wanted):
        by_task.setdefault(merged_protocol(study, entry).task.name, []).append(label)
    return by_task


def tasks_shown(study: Study, datasets: Sequence[str | int] | None = None) -> list[str]:
    """Return the names of the tasks of some datasets.

    Args:
        study: the study.
        datasets: labels or names of datasets; None: all datasets.

    Returns:
        Names, each once, in the order of the datasets.
    """
    return list(datasets_of_tasks(study, datasets))


def known_tasks(study: Study, datasets: Sequence[str | int] | None = None) -> list[str]:
    """Return the names of the tasks of some datasets, without unknown tasks, which validation reports.

    Args:
        study: the study.
        datasets: labels or names of datasets; None: all datasets.

    Returns:
        Names, each once, in the order of the datasets; empty if the protocol of one of them is invalid.
    """
    try:
        return [name for name in tasks_shown(study, datasets) if name in registry.names("task")]
    except ValidationError:
        return []


def merged_entries(study: Study, at: Combination) -> tuple[Entry, Entry]:
    """Return the backbone and the method of a combination, with the settings from overrides.

    Args:
        study: the study.
        at: the combination.

    Returns:
        The entry of the backbone and the entry of the method.
    """
    overrides = overrides_at(study, at)
    backbone = _overridden(at.backbone[1], [override.backbone_settings for override in overrides])
    promised = {key: value for key, value in at.method[1].training.items() if key in backbone.settings}
    return (
        with_settings(backbone, {**backbone.settings, **promised}),
        _overridden(at.method[1], [override.settings for override in overrides]),
    )


def _overridden(entry: Entry, given: list[dict[str, Any]]) -> Entry:
    values: dict[str, Any] = {}
    for change in given:
        values |= change
    return with_settings(entry, {**values, **entry.settings})


def grids_of(study: Study) -> list[Grid]:
    """Return the grids whose union is the study.

    Args:
        study: the study.

    Returns:
        The study's grids; if it has none, one grid with all of its values.
    """
    return study.grids or [Grid()]
