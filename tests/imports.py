"""The import graph of the packages. `python tests/imports.py` updates its diagram in docs/architecture.md."""

import ast
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "fglbench"
PAGE = ROOT / "docs" / "architecture.md"
LAYERS = (
    "cli",
    "commands",
    "tuning",
    "workflow",
    "stages",
    "tracking",
    "reporting",
    "config",
    "records",
    "engine",
    "methods",
    "tasks",
    "backbones",
    "samplers",
    "federation",
    "partition",
    "datasets",
    "evaluation",
    "registry",
    "runtime",
    "storage",
    "seeding",
    "settings",
    "errors",
)
"""Packages from top to bottom: a package may import from itself and from the packages after it."""
NO_LAYER = {"__init__", "__main__"}


def package_of(path: Path) -> str:
    """Return the package of a file, or the name of a module outside the packages."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the packages of the suite that a file imports, including imports inside functions and for types."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            below = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in below if name.startswith("fglbench.")}
    return found - {"__version__"}


def import_graph() -> dict[str, dict[str, set[str]]]:
    """Return the imported packages by package and file."""
    graph: dict[str, dict[str, set[str]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        graph.setdefault(package_of(path), {})[str(path.relative_to(SOURCE))] = imported(path)
    return graph


def diagram() -> str:
    """Return a Mermaid chart with an arrow per import; imports that a chain of others implies are left out."""
    edges = nx.DiGraph()
    edges.add_nodes_from(LAYERS)
    for package, files in import_graph().items():
        if package not in NO_LAYER:
            edges.add_edges_from((package, name) for names in files.values() for name in names if name != package)
    drawn = nx.transitive_reduction(edges)
    lines = [
        f"  {upper} --> {lower}" for upper in LAYERS for lower in sorted(drawn.successors(upper), key=LAYERS.index)
    ]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```"])


def redrawn(page: str) -> str:
    """Return the page with the diagram of the current imports."""
    before, rest = page.split("```mermaid", 1)
    return before + diagram() + rest.split("```", 1)[1]


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
