"""Entries of a configuration: the component behind a name, its resolved settings, and what tables call it."""

from collections.abc import Sequence
from typing import Any

from fglbench import registry
from fglbench.config.schema import Entry
from fglbench.datasets import catalogue
from fglbench.errors import ComponentError, suggest
from fglbench.settings import OF_ENTRIES, AggregatedSettings, ComponentSettings, SampledSettings


def settings_class(kind: str, name: str) -> type[ComponentSettings]:
    """The settings class of a component ("dataset", "scheme", "method", "backbone")."""
    return catalogue.get(name).settings if kind == "dataset" else registry.declaration(kind, name).settings


def with_settings(entry: Entry, settings: dict[str, Any]) -> Entry:
    """The component of an entry, under its label, with other settings."""
    return Entry.model_validate({**settings, "name": entry.name, "label": entry.label})


def component_settings(kind: str, entry: Entry, defaults: dict[str, Any] | None = None) -> ComponentSettings:
    """The resolved settings of a configured component.

    Args:
        kind: "method", "backbone", "scheme" or "dataset".
        entry: its name and own settings.
        defaults: values from elsewhere in the configuration for fields that the component has.

    Raises:
        ComponentError, DataError: no such component.
        ValidationError: a setting does not fit.
    """
    model = settings_class(kind, entry.name)
    own = {key: value for key, value in (defaults or {}).items() if key in model.model_fields and value is not None}
    return model(**{**own, **entry.settings})


def aggregation_entry(settings: ComponentSettings) -> Entry | None:
    """The method that a method with `AggregatedSettings` leaves aggregation to; None for others.

    Raises:
        ComponentError: there is no such method, it cannot aggregate for another one, or a key is none of its settings.
    """
    if not isinstance(settings, AggregatedSettings):
        return None
    name = settings.aggregation
    if wrong := set(settings.aggregation_settings) & set(OF_ENTRIES):
        raise ComponentError(f"'{min(wrong)}' is no setting of a method.")
    able = [method for method in registry.names("method") if _aggregates(method)]
    if name not in able:
        raise ComponentError(f"'{name}' is not a method that aggregates for another one. {suggest(name, able)}")
    return Entry.model_validate({**settings.aggregation_settings, "name": name})


def sampler_entry(settings: ComponentSettings) -> Entry | None:
    """The sampler that a backbone with `SampledSettings` reads through; None for others.

    Raises:
        ComponentError: there is no such sampler, or a key is none of its settings.
    """
    if not isinstance(settings, SampledSettings):
        return None
    known = registry.names("sampler")
    if settings.sampler not in known:
        raise ComponentError(f"'{settings.sampler}' is not a sampler. {suggest(settings.sampler, known)}")
    if wrong := set(settings.sampler_settings) & set(OF_ENTRIES):
        raise ComponentError(f"'{min(wrong)}' is no setting of a sampler.")
    return Entry.model_validate({**settings.sampler_settings, "name": settings.sampler})


def _aggregates(method: str) -> bool:
    """Whether a method is federated, and leaves graphs as they are: those are for the other method to change.

    A file that cannot be read, such as an unfinished one of a user, is no such method: it matters where it is named.
    """
    try:
        declared = registry.declaration("method", method)
    except ComponentError:
        return False
    alone = issubclass(declared.settings, AggregatedSettings) or declared.constants.get("CENTRALISED", False)
    alone = alone or not declared.constants.get("AGGREGATES", True)
    return not alone and not (declared.changes_graph or declared.hooks & {"prepare", "phases", "finish"})


def labels(entries: list[Entry]) -> list[str]:
    """The label of each entry: its own, its name, or name and settings where the name occurs twice.

    A method whose file names a setting as `IN_LABEL` has that setting's value beside its name: "feddc (openfgl)".
    """
    names = [entry.name for entry in entries]

    def text(entry: Entry) -> str:
        own = {**entry.settings, **entry.training, **entry.protocol}
        if entry.label or names.count(entry.name) == 1 or not own:
            return entry.label or _qualified_name(entry)
        return f"{entry.name} " + " ".join(f"{key}={value}" for key, value in own.items())

    return [text(entry) for entry in entries]


def _qualified_name(entry: Entry) -> str:
    try:
        declared = registry.declaration("method", entry.name)
    except ComponentError:  # of another kind, or a file that cannot be read, which validation names
        return entry.name
    setting = declared.constants.get("IN_LABEL")
    if setting is None:
        return entry.name
    return f"{entry.name} ({entry.settings.get(setting, declared.settings.model_fields[setting].default)})"


def selected(entries: list[Entry], wanted: Sequence[str] | None) -> list[tuple[str, Entry]]:
    """(label, entry) of the entries that are wanted, in their own order; of all where that is None.

    A label means its entry alone; a name that is no label means every entry of that name.
    """
    labelled = list(zip(labels(entries), entries, strict=True))
    names = set(wanted or ()) - {label for label, _ in labelled}
    return [(label, entry) for label, entry in labelled if wanted is None or label in wanted or entry.name in names]


def seed_list(seeds: int | list[int]) -> list[int]:
    """`seeds: 3` means 0, 1, 2."""
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)
