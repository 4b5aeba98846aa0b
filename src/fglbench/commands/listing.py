"""`fglbench list`: print all components and studies."""

import argparse

from fglbench.commands import components, places
from fglbench.config.entries import settings_class
from fglbench.config.files import read_yaml
from fglbench.errors import FglbenchError
from fglbench.settings import ComponentSettings

PLURALS = {
    "datasets": "dataset",
    "methods": "method",
    "backbones": "backbone",
    "tasks": "task",
    "schemes": "scheme",
    "samplers": "sampler",
}
KINDS = [*PLURALS, "studies"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    singular = [*PLURALS.values(), "study"]
    parser.add_argument("kind", nargs="?", choices=[*KINDS, *singular], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--settings", action="store_true", help="also print all settings and their defaults")


def run(args: argparse.Namespace) -> int:
    """Print all names, with one line about each.

    Args:
        args: the parsed options.

    Returns:
        Exit status 0.
    """
    singular = dict(zip([*PLURALS.values(), "study"], KINDS, strict=True))
    kinds = [singular.get(args.kind, args.kind)] if args.kind else KINDS
    components.use_folders(args.components)
    print("\n\n".join(_section(kind, args.settings) for kind in kinds))
    return 0


def _section(plural: str, with_settings: bool) -> str:
    kind = PLURALS.get(plural)
    lines = [f"{plural}:"]
    rows = _studies() if kind is None else [(name, *_component(kind, name)) for name in components.names(kind)]
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, text, settings in rows:
        lines.append(f"  {name:<{width}}  {text}")
        if with_settings and settings is not None:
            lines.append(components.settings_table(settings, indent="      "))
    return "\n".join(lines)


def _component(kind: str, name: str) -> tuple[str, type[ComponentSettings] | None]:
    """Return one line about a component, and its settings class; if its file is broken, the error and None."""
    try:
        return components.first_line(kind, name), settings_class(kind, name)
    except FglbenchError as error:
        return f"cannot be used: {error}", None


def _studies() -> list[tuple[str, str, None]]:
    folder = places.studies()
    if folder is None:
        return [("none", "this folder has no workflow/studies", None)]
    rows = [("grid", "the datasets, partitions, clients and methods listed in config.yaml", None)]
    for path in sorted(folder.glob("*.yaml")):
        try:
            rows.append((path.stem, str(read_yaml(path).get("title", "")), None))
        except FglbenchError as error:
            rows.append((path.stem, f"cannot be read: {error}", None))
    return rows
