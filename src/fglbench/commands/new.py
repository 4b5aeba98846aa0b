"""`fglbench new method|backbone|dataset NAME`: write a working component file and its test to start from."""

import argparse
import re
from importlib.resources import files
from pathlib import Path
from string import Template

from fglbench import registry
from fglbench.commands import components, places
from fglbench.errors import ComponentError

KINDS = ("method", "backbone", "dataset")
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\+?")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    parser.add_argument("kind", choices=KINDS, help="what to write")
    parser.add_argument(
        "name", metavar="NAME", help="as in configurations: lower-case letters, digits and dashes; may end in '+'"
    )
    parser.add_argument(
        "--module",
        action="store_true",
        help="write a backbone around an ordinary torch.nn.Module (required for backbones)",
    )
    parser.add_argument(
        "--folder",
        metavar="DIR",
        help="components folder to write to, such as DIR/methods/ and DIR/tests/ (the checkout; required for datasets)",
    )


def run(args: argparse.Namespace) -> int:
    """Write both files and print the next steps.

    Args:
        args: the parsed options.

    Returns:
        Exit status 0.

    Raises:
        ComponentError: `--module` is missing for a backbone or given for another kind; see also `write_component`.
    """
    if (args.kind == "backbone") != args.module:
        raise ComponentError(
            f"'fglbench new {args.kind} {args.name}': --module is required for a backbone and invalid for other kinds. "
            "docs/adding-a-backbone.md shows how a backbone computes all clients at once, as gcn.py does."
        )
    component, test = write_component(args.kind, args.name, Path(args.folder) if args.folder else None, args.components)
    use = f"\n  components: [{args.folder}]" if args.folder else ""
    pin = "" if args.folder else f"Pin its numbers: 'pytest tests/golden -k {args.name} --update-golden'.\n"
    what, beside, page = {
        "method": ("idea", "fedavg", "docs/adding-a-method.md describes the hooks of a method."),
        "backbone": ("model", "gcn", "docs/adding-a-backbone.md describes how the model is used."),
        "dataset": ("graph", "digits", "docs/adding-a-dataset.md describes what else the file may declare."),
    }[args.kind]
    print(
        f"{component}\n{test}\n\n"
        f"Write your {what} into the first, then run 'pytest {test}'.\n"
        f"{pin}In config.yaml:\n  {args.kind}s: [{beside}, {args.name}]{use}\n{page}"
    )
    return 0


def write_component(kind: str, name: str, folder: Path | None, used: list[str] | None = None) -> tuple[Path, Path]:
    """Write a component file and its test; never overwrite a file.

    Args:
        kind: one of `KINDS`.
        name: as in configurations.
        folder: a components folder; None: the package of the checkout and its `tests/unit`.
        used: further components folders, whose names are taken too.

    Returns:
        Paths of the component file and of its test.

    Raises:
        ComponentError: the name is invalid or taken, a file exists, there is no checkout to write to, or a dataset
            has no components folder.
    """
    if not NAME.fullmatch(name):
        raise ComponentError(
            f"'{name}' cannot be the name of a {kind}: use lower-case letters, digits and single dashes, and start "
            "with a letter, as in 'my-method2'; it may end in '+'."
        )
    stem = registry.stem_of(name)
    if stem in registry.NOT_COMPONENTS:
        raise ComponentError(
            f"'{name}' cannot be the name of a {kind}: {stem}.py is never read as a component. Choose another name."
        )
    if registry.name_of(stem) != name:
        raise ComponentError(
            f"'{name}' cannot be the name of a {kind}: its file {stem}.py stands for '{registry.name_of(stem)}'. Use "
            "that name, or another one."
        )
    component, test = _paths(kind, stem, folder)
    existing = [path for path in (component, test) if path.exists()]
    if existing:
        raise ComponentError(
            f"{existing[0]} already exists and was not changed. Choose another name, or remove the file."
        )
    components.use_folders([*(used or []), *([str(folder)] if folder and folder.is_dir() else [])])
    if name in components.names(kind):
        where = f" in {registry.declaration(kind, name).path}" if name in registry.names(kind) else ""
        raise ComponentError(f"the {kind} '{name}' already exists{where}. Choose another name.")
    texts = _texts(kind, name, folder is not None)
    for path, text in zip((component, test), texts, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    return component, test


def _paths(kind: str, stem: str, folder: Path | None) -> tuple[Path, Path]:
    inside = registry.KINDS[kind]
    if folder is not None:
        return folder / inside / f"{stem}.py", folder / "tests" / f"test_{stem}.py"
    if kind == "dataset":
        raise ComponentError("a dataset of your own goes to a components folder: name one with --folder DIR.")
    root = places.checkout()
    if root is None:
        raise ComponentError("fglbench is installed without its checkout: name a folder of your own with --folder DIR.")
    return root / "src" / "fglbench" / inside / f"{stem}.py", root / "tests" / "unit" / f"test_{stem}.py"


def _texts(kind: str, name: str, own_folder: bool) -> tuple[str, str]:
    values = {
        "name": name,
        "stem": registry.stem_of(name),
        "folder": "FOLDER = Path(__file__).resolve().parents[1]\n" if own_folder else "",
        "components": '        "components": [str(FOLDER)],\n' if own_folder else "",
    }
    templates = files("fglbench") / "templates"
    component, test = (
        Template((templates / file).read_text(encoding="utf-8")).substitute(values)
        for file in (f"{kind}.py.tmpl", f"test_{kind}.py.tmpl")
    )
    return component, test
