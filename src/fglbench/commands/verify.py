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
        help="remove damaged files and incomplete files of killed jobs; the next run of the workflow makes them again",
    )


def run(args: argparse.Namespace) -> int:
    """Print every damaged file; with `--repair`, remove these files and the incomplete files of other jobs.

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
        damaged = list(find_damage(results))
        for damage in damaged:
            print(f"damaged: {damage.path} {damage.reason}")
        incomplete = leftovers(results)
        if incomplete:
            print(f"{len(incomplete)} incomplete files of jobs that were killed or still run, such as {incomplete[0]}")
        if args.repair:
            for damage in damaged:
                repair(results, damage)
            for path in incomplete:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    print(_summary(len(damaged), args.repair))
    return 1 if damaged and not args.repair else 0


def _summary(count: int, repaired: bool) -> str:
    if not count:
        return "all checksums match; no file is damaged"
    files = f"{count} damaged file{'s' * (count > 1)}"
    if repaired:
        return f"{files} removed; the next 'snakemake' makes them again and keeps all other files"
    return f"{files}; 'fglbench verify --repair' removes them, and the next 'snakemake' makes them again"
