"""Local training, and what of the protocol a dataset may have otherwise."""

from typing import Any

from pydantic import ValidationError

from fglbench.config.merge import merged_protocol
from fglbench.config.schema import Entry, Protocol, Study, Training
from fglbench.config.validation.wording import sentences

PROTOCOL = ("split", "setting", "features", "task")
"""What of the protocol may differ by dataset; the rest tells how tables are to be read."""


def training_of_entries(study: Study) -> list[str]:
    """What is wrong with `training` and `protocol` of the entries of a study."""
    found: list[str] = []
    for key, entries in (("datasets", study.datasets), ("methods", study.methods), ("backbones", study.backbones)):
        for index, entry in enumerate(entries):
            found += training_problems(study, f"{key}[{index}].training", entry.training)
            if key == "datasets":
                found += _protocol_problems(study, f"{key}[{index}].protocol", entry)
    return found


def training_problems(study: Study, where: str, values: dict[str, Any]) -> list[str]:
    """What is wrong with some keys of `training`."""
    try:
        Training.model_validate({**study.training.model_dump(), **values})
    except ValidationError as error:
        return [text.removeprefix(": ") for text in sentences(error, Training, "", where)]
    return []


def _protocol_problems(study: Study, where: str, entry: Entry) -> list[str]:
    """What is wrong with the keys of `protocol` that a dataset has otherwise."""
    common = [key for key in entry.protocol if key in Protocol.model_fields and key not in PROTOCOL]
    if common:
        return [f"{where}.{key}: the same for all datasets; valid here: {', '.join(PROTOCOL)}." for key in common]
    try:
        merged_protocol(study, entry)
    except ValidationError as error:
        return [text.removeprefix(": ") for text in sentences(error, Protocol, "", where)]
    return []
