"""The settings a cell is run with: the study's, changed by a grid, entries and overrides.

Training: study, grid, dataset, backbone, overrides, method; a later one wins. Protocol: study, dataset. Settings of a
component: its defaults, overrides, its own entry; of a backbone also hidden width and dropout of the method's training.
What an entry of methods states itself thus always stands, for its label promises it.
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
    """A dataset, backbone and method of a grid, each with its label, and a number of clients."""

    dataset: tuple[str, Entry]
    backbone: tuple[str, Entry]
    method: tuple[str, Entry]
    clients: int


Selecting = TypeVar("Selecting", Override, Search)


def matching(study: Study, overrides: Sequence[Selecting], at: Combination) -> list[Selecting]:
    """Of some overrides or searches of a study those that are for a combination, in their order."""

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
    """The overrides of a study that are for a combination, in their order."""
    found = matching(study, study.overrides, at)
    return [override for override in found if override.clients is None or at.clients in override.clients]


def merged_training(study: Study, grid: Grid, at: Combination) -> Training:
    """How the clients of a combination train.

    Raises:
        ValidationError: a changed key is unknown or does not fit.
    """
    changes = [grid.training, at.dataset[1].training, at.backbone[1].training]
    changes += [override.training for override in overrides_at(study, at)]
    changes += [at.method[1].training]
    values = study.training.model_dump()
    for change in changes:
        values |= change
    return Training.model_validate(values)


def merged_protocol(study: Study, dataset: Entry) -> Protocol:
    """What is measured on a dataset; of `split`, single keys may differ.

    Raises:
        ValidationError: a changed key is unknown or does not fit.
    """
    values = study.protocol.model_dump()
    change = dict(dataset.protocol)
    if isinstance(change.get("split"), dict):
        change["split"] = values["split"] | change["split"]
    return Protocol.model_validate(values | change)


def datasets_of_tasks(study: Study, datasets: Sequence[str] | None = None) -> dict[str, list[str]]:
    """By task the labels of the datasets that have it, of some, by label or name, or of all, in the study's order."""
    found: dict[str, list[str]] = {}
    for label, entry in selected(study.datasets, datasets):
        found.setdefault(merged_protocol(study, entry).task.name, []).append(label)
    return found


def tasks_shown(study: Study, datasets: Sequence[str] | None = None) -> list[str]:
    """The names of the tasks of some datasets, by label or name, or of all; each once, in the order of the datasets."""
    return list(datasets_of_tasks(study, datasets))


def known_tasks(study: Study, datasets: Sequence[Any] | None = None) -> list[str]:
    """The same without names that are no task and datasets whose protocol is wrong, which is told elsewhere."""
    try:
        wanted = None if datasets is None else [str(dataset) for dataset in datasets]
        return [name for name in tasks_shown(study, wanted) if name in registry.names("task")]
    except ValidationError:
        return []


def merged_entries(study: Study, at: Combination) -> tuple[Entry, Entry]:
    """The backbone and the method of a combination, with the settings that overrides give them."""
    found = overrides_at(study, at)
    backbone = _overridden(at.backbone[1], [override.backbone_settings for override in found])
    promised = {key: value for key, value in at.method[1].training.items() if key in backbone.settings}
    return (
        with_settings(backbone, {**backbone.settings, **promised}),
        _overridden(at.method[1], [override.settings for override in found]),
    )


def _overridden(entry: Entry, given: list[dict[str, Any]]) -> Entry:
    values: dict[str, Any] = {}
    for change in given:
        values |= change
    return with_settings(entry, {**values, **entry.settings})


def grids_of(study: Study) -> list[Grid]:
    """The products whose union the study is: its grids, or one of everything."""
    return study.grids or [Grid()]
