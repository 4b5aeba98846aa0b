"""Determine which cells of a study run here, which are reused from archives, and why the others are not run."""

from collections.abc import Mapping
from pathlib import Path

from fglbench.config.expand import Expansion
from fglbench.config.identity import Cell, Part
from fglbench.config.schema import Config
from fglbench.datasets import catalogue
from fglbench.datasets.availability import why_unavailable
from fglbench.errors import DataError
from fglbench.records.archive import archived_cells, archived_files
from fglbench.records.graph import GRAPH_CARD
from fglbench.records.run import UNFINISHED
from fglbench.workflow.studies import GRID


class Availability:
    """Which cells of some studies can be run or reused.

    Args:
        config: the configuration.
        studies: all studies by name.
        datasets: every dataset by its slug.
        mirror: folder of the offline mirror; None if there is none.
        archives: folder of archived studies; None if there is none.
    """

    def __init__(
        self,
        config: Config,
        studies: Mapping[str, Expansion],
        datasets: Mapping[str, Part],
        mirror: Path | None,
        archives: Path | None,
    ):
        self._config, self._studies, self._mirror = config, studies, mirror
        self._archived = archived_cells(archives if config.published != "none" else None)
        self._unavailable = {slug: reason for slug, part in datasets.items() if (reason := self._why(part))}

    def not_run(self, study: str) -> dict[str, str]:
        """Return why cells of a study without a record were not run.

        These are the cells of unavailable datasets. With `only_finished`, they are the cells of all datasets.

        Args:
            study: the name of the study.

        Returns:
            The reason, by the slug of the dataset.
        """
        slugs = {cell.dataset.slug: None for cell in self._not_reused(study)}
        if self._config.only_finished:
            return {slug: self._unavailable.get(slug, UNFINISHED) for slug in slugs}
        return {slug: self._unavailable[slug] for slug in slugs if slug in self._unavailable}

    def check(self, study: str) -> None:
        """Refuse a study if none of its cells can be run or reused.

        Args:
            study: the name of the study.

        Raises:
            DataError: no dataset of the study is available, and no cell is reused.
        """
        if self._config.only_finished:
            return
        reasons = self.not_run(study)
        if not reasons or self.run_here(study) or self.reused(study):
            return
        listed = "\n".join(f"  - {slug}: {reason}" for slug, reason in reasons.items())
        raise DataError(
            f"study '{study}': none of its datasets is available on this machine:\n{listed}\n"
            "Put missing files into the mirror ('fglbench describe <dataset>' names their source), name another "
            "folder as data.mirror or in FGLBENCH_MIRROR, remove the mirror and allow downloads, or choose datasets "
            f"that need no files: {catalogue.free()}."
        )

    def reused(self, study: str) -> dict[str, str]:
        """Return the archives from which a study reuses cells.

        Args:
            study: the name of the study.

        Returns:
            The folder of the archive, by cell id.
        """
        if not self._archived or (study == GRID and self._config.published != "all"):
            return {}
        cells = self._studies[study].cells
        return {cell.id: str(self._archived[cell.id]) for cell in cells if cell.id in self._archived}

    def reused_files(self, study: str) -> list[str]:
        """Return the files of the archives from which a study reuses cells.

        Args:
            study: the name of the study.

        Returns:
            The paths of all record files of these archives.
        """
        folders = sorted(set(self.reused(study).values()))
        return [str(path) for folder in folders for path in archived_files(Path(folder))]

    def run_here(self, study: str) -> list[Cell]:
        """Return the cells that are run here.

        Args:
            study: the name of the study.

        Returns:
            The cells with an available dataset that are not reused, in the order of the study.
        """
        return [cell for cell in self._not_reused(study) if cell.dataset.slug not in self._unavailable]

    def _not_reused(self, study: str) -> list[Cell]:
        """Return the cells of a study that no archive provides."""
        reused = self.reused(study)
        return [cell for cell in self._studies[study].cells if not reused or cell.id not in reused]

    def _why(self, dataset: Part) -> str | None:
        """Return why a dataset is unavailable here; None if it is available or already in the results."""
        if Path(self._config.results, "download", dataset.slug, GRAPH_CARD).exists():
            return None
        return why_unavailable(catalogue.get(dataset.spec["name"]), self._mirror, self._config.data.download)
