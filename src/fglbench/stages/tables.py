"""The tables stage: every table of a study in four formats, and beside a paper's where it has one."""

from pathlib import Path

from fglbench.reporting.cells import Table
from fglbench.reporting.compare import comparison_table
from fglbench.reporting.datasets import dataset_table
from fglbench.reporting.names import is_compared
from fglbench.reporting.records import Study, load_study
from fglbench.reporting.reference import load_reference
from fglbench.reporting.render import RENDERERS
from fglbench.reporting.tables import build_table
from fglbench.storage import write_text


def make_tables(study_folder: Path, folder: Path, reference_folder: Path) -> None:
    """Writes the files that `reporting.names.table_files` lists.

    Args:
        study_folder: `study.json` and the Parquet files of the collect stage.
        folder: where the tables go.
        reference_folder: holds `<reference>.csv`; read only where the study names a reference.

    Raises:
        ConfigError: a table cannot be made as asked.
        StorageError: a record or the reference file is missing or unreadable.
    """
    for table in study_tables(load_study(study_folder), reference_folder):
        for suffix, render in RENDERERS.items():
            write_text(Path(folder) / f"{table.name}.{suffix}", render(table))


def study_tables(study: Study, reference_folder: Path) -> list[Table]:
    """All tables of a study, each followed by its comparison where it has one; errors as `make_tables`."""
    tables = []
    for spec in study.settings.get("tables") or []:
        if spec.get("kind") == "datasets":
            named = study.settings.get("reference") if spec.get("reference") else None
            numbers = load_reference(Path(reference_folder) / f"{named}.csv") if named else None
            tables.append(dataset_table(study, spec, numbers))
            continue
        tables.append(build_table(study, spec))
        if is_compared(study.settings, spec):
            reference = load_reference(Path(reference_folder) / f"{study.settings['reference']}.csv")
            tables.append(comparison_table(study, spec, reference))
    return tables
