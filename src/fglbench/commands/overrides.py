"""`--set key=value`: change any setting of a cell by name; an error suggests the closest valid name."""

from collections.abc import Iterator
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from fglbench.config.entries import settings_class
from fglbench.config.schema import Entry, Protocol, Training
from fglbench.errors import ConfigError, suggest

ENTRIES = {"dataset": "datasets", "scheme": "partitions", "method": "methods", "backbone": "backbones"}
BARE = ("method", "backbone", "training", "scheme", "dataset")
SECTIONS: dict[str, type[BaseModel]] = {"training": Training, "protocol": Protocol}


def scalar(text: str) -> Any:
    """Return the value of a text, as YAML reads it.

    YAML reads `1e-3` as text; here it is a number, as in other command lines.

    Args:
        text: the text of a value.

    Returns:
        The value; the text itself if it is not valid YAML.
    """
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def split_assignment(assignment: str) -> tuple[str, Any]:
    """Return key and value of an assignment: "mu=0.01" -> ("mu", 0.01).

    Args:
        assignment: "key=value".

    Returns:
        The key as text, and the value as `scalar` reads it.

    Raises:
        ConfigError: the text has no "=", or nothing before it.
    """
    key, equals, text = assignment.partition("=")
    if not equals or not key:
        raise ConfigError([f"--set {assignment}: write key=value, as in --set mu=0.01."])
    return key.strip(), scalar(text)


def apply(assignments: list[str], values: dict[str, Any]) -> None:
    """Write assignments into the values of a configuration with one cell.

    A key may name its section: `dataset.nodes`, `scheme.alpha`, `method.mu`, `backbone.depth`, `training.lr`,
    `protocol.split.train`. A bare key is looked up in this order: method, backbone, training, scheme, dataset.

    Args:
        assignments: "key=value" each.
        values: as in `config.yaml`, with one entry in each list; changed in place.

    Raises:
        ConfigError: with every unknown key and the closest valid one.
        ComponentError, DataError: no such component.
    """
    keys = {section: _keys(section, values) for section in (*ENTRIES, *SECTIONS)}
    bare = [key for section in BARE for key in keys[section]]
    valid = [*bare, *(f"{section}.{key}" for section in ("dataset", "scheme", "protocol") for key in keys[section])]
    problems = []
    for assignment in assignments:
        key, value = split_assignment(assignment)
        section, dot, rest = key.partition(".")
        if not (dot and section in keys):
            section = next((name for name in BARE if key in keys[name]), "")
            rest = key
        if section and rest in keys[section]:
            _put(values, section, rest, value)
        else:
            problems.append(f"--set {assignment}: '{key}' is not a setting here. {suggest(key, valid)}")
    if problems:
        raise ConfigError(problems)


def _keys(section: str, values: dict[str, Any]) -> list[str]:
    if section in SECTIONS:
        return list(_paths(SECTIONS[section]))
    return list(settings_class(section, values[ENTRIES[section]][0]["name"]).model_fields)


def _paths(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = next((part for part in (field.annotation, *get_args(field.annotation)) if _is_model(part)), None)
        if inner is None or issubclass(inner, Entry):
            yield name
        else:
            yield from (f"{name}.{key}" for key in _paths(inner))


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _put(values: dict[str, Any], section: str, key: str, value: Any) -> None:
    target = values[ENTRIES[section]][0] if section in ENTRIES else values.setdefault(section, {})
    *parents, last = key.split(".")
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
