"""`fglbench archive STUDY`: put the records of a study's finished cells into a small folder, for reuse."""

import argparse
from pathlib import Path

from fglbench.commands import places
from fglbench.errors import StorageError
from fglbench.storage import check_writable


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    parser.add_argument("study", metavar="STUDY", help="name of a study with records in results/studies")
    parser.add_argument("--to", metavar="DIR", help="folder of archives (results/published of the checkout)")


def run(args: argparse.Namespace) -> int:
    """Archive the records of a study and print the number of archived cells.

    Args:
        args: the parsed options.

    Returns:
        Exit status 0.

    Raises:
        StorageError: there are no such records, no cell is finished, or `--to` is missing without a checkout.
        DiskError: the folder is not writable.
    """
    from fglbench.records.archive import archive

    records = places.records_of(args.study, Path(args.results) / "studies")
    target = (Path(args.to) if args.to else _published()) / args.study
    check_writable(target)
    cells = archive(records, target)
    size_kb = sum(path.stat().st_size for path in target.iterdir()) / 1000
    print(f"{target}: cells archived: {len(cells)}, {size_kb:.0f} kB")
    return 0


def _published() -> Path:
    root = places.checkout()
    if root is None:
        raise StorageError("this installation has no checkout with results/published; name the folder with --to DIR.")
    return root / "results" / "published"
