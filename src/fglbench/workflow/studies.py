"""Read the configuration and all study files, and report the problems of all files together."""

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
"""The name of the study that consists of the lists of the configuration."""

RESERVED = {"all", "data", "train", "tables", "figures", "report", "tune", GRID}
"""Reserved target names of the workflow, which study files cannot use."""


def load_studies(
    values: dict[str, Any], source: str, folder: Path, files: Iterable[Path], given: Mapping[str, Any]
) -> tuple[Config, dict[str, Expansion]]:
    """Load the configuration and every study.

    Args:
        values: the merged configuration.
        source: the file of the configuration, for messages.
        folder: of study files.
        files: the files that the values were read from, to find duplicate keys.
        given: the values from the command line, for messages.

    Returns:
        The configuration, and the expanded studies by name: first the study of the configuration's own lists ("grid"),
        then the study files in alphabetical order.

    Raises:
        ConfigError: with every problem found, in the configuration and in the study files.
    """
    problems: list[str] = []
    studies: dict[str, Expansion] = {}
    config: Config | None = None
    with _collected(problems):
        config = load_config(values, source, folder, files)
        fields = {key: getattr(config, key) for key in Study.model_fields}
        studies[GRID] = _expanded(Study.model_construct(**fields), source)
    for path in sorted(folder.glob("*.yaml")):
        with _collected(problems):
            studies[path.stem] = _expanded(_study(path), str(path))
    if problems or config is None:
        raise ConfigError([blamed(problem, source, given) for problem in problems])
    return config, studies


def _study(path: Path) -> Study:
    """Load a study file, and refuse names that cannot be a target of the workflow."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", path.stem) or path.stem in RESERVED:
        raise ConfigError(
            [
                f"{path}: '{path.stem}' cannot name a study, which is a target of the workflow; use lower-case "
                f"letters, digits and dashes, and none of {', '.join(sorted(RESERVED))}."
            ]
        )
    return load_study(path)


def _expanded(study: Study, source: str) -> Expansion:
    """Expand a study, and name its source in every problem."""
    try:
        return expand(study)
    except ConfigError as error:
        raise ConfigError([f"{source}: {problem}" for problem in error.problems]) from error


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    """Collect the problems of one file, so that they are reported together with those of the other files."""
    try:
        yield
    except ConfigError as error:
        problems += error.problems
