"""The file of settings that a search found: overrides for a study, and the records of the searches."""

from pathlib import Path
from typing import Any, cast

from pydantic import Field, ValidationError

from fglbench.config.files import read_yaml
from fglbench.config.schema import Checked, Override, Study
from fglbench.config.validation.overrides import override_problems
from fglbench.config.validation.wording import sentences
from fglbench.errors import ConfigError, suggest
from fglbench.records.search import SearchRecord
from fglbench.settings import Section

FOLDER = "tuned"


class TunedFile(Section):
    """The content of the file that `fglbench tune` writes."""

    overrides: list[Override] = Field(description="The best settings of each search.")
    searches: list[dict[str, Any]] = Field([], description="Ranges, seeds, trials and best value of each search.")


def with_tuned(study: Checked, studies: Path | None) -> Checked:
    """Return the study with the overrides of its `tuned` file after its own overrides.

    Args:
        study: a well-typed study that has the key `tuned`.
        studies: folder of study files, with the file in its subfolder `tuned/`; None: the working directory.

    Returns:
        A copy of the study with more overrides.

    Raises:
        ConfigError: there is no such file, or its overrides do not fit the study.
    """
    folder = (studies or Path()) / FOLDER
    path = folder / f"{study.tuned}.yaml"
    if not path.is_file():
        names = [file.stem for file in folder.glob("*.yaml")] if studies else []
        raise ConfigError(
            [
                f"tuned: '{study.tuned}' is not a file of settings in {folder}. {suggest(study.tuned, names)} "
                "'fglbench tune <study>' writes such a file. Without this key, the study runs with its own settings."
            ]
        )
    tuned = _read(path)
    problems = [
        f"{path}: {problem}"
        for index, override in enumerate(tuned.overrides)
        for problem in override_problems(study, f"overrides[{index}]", override)
    ]
    if problems:
        raise ConfigError(problems)
    return study.model_copy(update={"overrides": [*study.overrides, *tuned.overrides]})


def shipped_searches(study: Study, studies: Path) -> dict[str, SearchRecord]:
    """Return the records of the searches in a study's `tuned` file.

    Args:
        study: a study whose `tuned` file was validated.
        studies: folder of study files.

    Returns:
        Slug of a search -> its record; empty if the study has no key `tuned`.

    Raises:
        ConfigError: the file is missing or invalid.
    """
    if study.tuned is None:
        return {}
    tuned = _read(studies / FOLDER / f"{study.tuned}.yaml")
    return {record["search"]: cast(SearchRecord, record) for record in tuned.searches if "search" in record}


def _read(path: Path) -> TunedFile:
    try:
        return TunedFile.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(sentences(error, TunedFile, str(path))) from error
