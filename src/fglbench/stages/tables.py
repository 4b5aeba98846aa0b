"""Write every table of a study in four formats, with its comparison to a paper if there is one."""

from pathlib import Path

from fglbench.records.study import StudyRecord, read_study
from fglbench.reporting.comparison_tables import comparison_sheet
from fglbench.reporting.datasets import dataset_table
from fglbench.reporting.names import is_compared
from fglbench.reporting.partition_sizes import partition_sizes_table
from fglbench.reporting.reference import load_reference
from fglbench.reporting.sheets import RENDERERS, Sheet
from fglbench.reporting.tables import build_table
from fglbench.storage import write_text

_OF_THE_STUDY = {"datasets": dataset_table, "partitions": partition_sizes_table}
"""The tables that describe the datasets and partitions of a study, by kind."""


def make_tables(study_folder: Path, folder: Path, reference_folder: Path) -> None:
    """Write the files that `reporting.names.table_files` lists.

    Args:
        study_folder: holds `study.json` and the Parquet files of the collect stage.
        folder: where the tables are written.
        reference_folder: holds `<reference>.csv`, which is read only if the study names a reference.

    Raises:
        ConfigError: a table cannot be made with its settings.
        StorageError: a record or the reference file is missing or unreadable.
    """
    for sheet in study_sheets(read_study(study_folder), reference_folder):
        for suffix, render in RENDERERS.items():
            write_text(Path(folder) / f"{sheet.table.name}.{suffix}", render(sheet))


def study_sheets(study: StudyRecord, reference_folder: Path) -> list[Sheet]:
    """Return all tables of a study.

    Args:
        study: the collected records.
        reference_folder: holds `<reference>.csv`, which is read only if the study names a reference.

    Returns:
        The sheets in the order of the study; a table's comparison, if there is one, follows the table.

    Raises:
        ConfigError: a table cannot be made with its settings.
        StorageError: the reference file is missing or unreadable.
    """
    sheets, tables, name = [], study.tables, study.settings.get("reference")
    read = name and any(spec.reference for spec in tables)
    reference = load_reference(Path(reference_folder) / f"{name}.csv") if read else None
    for spec in tables:
        if make := _OF_THE_STUDY.get(spec.kind):
            sheets.append(Sheet(make(study, spec, reference if spec.reference else None)))
            continue
        sheets.append(Sheet(build_table(study, spec)))
        if reference is not None and is_compared(spec, name):
            sheets.append(comparison_sheet(study, spec, reference))
    return sheets
