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
    problems: list[str] = []

    def visit(node: Any) -> None:
        keys: set[Any] = set()
        for child in node.value if isinstance(node, yaml.CollectionNode) else []:
            if isinstance(child, tuple):
                key, value = child
                if isinstance(key, yaml.ScalarNode) and key.value in keys:
                    line = key.start_mark.line + 1
                    problems.append(f"{path}: line {line}: '{key.value}' is given a second time; keep one of the two.")
                keys.add(key.value if isinstance(key, yaml.ScalarNode) else None)
                visit(value)
            else:
                visit(child)

    visit(root)
    return problems


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
    problems = [problem for path in files for problem in repeated_keys(path)]
    problems += _use_components(values.get("components"), source)
    config, invalid = _validate(Config, values, source, studies)
    problems += invalid
    if config is not None:
        names = [path.stem for path in studies.glob("*.yaml")] if studies else []
        problems += [
            f"{source}: studies[{index}]: '{name}' is not a study. {suggest(name, names)}"
            for index, name in enumerate(config.studies)
            if name not in names
        ]
        problems += [
            f"{source}: studies: '{name}' is listed {n} times." for name, n in Counter(config.studies).items() if n > 1
        ]
        mirror = mirror_of(config)
        if mirror is not None and not (mirror.is_dir() and os.access(mirror, os.R_OK | os.X_OK)):
            key = "data.mirror" if config.data.mirror else "FGLBENCH_MIRROR"
            problems.append(
                f"{source}: {key}: '{mirror}' is not a readable folder; name a readable one, or leave it out to "
                "download the data."
            )
    if problems or config is None:
        raise ConfigError(problems)
    return config


def _use_components(components: Any, source: str) -> list[str]:
    """Register the components in the named folders; return a problem for each that is not a folder."""
    folders = components.get("folders") if isinstance(components, dict) else components
    if not isinstance(folders, list):
        return []  # no key, or a value that validation reports
    missing = [str(folder) for folder in folders if not Path(str(folder)).is_dir()]
    registry.use_folders([Path(str(folder)) for folder in folders if str(folder) not in missing])
    hint = "Name a folder relative to the working directory, or remove the entry."
    return [f"{source}: components: '{folder}' is not a folder. {hint}" for folder in missing]


def load_study(path: Path) -> Study:
    """Load and validate a study file.

    Args:
        path: the file, in the folder of study files.

    Returns:
        The study, with default tables and figures and the overrides of its `tuned` file.

    Raises:
        ConfigError: with every problem found.
    """
    study, invalid = _validate(Study, read_yaml(path), str(path), path.parent)
    problems = repeated_keys(path) + invalid
    if problems or study is None:
        raise ConfigError(problems)
    return study


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
        study = model.model_validate(values)
    except ValidationError as error:
        problems = sentences(error, model, source)
        try:
            study = model.model_validate(_without_errors(model, values, error))
        except ValidationError:
            return None, problems
        return study, problems + [f"{source}: {problem}" for problem in study_problems(study)]
    study = with_shown(study)
    by_key = [*study_problems(study), *shown_problems(study)]
    if studies is not None:
        by_key += reference_problems(study, studies)
    problems = [f"{source}: {problem}" for problem in by_key]
    if study.tuned is not None:
        try:
            study = with_tuned(study, studies)
        except ConfigError as error:
            problems += [text if text.startswith(str(studies)) else f"{source}: {text}" for text in error.problems]
    return study, problems


def _without_errors(model: type[Study], values: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """Return the values without the keys and list items that were invalid.

    A required key that is then missing gets a valid value.
    """
    invalid: dict[str, set[int | None]] = {}
    for finding in error.errors(include_url=False):
        key, *inner = finding["loc"]
        invalid.setdefault(str(key), set()).add(inner[0] if inner and isinstance(inner[0], int) else None)
    valid = {key: value for key, value in values.items() if key not in invalid}
    for key, indices in invalid.items():
        if None not in indices and isinstance(values.get(key), list):
            entries = [value for index, value in enumerate(values[key]) if index not in indices]
            if entries:
                valid[key] = entries
    return {**{key: value for key, value in _HARMLESS.items() if key in model.model_fields}, **valid}


_HARMLESS = {"datasets": ["karate"], "partitions": ["random"], "clients": [1], "methods": ["local"]}
