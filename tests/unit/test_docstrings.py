"""Docstrings of public functions are complete: arguments, results and errors."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from imports import SOURCE

Function = ast.FunctionDef


def functions(tree: ast.Module) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """The public functions of a module, and the methods of its public classes, each with its class."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node, None
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from ((method, node) for method in node.body if isinstance(method, Function))


def raises(function: Function) -> bool:
    """Whether a function raises an error itself, outside of functions that it defines."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, Function):
            waiting += ast.iter_child_nodes(node)
    return False


def lacking(function: Function, owner: ast.ClassDef | None) -> list[str]:
    """The sections that a docstring lacks; a method of a class with bases may leave the docstring to them."""
    text = ast.get_docstring(function)
    if text is None:
        return [] if owner is not None and owner.bases else ["a docstring"]
    arguments = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    is_property = any("property" in ast.unparse(each) for each in function.decorator_list)
    returns = function.returns is not None and ast.unparse(function.returns) not in ("None", "NoReturn")
    needed = {
        "Args": bool({*arguments} - {"self", "cls"}),
        "Returns": returns and not is_property and "Yields:" not in text,
        "Raises": raises(function),
    }
    return [section for section, wanted in needed.items() if wanted and f"{section}:" not in text]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstrings_name_arguments_results_and_errors(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    public = [(each, owner) for each, owner in functions(tree) if not each.name.startswith("_")]
    found = {f"{each.name} (line {each.lineno})": lacking(each, owner) for each, owner in public}
    assert {name: sections for name, sections in found.items() if sections} == {}
    assert ast.get_docstring(tree)


def test_a_docstring_without_sections_is_found() -> None:
    (function,) = ast.parse('def f(x) -> int:\n    """One line."""\n    raise ValueError\n').body
    assert isinstance(function, Function)
    assert lacking(function, None) == ["Args", "Returns", "Raises"]
