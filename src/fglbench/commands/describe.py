"""`fglbench describe NAME`: a dataset's data card, or a component's docstring and settings."""

import argparse
import os
from pathlib import Path

from fglbench import registry
from fglbench.commands import components, overrides
from fglbench.datasets import catalogue
from fglbench.errors import ComponentError, suggest


def add(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="NAME", help="of a dataset, method, backbone or partition scheme")
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE", help="settings of the dataset"
    )


def run(args: argparse.Namespace) -> int:
    """Prints everything of that name."""
    components.use_folders(args.components)
    found = [kind for kind in components.KINDS if args.name in components.names(kind)]
    if not found:
        known = sorted({name for kind in components.KINDS for name in components.names(kind)})
        raise ComponentError(
            f"'{args.name}' is no dataset, method, backbone or partition scheme. {suggest(args.name, known)}"
        )
    print("\n\n".join(_card(args) if kind == "dataset" else _component(kind, args.name) for kind in found))
    return 0


def _card(args: argparse.Namespace) -> str:
    """The data card, from the same folder as the workflow's, which is made where it is missing."""
    from fglbench.config.expand import dataset_part
    from fglbench.config.schema import Entry
    from fglbench.datasets.card import format_card
    from fglbench.stages.download import download

    given = dict(map(overrides.split_assignment, args.assignments))
    settings = catalogue.get(args.name).read_settings(given).model_dump()
    part = dataset_part(Entry.model_validate({"name": args.name, **settings}))
    mirror = args.mirror or os.environ.get("FGLBENCH_MIRROR")
    folder = Path(args.results) / "download" / part.slug
    return format_card(download(part.spec, folder, Path(mirror) if mirror else None))


def _component(kind: str, name: str) -> str:
    declared = registry.declaration(kind, name)
    table = components.settings_table(declared.settings)
    head = f"{name} ({kind}, version {declared.version})\n{components.docstring(kind, name)}"
    return f"{head}\n\nsettings (default, allowed):\n{table}\n\n{declared.path}"
