"""Which cells of a study run here, which are reused from archives, and why the others are not run."""

from collections.abc import Mapping
from pathlib import Path

from fglbench.config.expand import Expansion
from fglbench.config.identity import Cell, Part
from fglbench.config.schema import Config
from fglbench.datasets import catalogue
from fglbench.datasets.availability import why_unavailable
from fglbench.errors import DataError
from fglbench.records.archive import archived_cells, archived_files
from fglbench.workflow.studies import GRID

UNFINISHED = "not finished"


class Availability:
    """What of some studies can be run or reused.

    Args:
        config: the configuration.
        studies: all studies by name.
        datasets: every dataset by its slug.
        mirror: the offline mirror.
        archives: folder of archived studies.
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
        """Why cells of a study that have no record were not run, by the slug of their dataset.

        These are the datasets that are unavailable here, and where only what is finished is shown all the others too.
        """
        slugs = {cell.dataset.slug: None for cell in self._not_reused(study)}
        if self._config.only_finished:
            return {slug: self._unavailable.get(slug, UNFINISHED) for slug in slugs}
        return {slug: self._unavailable[slug] for slug in slugs if slug in self._unavailable}

    def check(self, study: str) -> None:
        """Raises a DataError where no cell of a study can be run or reused."""
        if self._config.only_finished:
            return
        reasons = self.not_run(study)
        if not reasons or self.run_here(study) or self.reused(study):
            return
        listed = "\n".join(f"  - {slug}: {reason}" for slug, reason in reasons.items())
        raise DataError(
            f"study '{study}': none of its datasets can be had here:\n{listed}\n"
            "Put the files there ('fglbench describe <dataset>' names their source), name another folder as "
            "data.mirror or in FGLBENCH_MIRROR, leave the mirror out to download, or choose datasets that need no "
            f"files: {catalogue.free()}."
        )

    def reused(self, study: str) -> dict[str, str]:
        """The folders of the archived records that a study reuses, by cell id."""
        if not self._archived or (study == GRID and self._config.published != "all"):
            return {}
        cells = self._studies[study].cells
        return {cell.id: str(self._archived[cell.id]) for cell in cells if cell.id in self._archived}

    def reused_files(self, study: str) -> list[str]:
        """The archived records that a study reuses."""
        folders = sorted(set(self.reused(study).values()))
        return [str(path) for folder in folders for path in archived_files(Path(folder))]

    def run_here(self, study: str) -> list[Cell]:
        """The cells that can be run here and are not reused."""
        return [cell for cell in self._not_reused(study) if cell.dataset.slug not in self._unavailable]

    def _not_reused(self, study: str) -> list[Cell]:
        reused = self.reused(study)
        return [cell for cell in self._studies[study].cells if not reused or cell.id not in reused]

    def _why(self, dataset: Part) -> str | None:
        """Why a dataset is unavailable here; None where it is available, or in the results already."""
        if Path(self._config.results, "download", dataset.slug, "graph.json").exists():
            return None
        return why_unavailable(catalogue.get(dataset.spec["name"]), self._mirror, self._config.data.download)
