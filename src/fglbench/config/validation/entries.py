"""Entries of datasets, partitions, methods, backbones and tasks: names, settings, duplicates."""

from typing import Any

from pydantic import ValidationError

from fglbench.config.entries import (
    aggregation_entry,
    component_settings,
    labels,
    sampler_entry,
    settings_class,
    with_settings,
)
from fglbench.config.schema import Entry, Study
from fglbench.config.validation.wording import duplicates, sentences, unknown_names
from fglbench.errors import FglbenchError
from fglbench.settings import OF_ENTRIES

_PRINTED = {
    "dataset": ("dataset",),
    "scheme": ("partition",),
    "method": ("method", "backbone", "variant"),
    "backbone": (),
}


def entries_problems(study: Study) -> list[str]:
    """Return the problems of all entries of a study.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems: list[str] = []
    for key, kind, entries in (
        ("datasets", "dataset", study.datasets),
        ("partitions", "scheme", study.partitions),
        ("methods", "method", study.methods),
        ("backbones", "backbone", study.backbones),
    ):
        problems += entry_problems(key, kind, entries)
        sound = [entry for entry in entries if not entry_problems(key, kind, [entry])]
        # Equal entries are valid if their labels differ, because overrides and grids can select them by label.
        resolved = [
            (entry.name, f"{entry.label} {component_settings(kind, entry)} {entry.training} {entry.protocol}")
            for entry in sound
        ]
        repeated = duplicates(key, resolved, lambda entry: f"'{entry[0]}'")
        problems += repeated or duplicates(key, labels(entries), lambda label: f"label '{label}'")
    return problems


def entry_problems(key: str, kind: str, entries: list[Entry]) -> list[str]:
    """Return the problems of some entries.

    Args:
        key: key of the list: "datasets", "partitions", "methods" or "backbones".
        kind: "dataset", "scheme", "method" or "backbone".
        entries: the entries of the list.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems = []
    for index, entry in enumerate(entries):
        where = f"{key}[{index}]"
        if kind == "scheme" and entry.name == "whole":
            problems.append(
                f"{where}: 'whole' is reserved; centralised methods use it automatically. Name another scheme."
            )
            continue
        problems += settings_problems(where, kind, entry)
        if kind == "scheme" and entry.training:
            problems.append(
                f"{where}.training: a partition scheme has no training; move these keys to a dataset or a grid."
            )
        if kind != "dataset" and entry.protocol:
            problems.append(f"{where}.protocol: only an entry of datasets can change the protocol.")
        for column in entry.printed:
            if column not in _PRINTED[kind]:
                problems.append(
                    f"{where}.printed.{column}: entries of {key} have no name in the column '{column}'. Valid: "
                    "'dataset' for datasets, 'partition' for partitions, 'method', 'backbone' and 'variant' for "
                    "methods, none for backbones."
                )
    return problems


def task_problems(where: str, task: Entry) -> list[str]:
    """Return the problems of a task.

    Args:
        where: key of the task, such as "protocol.task".
        task: name and settings of the task.

    Returns:
        One sentence for each problem, with its key first.
    """
    given = {"label": task.label, "training": task.training, "protocol": task.protocol, "printed": task.printed}
    beside = [f"{where}.{key}: a task has no such key; leave it out." for key, value in given.items() if value]
    return beside or settings_problems(where, "task", task)


def settings_problems(where: str, kind: str, entry: Entry) -> list[str]:
    """Return the problems of an entry's settings.

    The settings may name another component: the method that aggregates, or a sampler. Its settings are checked as well.

    Args:
        where: key of the entry.
        kind: "dataset", "scheme", "method", "backbone", "task" or "sampler".
        entry: name and settings of the component.

    Returns:
        One sentence for each problem, with its key first; empty if the settings are valid.
    """
    if problems := own_problems(where, kind, entry):
        return problems
    settings = component_settings(kind, entry)
    for key, named, entry_in in (("aggregation", "method", aggregation_entry), ("sampler", "sampler", sampler_entry)):
        try:
            inner = entry_in(settings)
        except FglbenchError as error:
            return [f"{where}.{key}: {error}"]
        if inner:
            return settings_problems(f"{where}.{key}_settings", named, inner)
    return []


def own_problems(where: str, kind: str, entry: Entry) -> list[str]:
    """Return the problems of an entry's settings, without those of a component that the settings name.

    Args:
        where: key of the entry.
        kind: "dataset", "scheme", "method", "backbone", "task" or "sampler".
        entry: name and settings of the component.

    Returns:
        One sentence for each problem, with its key first; empty if the settings are valid.
    """
    try:
        component_settings(kind, entry)
    except ValidationError as error:
        model = settings_class(kind, entry.name)
        return [text.removeprefix(": ") for text in sentences(error, model, "", where)]
    except FglbenchError as error:
        return [f"{where}: {error}"]
    return []


def given_settings_problems(kind: str, entry: Entry, values: dict[str, Any], where: str) -> list[str]:
    """Return the problems of settings that an override gives to an entry.

    Args:
        kind: "method" or "backbone".
        entry: an entry that the override selects.
        values: settings from the override.
        where: key of these settings.

    Returns:
        One sentence for each problem, with its key first; empty if the entry's own settings are invalid, which
        another check reports.
    """
    if wrong := [key for key in values if key in OF_ENTRIES]:
        return [f"{where}: '{key}' is not a setting of a {kind}." for key in wrong]
    if settings_problems("", kind, entry):
        return []
    # The values are checked alone, because the entry's settings can hide a wrong one, and then together with these
    # settings, because they may name the method that aggregates.
    alone, together = with_settings(entry, values), with_settings(entry, {**values, **entry.settings})
    return own_problems(where, kind, alone) or settings_problems(where, kind, together)


def unknown_entries(where: str, wanted: list[str] | None, entries: list[Entry]) -> list[str]:
    """Return a problem for each label or name that no entry has.

    Args:
        where: key of the list of labels and names.
        wanted: labels and names; None: nothing to check.
        entries: the entries that may be selected.

    Returns:
        One sentence for each unknown label or name.
    """
    return unknown_names(where, wanted, dict.fromkeys([*labels(entries), *(entry.name for entry in entries)]))
