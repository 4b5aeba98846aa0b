"""`fglbench describe NAME`: print the data card of a dataset, or the docstring and settings of a component."""

import argparse
from pathlib import Path
from typing import cast

from fglbench import registry
from fglbench.commands import components, overrides
from fglbench.config.files import read_yaml
from fglbench.datasets import catalogue
from fglbench.datasets.availability import mirror_folder, why_unavailable
from fglbench.errors import ComponentError, suggest

CONFIG = Path("config.yaml")
IN_ROW = ("title", "about", "source", "citation", "license")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    parser.add_argument("name", metavar="NAME", help="name of a dataset, method, backbone, task, scheme or sampler")
    parser.add_argument(
        "--set", action="append", default=[], dest="assignments", metavar="KEY=VALUE", help="settings of the dataset"
    )
    parser.add_argument(
        "--download",
        action="store_true",
        help="download the dataset if it is missing, to show the numbers of its graph",
    )


def run(args: argparse.Namespace) -> int:
    """Print the description of every dataset and component that has the given name.

    Args:
        args: the parsed options.

    Returns:
        Exit status 0.

    Raises:
        ComponentError: nothing has that name, or an option for datasets is given for another component.
        ConfigError: `--set` is not key=value, `--components` names no folder, or config.yaml cannot be read.
        DataError: settings are invalid for the dataset, or its graph cannot be made.
    """
    components.use_folders(args.components)
    kinds = [kind for kind in components.KINDS if args.name in components.names(kind)]
    if not kinds:
        names = {name for kind in components.KINDS for name in components.names(kind)}
        raise ComponentError(
            f"'{args.name}' is not a dataset, method, backbone, task, scheme or sampler. {suggest(args.name, names)}"
        )
    options = [f"--set {text}" for text in args.assignments] + ["--download"] * args.download
    if options and "dataset" not in kinds:
        raise ComponentError(
            f"{options[0]}: this option is only for datasets, and '{args.name}' is a {kinds[0]}. Leave it out; "
            "'fglbench train --set' trains with other settings."
        )
    for number, kind in enumerate(kinds):
        print("\n" * (number > 0), end="")
        _print_dataset(args) if kind == "dataset" else print(_component(kind, args.name))
    return 0


def _print_dataset(args: argparse.Namespace) -> None:
    """Print the dataset's row of the catalogue, then its data card.

    The data card is left out if it needs a download and `--download` is not given.
    """
    from fglbench.config.expand import dataset_part
    from fglbench.config.schema import Entry
    from fglbench.datasets.card import DataCard, format_card, format_row
    from fglbench.records.graph import GRAPH_CARD
    from fglbench.stages.download import download, stored_card

    spec, mirror = catalogue.get(args.name), mirror_folder(args.mirror)
    settings = spec.read_settings(dict(map(overrides.split_assignment, args.assignments))).model_dump()
    part = dataset_part(Entry.model_validate({"name": args.name, **settings}))
    folder = Path(args.results) / "download" / part.slug
    print(format_row(spec, spec.counts_for(settings)), end="\n\n", flush=True)
    card = stored_card(part.spec, folder)
    if card is None and not args.download:
        if spec.needs_files and mirror is None:
            stale = f"the files in {folder} are damaged or of another version"
            why = stale if (folder / GRAPH_CARD).exists() else f"the dataset is not in {folder}"
            print(f"The numbers of its graph are unknown: {why}, and there is no mirror. --download fetches the data.")
            return
        if reason := why_unavailable(spec, mirror, may_download=False):
            print(f"The numbers of its graph are unknown: {reason}.")
            return
    card = card or download(part.spec, folder, mirror, _forbidden() if args.download else "--download is not given")
    print(format_card(cast(DataCard, {key: value for key, value in card.items() if key not in IN_ROW})))


def _forbidden() -> str | None:
    """Return the setting in `config.yaml` of the working directory that forbids downloads, or None."""
    data = read_yaml(CONFIG).get("data") if CONFIG.is_file() else None
    return f"{CONFIG}: data.download: false" if isinstance(data, dict) and data.get("download") is False else None


def _component(kind: str, name: str) -> str:
    declared = registry.declaration(kind, name)
    table = components.settings_table(declared.settings)
    head = f"{name} ({kind}, version {declared.version})\n{components.docstring(kind, name)}"
    if kind == "backbone" and components.is_module(name):
        head += "\n\nIt runs client by client, several times slower than a backbone that computes all clients at once."
    return f"{head}\n\nsettings (default, allowed):\n{table}\n\n{declared.path}"
