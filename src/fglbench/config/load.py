"""Loading and validation of configurations: all problems in one report, before any job."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from fglbench import registry
from fglbench.config.files import read_yaml
from fglbench.config.schema import Checked, Config, Study
from fglbench.config.shown import with_shown
from fglbench.config.tuned import with_tuned
from fglbench.config.validation import study_problems
from fglbench.config.validation.reference import reference_problems
from fglbench.config.validation.tables import shown_problems
from fglbench.config.validation.wording import sentences
from fglbench.datasets.availability import mirror_folder
from fglbench.errors import ConfigError, suggest


def repeated_keys(path: Path) -> list[str]:
    """Return the keys that a YAML file gives twice in one mapping; YAML itself would silently use the last one.

    Args:
        path: the file.

    Returns:
        One problem for each repeated key; empty if the file cannot be read, which `read_yaml` reports.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    found: list[str] = []

    def visit(node: Any) -> None:
        keys: set[Any] = set()
        for child in node.value if isinstance(node, yaml.CollectionNode) else []:
            if isinstance(child, tuple):
                key, value = child
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    line = key.start_mark.line + 1
                    found.append(f"{path}: line {line}: '{key.value}' is given a second time; keep one of the two.")
                keys.add(key.value if isinstance(key, yaml.ScalarNode) else None)
                visit(value)
            else:
                visit(child)

    visit(root)
    return found


def typed(merged: Any, given: Any) -> Any:
    """Return merged values in which the values from Snakemake's `--config` have YAML's types.

    Snakemake passes on the items of lists and mappings (`--config clients=[5]`) as text. Values from a file have YAML's
    types already, and a quoted value in a file is meant as text.

    Args:
        merged: the configuration after merging.
        given: the part of the configuration that `--config` gave.

    Returns:
        `merged`, with the text that `--config` gave read as YAML.
    """
    if isinstance(given, dict) and isinstance(merged, dict):
        return {**merged, **{key: typed(merged[key], value) for key, value in given.items() if key in merged}}
    if isinstance(given, list) and isinstance(merged, list):
        return [typed(value, value) for value in merged]
    if isinstance(given, str) and isinstance(merged, str):
        try:
            return yaml.safe_load(merged)
        except yaml.YAMLError:
            return merged
    return merged


def load_config(
    values: dict[str, Any], source: str = "config.yaml", studies: Path | None = None, files: Iterable[Path] = ()
) -> Config:
    """Validate a whole configuration.

    Args:
        values: the values as read from YAML, after merging.
        source: the name of the file in problems.
        studies: folder of study files, printed numbers and `tuned` files; None: printed numbers are not checked.
        files: the files that the values came from, to find repeated keys.

    Returns:
        The configuration, with default tables and figures and the overrides of its `tuned` file.

    Raises:
        ConfigError: with every problem found.
    """
    found = [problem for path in files for problem in repeated_keys(path)]
    found += _use_components(values.get("components"), source)
    known, problems = _validate(Config, values, source, studies)
    found += problems
    if known is not None:
        names = [path.stem for path in studies.glob("*.yaml")] if studies else []
        found += [
            f"{source}: studies[{index}]: '{name}' is not a study. {suggest(name, names)}"
            for index, name in enumerate(known.studies)
            if name not in names
        ]
        found += [
            f"{source}: studies: '{name}' is listed {n} times." for name, n in Counter(known.studies).items() if n > 1
        ]
        mirror = mirror_of(known)
        if mirror is not None and not (mirror.is_dir() and os.access(mirror, os.R_OK | os.X_OK)):
            key = "data.mirror" if known.data.mirror else "FGLBENCH_MIRROR"
            found.append(
                f"{source}: {key}: '{mirror}' is not a readable folder; name one, or leave it out to download."
            )
    if found or known is None:
        raise ConfigError(found)
    return known


def _use_components(components: Any, source: str) -> list[str]:
    """Register the components in the named folders; return a problem for each that is not a folder."""
    folders = components.get("folders") if isinstance(components, dict) else components
    if not isinstance(folders, list):
        return []  # no key, or a value that validation reports
    missing = [str(folder) for folder in folders if not Path(str(folder)).is_dir()]
    registry.use_folders([Path(str(folder)) for folder in folders if str(folder) not in missing])
    return [f"{source}: components: '{folder}' is not a folder." for folder in missing]


def load_study(path: Path) -> Study:
    """Load and validate a study file.

    Args:
        path: the file, in the folder of study files.

    Returns:
        The study, with default tables and figures and the overrides of its `tuned` file.

    Raises:
        ConfigError: with every problem found.
    """
    known, found = _validate(Study, read_yaml(path), str(path), path.parent)
    found = repeated_keys(path) + found
    if found or known is None:
        raise ConfigError(found)
    return known


def mirror_of(config: Config) -> Path | None:
    """Return the folder of the offline mirror.

    Args:
        config: a configuration.

    Returns:
        `data.mirror`, else the environment variable FGLBENCH_MIRROR, else None.
    """
    return mirror_folder(config.data.mirror)


def _validate(
    model: type[Checked], values: dict[str, Any], source: str, studies: Path | None
) -> tuple[Checked | None, list[str]]:
    """Return the well-typed part of the values (None if there is none) and all problems.

    A value of a wrong type does not hide the problems of the other values.
    """
    try:
        known = model.model_validate(values)
    except ValidationError as error:
        found = sentences(error, model, source)
        try:
            known = model.model_validate(_without_errors(model, values, error))
        except ValidationError:
            return None, found
        return known, found + [f"{source}: {problem}" for problem in study_problems(known)]
    known = with_shown(known)
    wrong = [*study_problems(known), *shown_problems(known)]
    if studies is not None:
        wrong += reference_problems(known, studies)
    found = [f"{source}: {problem}" for problem in wrong]
    if known.tuned is not None:
        try:
            known = with_tuned(known, studies)
        except ConfigError as error:
            found += [text if text.startswith(str(studies)) else f"{source}: {text}" for text in error.problems]
    return known, found


def _without_errors(model: type[Study], values: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """Return the values without the keys and list items that were invalid.

    A required key that is then missing gets a valid value.
    """
    bad: dict[str, set[int | None]] = {}
    for finding in error.errors(include_url=False):
        key, *inner = finding["loc"]
        bad.setdefault(str(key), set()).add(inner[0] if inner and isinstance(inner[0], int) else None)
    kept = {key: value for key, value in values.items() if key not in bad}
    for key, places in bad.items():
        if None not in places and isinstance(values.get(key), list):
            entries = [value for index, value in enumerate(values[key]) if index not in places]
            if entries:
                kept[key] = entries
    return {**{key: value for key, value in _HARMLESS.items() if key in model.model_fields}, **kept}


_HARMLESS = {"datasets": ["karate"], "partitions": ["random"], "clients": [1], "methods": ["local"]}
