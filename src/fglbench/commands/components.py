"""Names, first lines and settings of components for the commands, read without importing the components."""

import ast
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fglbench import registry
from fglbench.datasets import catalogue
from fglbench.errors import ConfigError
from fglbench.settings import ComponentSettings

KINDS = ("dataset", "method", "backbone", "task", "scheme", "sampler")


def use_folders(folders: list[str]) -> None:
    """Add the folders of `--components` to the registry.

    Args:
        folders: folders with a user's components.

    Raises:
        ConfigError: a path is not a folder.
    """
    missing = [f"--components: '{folder}' is not a folder." for folder in folders if not Path(folder).is_dir()]
    if missing:
        raise ConfigError(missing)
    registry.use_folders([Path(folder) for folder in folders])


def names(kind: str) -> list[str]:
    """Return all names of a kind that a configuration may use.

    Args:
        kind: one of `KINDS`.

    Returns:
        Names without the scheme `whole`, which centralised methods use by themselves.
    """
    if kind == "dataset":
        return catalogue.names()
    return [name for name in registry.names(kind) if (kind, name) != ("scheme", "whole")]


def first_line(kind: str, name: str) -> str:
    """Return one line about a component.

    Args:
        kind: one of `KINDS`.
        name: the component's name.

    Returns:
        For a dataset its title and counts, for others the first line of the file's docstring.
    """
    if kind == "dataset":
        spec = catalogue.get(name)
        counts = f"{spec.nodes:,} nodes, {spec.edges:,} edges, {spec.features:,} features, {spec.classes:,} classes"
        return f"{spec.title}: {counts}" + ("" if spec.needs_files or spec.own_files else ", needs no files")
    return registry.declaration(kind, name).summary


def docstring(kind: str, name: str) -> str:
    """Return the docstring of a component's file.

    Args:
        kind: one of `KINDS`, but not "dataset".
        name: the component's name.

    Returns:
        The whole docstring; "" if the file has none.
    """
    path = registry.declaration(kind, name).path
    return ast.get_docstring(ast.parse(Path(path).read_text(encoding="utf-8"))) or ""


def is_module(backbone: str) -> bool:
    """Return whether a backbone is a `torch.nn.Module` that is called for each client in turn.

    Args:
        backbone: the backbone's name.

    Returns:
        Whether the class `Backbone` in its file derives from `ModuleBackbone`.
    """
    tree = ast.parse(registry.declaration("backbone", backbone).path.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Backbone"]
    bases = [ast.unparse(base) for node in classes for base in node.bases]
    return any(base.split(".")[-1] == "ModuleBackbone" for base in bases)


def settings_table(model: type[ComponentSettings], indent: str = "  ") -> str:
    """Return the settings of a component as text.

    Args:
        model: the component's settings class.
        indent: the text before each line.

    Returns:
        One line for each setting: name, default, allowed values, description.
    """
    rows = [
        (name, _shown(field.get_default(call_default_factory=True)), _allowed(field), field.description or "")
        for name, field in model.model_fields.items()
    ]
    if not rows:
        return f"{indent}no settings"
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        indent + "  ".join([*(f"{text:<{width}}" for text, width in zip(row, widths, strict=False)), row[3]]).rstrip()
        for row in rows
    )


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(field: FieldInfo) -> str:
    """Return the allowed values of a setting: "float >= 0, < 1", "int >= 1 or null", "adam | sgd"."""
    bounds = [
        f"{sign} {_shown(bound)}"
        for rule in field.metadata
        for attribute, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if (bound := getattr(rule, attribute, None)) is not None
    ]
    return " ".join([_type(field.annotation), ", ".join(bounds)]).strip()


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(map(_shown, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join("null" if part is type(None) else _type(part) for part in get_args(annotation))
    if get_origin(annotation) is list:
        return f"list of {_type(get_args(annotation)[0])}"
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    return getattr(annotation, "__name__", str(annotation))
