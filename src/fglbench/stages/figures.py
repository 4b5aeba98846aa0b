"""Draw every figure of a study as PNG and PDF."""

from pathlib import Path

from fglbench.records.study import read_study
from fglbench.reporting.figures import draw, save


def make_figures(study_folder: Path, folder: Path) -> None:
    """Write the files that `reporting.names.figure_files` lists.

    Args:
        study_folder: holds `study.json` and the Parquet files of the collect stage.
        folder: where the figures are written.

    Raises:
        ConfigError: a figure cannot be made with its settings.
        StorageError: a record is missing or unreadable.
    """
    study = read_study(study_folder)
    for spec in study.figures:
        save(draw(study, spec), Path(folder), spec.name)
