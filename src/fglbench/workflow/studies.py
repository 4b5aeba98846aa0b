"""The configuration and all study files, read together: problems of every file are told at once."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fglbench.config.expand import Expansion, expand
from fglbench.config.given import blamed
from fglbench.config.load import load_config, load_study
from fglbench.config.schema import Config, Study
from fglbench.errors import ConfigError

GRID = "grid"
"""The study that the lists of the configuration make."""

RESERVED = {"all", "data", "train", "tables", "figures", "report", "tune", GRID}
"""Targets of the workflow; no study has one of these names."""


def load_studies(
    values: dict[str, Any], source: str, folder: Path, files: Iterable[Path], given: Mapping[str, Any]
) -> tuple[Config, dict[str, Expansion]]:
    """The configuration, and every study by name: that of its own lists, then those of the study files.

    Args:
        values: the merged configuration.
        source: its file, for messages.
        folder: of study files.
        files: that the values were read from, to find keys that they give twice.
        given: the part of the values that the command line gave.

    Raises:
        ConfigError: with every problem found, in the configuration and in the study files.
    """
    found: list[str] = []
    studies: dict[str, Expansion] = {}
    config: Config | None = None
    with _collected(found):
        config = load_config(values, source, folder, files)
        fields = {key: getattr(config, key) for key in Study.model_fields}
        studies[GRID] = _expanded(Study.model_construct(**fields), source)
    for path in sorted(folder.glob("*.yaml")):
        with _collected(found):
            studies[path.stem] = _expanded(_study(path), str(path))
    if found or config is None:
        raise ConfigError([blamed(problem, source, given) for problem in found])
    return config, studies


def _study(path: Path) -> Study:
    """A study file whose name may be a target of the workflow."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", path.stem) or path.stem in RESERVED:
        raise ConfigError(
            [
                f"{path}: '{path.stem}' cannot name a study, which is a target of the workflow; use lower-case "
                f"letters, digits and dashes, and none of {', '.join(sorted(RESERVED))}."
            ]
        )
    return load_study(path)


def _expanded(study: Study, source: str) -> Expansion:
    try:
        return expand(study)
    except ConfigError as error:
        raise ConfigError([f"{source}: {problem}" for problem in error.problems]) from error


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    """Collects the problems of one file, so that those of the others are told with them."""
    try:
        yield
    except ConfigError as error:
        problems += error.problems
