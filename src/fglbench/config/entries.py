"""Entries of a configuration: the component behind a name, its resolved settings, and its label in tables."""

from collections.abc import Sequence
from typing import Any

from fglbench import registry
from fglbench.config.schema import Entry
from fglbench.datasets import catalogue
from fglbench.errors import ComponentError, suggest
from fglbench.settings import OF_ENTRIES, AggregatedSettings, ComponentSettings, SampledSettings


def settings_class(kind: str, name: str) -> type[ComponentSettings]:
    """Return the settings class of a component.

    Args:
        kind: "dataset", "scheme", "method", "backbone", "task" or "sampler".
        name: the component's name.

    Returns:
        `ComponentSettings` or a subclass of it.

    Raises:
        ComponentError, DataError: no such component.
    """
    return catalogue.get(name).settings if kind == "dataset" else registry.declaration(kind, name).settings


def with_settings(entry: Entry, settings: dict[str, Any]) -> Entry:
    """Return an entry with the same name and label, but other settings.

    Args:
        entry: gives name and label.
        settings: all settings of the new entry.

    Returns:
        A new entry without `training`, `protocol` and `printed`.
    """
    return Entry.model_validate({**settings, "name": entry.name, "label": entry.label})


def component_settings(kind: str, entry: Entry, defaults: dict[str, Any] | None = None) -> ComponentSettings:
    """Return the resolved settings of a configured component.

    Args:
        kind: "method", "backbone", "scheme", "dataset", "task" or "sampler".
        entry: name and own settings of the component.
        defaults: values from elsewhere in the configuration, which the entry's own settings replace. None values and
            fields that the component does not have are ignored.

    Returns:
        An instance of the component's settings class.

    Raises:
        ComponentError, DataError: no such component.
        ValidationError: a setting is invalid.
    """
    model = settings_class(kind, entry.name)
    inherited = {key: value for key, value in (defaults or {}).items() if key in model.model_fields}
    given = {key: value for key, value in inherited.items() if value is not None}
    return model(**{**given, **entry.settings})


def aggregation_entry(settings: ComponentSettings) -> Entry | None:
    """Return the method that another method uses for aggregation.

    Args:
        settings: resolved settings of a method.

    Returns:
        Name and settings of the aggregating method; None if `settings` are not `AggregatedSettings`.

    Raises:
        ComponentError: there is no such method, it cannot aggregate for another one, or a key is not a setting of it.
    """
    if not isinstance(settings, AggregatedSettings):
        return None
    name = settings.aggregation
    if wrong := set(settings.aggregation_settings) & set(OF_ENTRIES):
        raise ComponentError(f"'{min(wrong)}' is not a setting of a method.")
    aggregating = [method for method in registry.names("method") if _aggregates(method)]
    if name not in aggregating:
        raise ComponentError(f"'{name}' is not a method that aggregates for another one. {suggest(name, aggregating)}")
    return Entry.model_validate({**settings.aggregation_settings, "name": name})


def sampler_entry(settings: ComponentSettings) -> Entry | None:
    """Return the sampler that a backbone uses.

    Args:
        settings: resolved settings of a backbone.

    Returns:
        Name and settings of the sampler; None if `settings` are not `SampledSettings`.

    Raises:
        ComponentError: there is no such sampler, or a key is not a setting of it.
    """
    if not isinstance(settings, SampledSettings):
        return None
    samplers = registry.names("sampler")
    if settings.sampler not in samplers:
        raise ComponentError(f"'{settings.sampler}' is not a sampler. {suggest(settings.sampler, samplers)}")
    if wrong := set(settings.sampler_settings) & set(OF_ENTRIES):
        raise ComponentError(f"'{min(wrong)}' is not a setting of a sampler.")
    return Entry.model_validate({**settings.sampler_settings, "name": settings.sampler})


def _aggregates(method: str) -> bool:
    """Return whether a method can aggregate for another one: it is federated and leaves the graphs to the other method.

    A file that cannot be read, such as an unfinished one of a user, does not count. Its error is reported where a
    configuration names it.
    """
    try:
        declared = registry.declaration("method", method)
    except ComponentError:
        return False
    alone = issubclass(declared.settings, AggregatedSettings) or declared.constants.get("CENTRALISED", False)
    alone = alone or not declared.constants.get("AGGREGATES", True)
    return not alone and not (declared.changes_graph or declared.hooks & {"prepare", "phases", "finish"})


def labels(entries: list[Entry]) -> list[str]:
    """Return the label of each entry.

    An entry without a label of its own is labelled by its name. If several entries have that name, its settings follow
    the name. If a method's file names a setting as `IN_LABEL`, the value of that setting follows the name:
    "feddc (openfgl)".

    Args:
        entries: one list of a study, such as its methods.

    Returns:
        Labels in the order of the entries.
    """
    names = [entry.name for entry in entries]

    def text(entry: Entry) -> str:
        given = {**entry.settings, **entry.training, **entry.protocol}
        if entry.label or names.count(entry.name) == 1 or not given:
            return entry.label or _qualified_name(entry)
        return f"{entry.name} " + " ".join(f"{key}={value}" for key, value in given.items())

    return [text(entry) for entry in entries]


def _qualified_name(entry: Entry) -> str:
    try:
        declared = registry.declaration("method", entry.name)
    except ComponentError:  # a component of another kind, or an unreadable file, which validation reports
        return entry.name
    setting = declared.constants.get("IN_LABEL")
    if setting is None:
        return entry.name
    return f"{entry.name} ({entry.settings.get(setting, declared.settings.model_fields[setting].default)})"


def selected(entries: list[Entry], wanted: Sequence[str] | None) -> list[tuple[str, Entry]]:
    """Return the entries that a list of labels and names selects.

    A label selects only its own entry. A name that is not a label selects every entry of that name.

    Args:
        entries: one list of a study, such as its methods.
        wanted: labels or names; None: all entries.

    Returns:
        (label, entry) of each selected entry, in the order of `entries`.
    """
    labelled = list(zip(labels(entries), entries, strict=True))
    names = set(wanted or ()) - {label for label, _ in labelled}
    return [(label, entry) for label, entry in labelled if wanted is None or label in wanted or entry.name in names]


def seed_list(seeds: int | list[int]) -> list[int]:
    """Return the seeds as a list: `seeds: 3` means 0, 1, 2.

    Args:
        seeds: number of seeds, or the seeds themselves.

    Returns:
        The seeds, in the given order.
    """
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)
