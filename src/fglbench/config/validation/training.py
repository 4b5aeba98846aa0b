"""Local training, and the keys of the protocol that a dataset can change."""

from typing import Any

from pydantic import ValidationError

from fglbench.config.merge import merged_protocol
from fglbench.config.schema import Entry, Protocol, Study, Training
from fglbench.config.validation.wording import sentences

PROTOCOL = ("split", "setting", "features", "task")
"""Keys of the protocol that may differ by dataset. The other keys determine the meaning of whole tables."""


def training_of_entries(study: Study) -> list[str]:
    """Return the problems of `training` and `protocol` in the entries of a study.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems: list[str] = []
    for key, entries in (("datasets", study.datasets), ("methods", study.methods), ("backbones", study.backbones)):
        for index, entry in enumerate(entries):
            problems += training_problems(study, f"{key}[{index}].training", entry.training)
            if key == "datasets":
                problems += _protocol_problems(study, f"{key}[{index}].protocol", entry)
    return problems


def training_problems(study: Study, where: str, values: dict[str, Any]) -> list[str]:
    """Return the problems of some keys of `training`.

    Args:
        study: a well-typed study, whose training the keys change.
        where: key of the values.
        values: the changed keys.

    Returns:
        One sentence for each problem, with its key first.
    """
    try:
        Training.model_validate({**study.training.model_dump(), **values})
    except ValidationError as error:
        return [text.removeprefix(": ") for text in sentences(error, Training, "", where)]
    return []


def _protocol_problems(study: Study, where: str, entry: Entry) -> list[str]:
    """Return the problems of the keys of `protocol` that a dataset changes."""
    common = [key for key in entry.protocol if key in Protocol.model_fields and key not in PROTOCOL]
    if common:
        return [
            f"{where}.{key}: this key is the same for all datasets; valid here: {', '.join(PROTOCOL)}."
            for key in common
        ]
    try:
        merged_protocol(study, entry)
    except ValidationError as error:
        return [text.removeprefix(": ") for text in sentences(error, Protocol, "", where)]
    return []
