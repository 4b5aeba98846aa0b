"""Wording of problems: pydantic's errors as sentences, unknown names, and duplicates."""

import math
import types
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from fglbench.errors import suggest


def unknown_names(where: str, wanted: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """Return a problem for each name that a study does not have, with the closest name that it has.

    Args:
        where: key of the names.
        wanted: names to check; None: nothing to check.
        known: names in the study.

    Returns:
        One sentence for each unknown name.
    """
    names = list(known)
    return [
        f"{where}: '{name}' is not in this study. {suggest(name, names)}" for name in wanted or [] if name not in names
    ]


def duplicates(key: str, values: Sequence[Any], text: Callable[[Any], str]) -> list[str]:
    """Return a problem for each value that a list contains more than once.

    Args:
        key: key of the list.
        values: the list; its items are hashable.
        text: returns the text of a value in the problem.

    Returns:
        One sentence for each repeated value.
    """
    return [f"{key}: {text(value)} is listed {n} times." for value, n in Counter(values).items() if n > 1]


def sentences(error: ValidationError, model: type[BaseModel], source: str, prefix: str = "") -> list[str]:
    """Return pydantic's errors as sentences.

    Args:
        error: the error that pydantic raised.
        model: the model that was validated, for the names that it accepts.
        source: the name of the file.
        prefix: key of the model in the file.

    Returns:
        One sentence for each error, "<source>: <key>: ...", without repetitions.
    """
    problems = [_sentence(finding, model, source, prefix) for finding in error.errors(include_url=False)]
    return list(dict.fromkeys(problems))


def key_path(location: tuple[int | str, ...], prefix: str = "") -> str:
    """Return a location in a configuration as text: ("methods", 1, "mu") -> "methods[1].mu".

    Args:
        location: keys and indices, as pydantic gives them.
        prefix: text before them, "" for none.

    Returns:
        Keys joined by dots, indices in brackets.
    """
    path = prefix
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else str(part)
    return path


def _sentence(finding: Any, model: type[BaseModel], source: str, prefix: str) -> str:
    kind, value = finding["type"], finding["input"]
    # pydantic reports a field with several types once for each type; the type in the location does not help a user.
    location = tuple(part for part in finding["loc"] if part not in ("int", "str", "list[int]", "list[union[str,int]]"))
    where = f"{source}: {key_path(location, prefix)}"
    if kind == "extra_forbidden":
        parent = _model_at(model, location[:-1])
        keys = list(parent.model_fields) if parent else []
        return f"{where}: unknown key. {suggest(location[-1], keys)}" if keys else f"{where}: unknown key."
    if kind == "missing":
        return f"{where}: is missing; {_description(model, location)}"
    if kind in ("float_type", "int_type") and isinstance(value, str) and _is_number(value):
        number = int(float(value)) if kind == "int_type" and float(value).is_integer() else float(value)
        return f"{where}: YAML reads '{value}' as text, not as a number. Write {number!r} without quotes."
    if kind == "literal_error":
        choices = [str(choice) for choice in _literals(model, location)]
        return f"{where}: '{value}' is not valid. {suggest(value, choices)}" if choices else f"{where}: '{value}'."
    if kind == "list_type":
        return f"{where}: {value!r} is not a list; write [{value}]."
    if kind in ("model_type", "model_attributes_type"):
        return f"{where}: {value!r} is neither a name nor a mapping of keys."
    if kind == "string_pattern_mismatch" and location and location[-1] == "results":
        return (
            f"{where}: '{value}' must be a folder below the working directory, named with letters, digits and '._-/'."
        )
    if kind == "too_short":
        return f"{where}: the list is empty; give at least one entry."
    message = finding["msg"].removeprefix("Value error, ")
    return f"{where}: {value!r}: {message[0].lower()}{message[1:]}."


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _description(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    parent = _model_at(model, location[:-1])
    field = parent.model_fields.get(str(location[-1])) if parent else None
    return (field.description if field else None) or "it has no default."


def _field_at(model: type[BaseModel], location: tuple[int | str, ...]) -> Any:
    """Return the annotation of the field at a location, through lists and optional types."""
    annotation: Any = model
    for part in location:
        parent = _find_model(annotation)
        if isinstance(part, str) and parent is not None and part in parent.model_fields:
            annotation = parent.model_fields[part].annotation
    return annotation


def _model_at(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    return _find_model(_field_at(model, location)) if location else model


def _find_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((inner for part in get_args(annotation) if (inner := _find_model(part))), None)


def _literals(model: type[BaseModel], location: tuple[int | str, ...]) -> list[Any]:
    def collect(annotation: Any) -> list[Any]:
        if get_origin(annotation) is Literal:
            return list(get_args(annotation))
        if get_origin(annotation) in (list, dict, Union, types.UnionType):
            return [choice for part in get_args(annotation) for choice in collect(part)]
        return []

    return collect(_field_at(model, location))
