"""Write the report of a study: one page."""

from pathlib import Path

from fglbench.records.study import read_study
from fglbench.reporting.html import report_page
from fglbench.storage import write_text


def make_report(study_folder: Path, tables_folder: Path, figures_folder: Path, path: Path) -> None:
    """Write the page of a study to `path`.

    Args:
        study_folder: holds `study.json` and the Parquet files of the collect stage.
        tables_folder: holds the files that `make_tables` wrote.
        figures_folder: holds the files that `make_figures` wrote.
        path: of the page.

    Raises:
        StorageError: a record, table or figure is missing or unreadable.
    """
    write_text(Path(path), report_page(read_study(study_folder), tables_folder, figures_folder))
