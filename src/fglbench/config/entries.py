"""Entries of a configuration: the component behind a name, its resolved settings, and what tables call it."""

from typing import Any

from fglbench import registry
from fglbench.config.schema import Entry
from fglbench.datasets import catalogue
from fglbench.settings import ComponentSettings


def settings_class(kind: str, name: str) -> type[ComponentSettings]:
    """The settings class of a component ("dataset", "scheme", "method", "backbone")."""
    return catalogue.get(name).settings if kind == "dataset" else registry.declaration(kind, name).settings


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


def labels(entries: list[Entry]) -> list[str]:
    """How each entry is called: its label, its name, or name and settings where the name occurs twice."""
    names = [entry.name for entry in entries]

    def text(entry: Entry) -> str:
        if entry.label or names.count(entry.name) == 1 or not entry.settings:
            return entry.label or entry.name
        return f"{entry.name} " + " ".join(f"{key}={value}" for key, value in entry.settings.items())

    return [text(entry) for entry in entries]
