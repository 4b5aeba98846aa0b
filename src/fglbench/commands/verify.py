"""`fglbench verify`: compare stored files with their checksums; `--repair` removes the damaged ones."""

import argparse
import shutil
from contextlib import nullcontext
from pathlib import Path

from fglbench.errors import StorageError
from fglbench.storage import check_writable
from fglbench.workflow.run_lock import working_on


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    parser.add_argument(
        "--repair",
        action="store_true",
        help="remove what is damaged and what killed jobs left half-made; the next run of the workflow makes it again",
    )


def run(args: argparse.Namespace) -> int:
    """Print every damaged file; with `--repair`, remove these files and the half-made files of other jobs.

    Args:
        args: the parsed options.

    Returns:
        Exit status: 1 if a damaged file was found and not removed, else 0.

    Raises:
        StorageError: the results folder does not exist.
        BusyError: with `--repair`, another workflow works on the results folder.
    """
    from fglbench.stages.verify import find_damage, leftovers, repair

    results = Path(args.results)
    if not results.is_dir():
        raise StorageError(f"{results} is not a folder; name the results folder with --results DIR.")
    if args.repair:
        check_writable(results)
    with working_on(results) if args.repair else nullcontext():
        found = list(find_damage(results))
        for damage in found:
            print(f"damaged: {damage.path} {damage.reason}")
        left = leftovers(results)
        if left:
            print(f"{len(left)} half-made files of jobs that were killed or still run, such as {left[0]}")
        if args.repair:
            for damage in found:
                repair(results, damage)
            for path in left:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    print(_closing(len(found), args.repair))
    return 1 if found and not args.repair else 0


def _closing(count: int, repaired: bool) -> str:
    if not count:
        return "no damaged file: all checksums match"
    files = f"{count} damaged file{'s' * (count > 1)}"
    if repaired:
        return f"{files} removed; the next 'snakemake' makes them again and keeps all else"
    return f"{files}; 'fglbench verify --repair' removes them, and the next 'snakemake' makes them again"
