"""`fglbench compare STUDY`: print a study's tables, each beside the paper's table if it names one."""

import argparse
import shutil
import sys
from pathlib import Path

from fglbench.commands import places
from fglbench.errors import StorageError
from fglbench.records.study import STUDY


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    parser.add_argument("study", metavar="STUDY|FOLDER", help="name of a study, or a folder with its records")
    parser.add_argument("--records", metavar="DIR", help="folder with the studies' records (results/studies)")
    parser.add_argument("--references", metavar="DIR", help="folder of the papers' CSV files")


def run(args: argparse.Namespace) -> int:
    """Print the comparisons of a study; if it has none, its tables.

    Args:
        args: the parsed options.

    Returns:
        Exit status 0.

    Raises:
        ConfigError: a table cannot be made with its settings.
        StorageError: there are no such records, or a record or the reference file is missing or unreadable.
    """
    from fglbench.records.study import read_study
    from fglbench.reporting.terminal import to_text
    from fglbench.stages.tables import study_sheets

    study = read_study(_folder(args))
    sheets = study_sheets(study, _references(args))
    compared = [sheet for sheet in sheets if sheet.table.name.endswith("-compared")]
    tables = [table for sheet in compared or sheets for table in sheet.shown]
    width = shutil.get_terminal_size((120, 24)).columns
    print("\n".join(to_text(table, width, colour=sys.stdout.isatty()) for table in tables))
    if not compared:
        print("This study has no paper's numbers to compare with (key 'reference' of the study and of its tables).")
    report = Path(args.results) / "report" / f"{study.settings['name']}.html"
    if report.exists():
        print(f"Report: {report}")
    return 0


def _folder(args: argparse.Namespace) -> Path:
    records = Path(args.records) if args.records else Path(args.results) / "studies"
    try:
        return places.records_of(args.study, records)
    except StorageError as error:
        if (Path(args.study) / STUDY).exists():
            return Path(args.study)
        raise StorageError(f"{error} Or name a folder with a study.json.") from None


def _references(args: argparse.Namespace) -> Path:
    if args.references:
        return Path(args.references)
    studies = places.studies()
    return studies / "reference" if studies else Path("reference")
