"""Reads and validates configurations: all problems in one report, before any job."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from fglbench import registry
from fglbench.config import problems as wording
from fglbench.config.schema import Config, Entry, Study
from fglbench.datasets import catalogue
from fglbench.errors import ConfigError, DataError, FglbenchError, suggest
from fglbench.reporting.quantities import QUANTITIES
from fglbench.settings import ComponentSettings

Checked = TypeVar("Checked", bound=Study)


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads a YAML mapping.

    Raises:
        ConfigError: unreadable, not YAML, or not a mapping.
    """
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError([f"{path}: cannot be read as YAML: {error}"]) from error
    if not isinstance(value, dict):
        raise ConfigError([f"{path}: holds {type(value).__name__}, not a mapping of keys."])
    return value


def load_config(values: dict[str, Any], source: str = "config.yaml", studies: Path | None = None) -> Config:
    """Validates a whole configuration.

    Args:
        values: as read from YAML, after merging.
        source: named in problems.
        studies: folder of study files, for the names under `studies`.

    Raises:
        ConfigError: with every problem found.
    """
    for folder in values.get("components") or []:
        if not Path(str(folder)).is_dir():
            raise ConfigError([f"{source}: components: '{folder}' is not a folder."])
        registry.use_folders([Path(str(folder))])
    checked, found = _validate(Config, values, source)
    if checked is not None:
        known = [path.stem for path in studies.glob("*.yaml")] if studies else []
        found += [
            f"{source}: studies[{index}]: '{name}' is not a study. {suggest(name, known)}"
            for index, name in enumerate(checked.studies)
            if name not in known
        ]
        mirror = mirror_of(checked)
        if mirror is not None and not (mirror.is_dir() and os.access(mirror, os.R_OK | os.X_OK)):
            key = "data.mirror" if checked.data.mirror else "FGLBENCH_MIRROR"
            found.append(
                f"{source}: {key}: '{mirror}' is not a readable folder; name one, or leave it out to download."
            )
    if found or checked is None:
        raise ConfigError(found)
    return checked


def load_study(path: Path) -> Study:
    """Reads and validates a study file.

    Raises:
        ConfigError: with every problem found.
    """
    checked, found = _validate(Study, read_yaml(path), str(path))
    if found or checked is None:
        raise ConfigError(found)
    return checked


def mirror_of(config: Config) -> Path | None:
    """The offline mirror: `data.mirror`, else the environment's FGLBENCH_MIRROR, else None."""
    named = config.data.mirror or os.environ.get("FGLBENCH_MIRROR")
    return Path(named) if named else None


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


def _validate(model: type[Checked], values: dict[str, Any], source: str) -> tuple[Checked | None, list[str]]:
    try:
        checked = model.model_validate(values)
    except ValidationError as error:
        return None, wording.sentences(error, model, source)
    return checked, [f"{source}: {problem}" for problem in _problems(checked)]


def _problems(study: Study) -> list[str]:
    """Everything wrong in a well-typed study: names, settings, duplicates, counts."""
    axes = [
        ("datasets", "dataset", study.datasets),
        ("partitions", "scheme", study.partitions),
        ("methods", "method", study.methods),
        ("backbones", "backbone", study.backbones),
    ]
    found: list[str] = []
    for key, kind, entries in axes:
        found += _entry_problems(key, kind, entries)
        found += _duplicates(key, [(entry.name, str(sorted(entry.settings.items()))) for entry in entries], _entry_text)
        if not found:
            found += _duplicates(key, labels(entries), lambda label: f"label '{label}'")
    found += _duplicates("clients", study.clients, str)
    if isinstance(study.seeds, list):
        found += _duplicates("seeds", study.seeds, str)
        if not study.seeds:
            found.append("seeds: the list is empty; give at least one seed.")
        found += [f"seeds[{i}]: {seed} is negative." for i, seed in enumerate(study.seeds) if seed < 0]
    elif study.seeds < 1:
        found.append(f"seeds: {study.seeds} seeds cannot be run; give 1 or more.")
    found += _client_problems(study)
    for key, shown in (("tables", study.tables), ("figures", study.figures)):
        found += _duplicates(key, [item.name for item in shown], lambda name: f"name '{name}'")
    return found + _table_problems(study)


def _table_problems(study: Study) -> list[str]:
    """A cell of a table must hold one method in one setting: what varies stands in its rows, columns or `where`."""
    values: dict[str, list[Any]] = {
        "dataset": labels(study.datasets),
        "scheme": labels(study.partitions),
        "clients": study.clients,
        "backbone": labels(study.backbones),
        "label": labels(study.methods),
    }
    found = []
    for index, table in enumerate(study.tables):
        if table.metric not in QUANTITIES:
            found.append(
                f"tables[{index}].metric: '{table.metric}' is not a metric. {suggest(table.metric, QUANTITIES)}"
            )
        fixed: dict[str, list[Any]] = {str(axis): list(kept) for axis, kept in table.where.items()}
        for axis, known in values.items():
            kept = [value for value in known if value in fixed.get(axis, known)]
            if axis in fixed and not kept:
                asked = ", ".join(str(value) for value in fixed[axis])
                found.append(
                    f"tables[{index}].where.{axis}: '{asked}' is not in this study. {suggest(asked, map(str, known))}"
                )
            elif len(kept) > 1 and axis not in [*table.rows, *table.columns]:
                found.append(
                    f"tables[{index}]: '{axis}' has {len(kept)} values in this study, so it must be among the table's "
                    "rows or columns, or be fixed under 'where'."
                )
    return found


def _entry_problems(key: str, kind: str, entries: list[Entry]) -> list[str]:
    found = []
    for index, entry in enumerate(entries):
        where = f"{key}[{index}]"
        if kind == "scheme" and entry.name == "whole":
            found.append(f"{where}: 'whole' is what centralised methods use by themselves; name a partition scheme.")
            continue
        try:
            component_settings(kind, entry)
        except ValidationError as error:
            model = settings_class(kind, entry.name)
            found += [text.removeprefix(": ") for text in wording.sentences(error, model, "", where)]
        except FglbenchError as error:
            found.append(f"{where}: {error}")
    return found


def settings_class(kind: str, name: str) -> type[ComponentSettings]:
    """The settings class of a component ("dataset", "scheme", "method", "backbone")."""
    return catalogue.get(name).settings if kind == "dataset" else registry.declaration(kind, name).settings


def _client_problems(study: Study) -> list[str]:
    found = [
        f"clients[{i}]: {count}: a federation has at least 1 client."
        for i, count in enumerate(study.clients)
        if count < 1
    ]
    for entry in study.datasets:
        try:
            nodes = catalogue.get(entry.name).counts_for(entry.settings).nodes
        except DataError:
            continue  # said already
        found += [
            f"clients[{i}]: {count} clients cannot share the {nodes} nodes of '{entry.name}'."
            for i, count in enumerate(study.clients)
            if count > nodes
        ]
    return found


def labels(entries: list[Entry]) -> list[str]:
    """How each entry is called: its label, its name, or name and settings where the name occurs twice."""
    names = [entry.name for entry in entries]

    def text(entry: Entry) -> str:
        if entry.label or names.count(entry.name) == 1 or not entry.settings:
            return entry.label or entry.name
        return f"{entry.name} " + " ".join(f"{key}={value}" for key, value in entry.settings.items())

    return [text(entry) for entry in entries]


def _entry_text(entry: tuple[str, str]) -> str:
    return f"'{entry[0]}'"


def _duplicates(key: str, values: list[Any], text: Callable[[Any], str]) -> list[str]:
    return [f"{key}: {text(value)} is listed {n} times." for value, n in Counter(values).items() if n > 1]
