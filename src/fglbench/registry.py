"""Discovery of components by file name, and of their declarations without importing torch.

A component is a Python file in one of the folders below, or in a folder that the configuration lists under
`components`. Its name is the file name with `_` replaced by `-`, and a trailing `_plus` by `+`. Components need no
registration.
"""

import ast
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from fglbench import settings as settings_module
from fglbench.errors import ComponentError, suggest
from fglbench.settings import ComponentSettings, SamplerSettings

KINDS = {
    "method": "methods",
    "backbone": "backbones",
    "task": "tasks",
    "sampler": "samplers",
    "scheme": "partition/schemes",
    "dataset": "datasets",
}
_ONLY_OWN = {"dataset"}  # datasets/catalogue.py lists the built-in ones; datasets/ holds their loaders
NOT_COMPONENTS = {"__init__", "base"}
_extra_folders: list[Path] = []
_RENAMED = {
    "correct": "modify_gradients",
    "mixing": "aggregate, which gives weights by group of parameters",
    "shared": "groups",
    "after": "server_update, or client_update for what happens at the clients",
}
"""From removed hooks of methods, which the current version would ignore, to their replacements."""


@dataclass(frozen=True)
class Declaration:
    """The declarations in a component file.

    Attributes:
        name: the component's name in configurations and tables.
        path: the file.
        settings: its class `Settings`; `ComponentSettings` for a dataset that declares none.
        constants: its upper-case module constants with literal values; `VERSION` is always among them.
        summary: the first paragraph of the file's docstring, in one line.
        hooks: names of the functions in the body of its class `Method`, without inherited ones; may be empty.
    """

    name: str
    path: Path
    settings: type[ComponentSettings]
    constants: dict[str, Any]
    summary: str
    hooks: frozenset[str]

    @property
    def version(self) -> int:
        """The integer `VERSION` of the file."""
        return self.constants["VERSION"]

    @property
    def changes_graph(self) -> bool:
        """Whether the method changes the graph during training, so that preprocessing must not propagate features."""
        return "rebuild" in self.hooks


def use_folders(folders: list[Path]) -> None:
    """Add the user's folders of components.

    Args:
        folders: each has subfolders named as in `KINDS`, or method files directly.
    """
    for folder in folders:
        if folder.resolve() not in [extra.resolve() for extra in _extra_folders]:
            _extra_folders.append(folder)
    _files.cache_clear()


def name_of(stem: str) -> str:
    """Return the component's name for a file name.

    Args:
        stem: the file name without ".py", such as "fedsage_plus".

    Returns:
        The name, such as "fedsage+".
    """
    return stem.removesuffix("_plus").replace("_", "-") + ("+" if stem.endswith("_plus") else "")


def stem_of(name: str) -> str:
    """Return the file name for a component's name.

    Args:
        name: such as "fedsage+".

    Returns:
        The file name without ".py", such as "fedsage_plus".
    """
    return name.replace("-", "_").replace("+", "_plus")


def names(kind: str) -> list[str]:
    """List the components of a kind.

    Args:
        kind: a key of `KINDS`.

    Returns:
        The sorted names. For "dataset" only the user's datasets; `datasets/catalogue.py` lists the built-in ones.

    Raises:
        ComponentError: two files give the same name.
    """
    return sorted(_files(kind))


@cache
def _files(kind: str) -> dict[str, Path]:
    folders = [] if kind in _ONLY_OWN else [Path(__file__).parent / KINDS[kind]]
    for extra in _extra_folders:
        folders += [extra / KINDS[kind]] + ([extra] if kind == "method" else [])
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            if path.stem in NOT_COMPONENTS or path.stem.startswith("_"):
                continue
            name = name_of(path.stem)
            if name in paths:
                raise ComponentError(f"{path}: the {kind} '{name}' already exists in {paths[name]}. Rename one file.")
            paths[name] = path
    return paths


def own_path(kind: str, name: str) -> Path | None:
    """Return the file of a user's component.

    Args:
        kind: a key of `KINDS`.
        name: of the component.

    Returns:
        The path; None for a built-in or unknown component.
    """
    path = _files(kind).get(name)
    return None if path is None or path.is_relative_to(Path(__file__).parent) else path


@cache
def declaration(kind: str, name: str) -> Declaration:
    """Read a component's settings class and constants from its file, without executing its imports.

    Args:
        kind: a key of `KINDS`.
        name: of the component.

    Returns:
        The declarations of the file.

    Raises:
        ComponentError: the component is unknown, its file is not readable Python, it lacks `Settings` or `VERSION`, or
            it breaks another rule of its kind.
    """
    path = _files(kind).get(name)
    if path is None:
        raise ComponentError(f"'{name}' is not a {kind}. {suggest(name, _files(kind))} See 'fglbench list {kind}s'.")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except SyntaxError as error:
        raise ComponentError(f"{path}:{error.lineno}: is not valid Python: {error.msg}.") from error
    except (OSError, ValueError) as error:
        raise ComponentError(f"{path}: cannot be read as Python: {error}.") from error
    namespace: dict[str, Any] = {export: getattr(settings_module, export) for export in settings_module.__all__}
    namespace["__name__"] = f"fglbench.declarations.{path.stem}"
    constants: dict[str, Any] = {}
    hooks: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Settings":
            _evaluate(node, path, namespace)
        elif isinstance(node, ast.ClassDef) and node.name == "Method":
            hooks = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if not (isinstance(target, ast.Name) and target.id.isupper()):
                continue
            try:
                constants[target.id] = namespace[target.id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    if old := next((name for name in _RENAMED if name in hooks), None):
        raise ComponentError(f"{path}: the hook '{old}' is now called {_RENAMED[old]}; see docs/adding-a-method.md.")
    declared = namespace.get("Settings", ComponentSettings if kind == "dataset" else None)
    page = "docs/partitions.md" if kind == "scheme" else f"docs/adding-a-{kind}.md"
    base = SamplerSettings if kind == "sampler" else ComponentSettings
    if not (isinstance(declared, type) and issubclass(declared, base)):
        raise ComponentError(f"{path} declares no class 'Settings({base.__name__})'; see {page}.")
    for field, info in declared.model_fields.items():
        if field in settings_module.OF_ENTRIES:
            raise ComponentError(f"{path}: a setting cannot be called '{field}', a reserved key of entries; rename it.")
        if info.default is not None and type(None) in get_args(info.annotation):
            raise ComponentError(
                f"{path}: setting '{field}' may be null and has another default. A cell's identity leaves out settings "
                "that are null, so null would be read as that default: make null the default, or do not allow null."
            )
    if kind == "task" and next(iter((constants.get("METRICS") or {"": ""}).values())) != "higher":
        raise ComponentError(
            f"{path}: the first score in 'METRICS' selects rounds, so declare it as \"higher\"; see "
            "docs/adding-a-task.md."
        )
    if type(constants.get("VERSION")) is not int:
        raise ComponentError(f"{path} declares no integer 'VERSION'; see {page}.")
    summary = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
    return Declaration(name, path, declared, constants, summary, frozenset(hooks))


def _evaluate(node: ast.ClassDef, path: Path, namespace: dict[str, Any]) -> None:
    code = compile(ast.Module(body=[node], type_ignores=[]), str(path), "exec")
    try:
        exec(code, namespace)
    except NameError as error:
        raise ComponentError(
            f"{path}:{node.lineno}: class 'Settings' uses {error.name!r}, but it is read without the file's imports; "
            f"it may use {', '.join(settings_module.__all__)} and plain Python."
        ) from error
    except Exception as error:
        raise ComponentError(
            f"{path}:{node.lineno}: class 'Settings' fails: {type(error).__name__}: {error}"
        ) from error


@cache
def module(kind: str, name: str) -> ModuleType:
    """Import a component's file, with everything that the file imports (such as torch).

    Errors that the file raises while it is imported are not caught, so a broken component stops the run.

    Args:
        kind: a key of `KINDS`.
        name: of the component.

    Returns:
        The imported module.

    Raises:
        ComponentError: the component is unknown, its declarations are invalid, or its file is not importable.
    """
    path = declaration(kind, name).path
    package = Path(__file__).parent
    if path.is_relative_to(package):
        return importlib.import_module(".".join(("fglbench", *path.relative_to(package).with_suffix("").parts)))
    qualified = f"fglbench_user.{kind}.{path.stem}"
    spec = importlib.util.spec_from_file_location(qualified, path)
    if spec is None or spec.loader is None:
        raise ComponentError(f"{path} cannot be imported as a Python file.")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[qualified] = loaded
    spec.loader.exec_module(loaded)
    return loaded
