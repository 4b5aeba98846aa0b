"""Plan the workflow: which files each stage makes. The rules call this module.

The seeds of one cell share a job, up to `jobs.seeds_per_job` of them. The output of the job is a small list
`seeds-<range>.json` beside the folders of its seeds. The stage keeps finished seeds, so a different grouping of seeds
repeats no work.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fglbench.config.expand import dataset_part
from fglbench.config.given import blamed
from fglbench.config.identity import Cell, seed_batches, seed_ranges
from fglbench.config.load import mirror_of
from fglbench.config.searches import SearchPlan, plan_searches
from fglbench.stages.failures import attempt_number
from fglbench.workflow.availability import Availability
from fglbench.workflow.index import SpecIndex
from fglbench.workflow.studies import GRID, load_studies


class Plan:
    """All studies of a configuration and their jobs.

    Args:
        values: the merged configuration.
        source: the file of the configuration, for messages.
        studies: folder of study files.
        archives: folder of archived studies; None if there is none.
        files: the files that the values were read from, to find duplicate keys.
        given: the values from the command line, for messages; None if there are none.

    Attributes:
        config: the configuration.
        studies: all studies by name.
        active: the names of the studies to run: "grid" and those of `studies`.
        index: the specifications of all jobs.
        availability: which cells run here.
        searches: the searches of settings, by study and then by slug.
        root: the results folder.
        mirror: folder of the offline mirror; None if there is none.
        forbidden: the setting that forbids downloads; None if they are allowed.
        retried: whether failures are retried.
        tracked: whether runs are imported into the tracking store.
        components: absolute paths of the folders with the user's own components.
        trust: what a changed component file of the user means, see `components.trust`.

    Raises:
        ConfigError: with every problem found, in the configuration and in the study files.
        DataError: no cell of an active study can be run or reused.
    """

    def __init__(
        self,
        values: dict[str, Any],
        source: str,
        studies: Path,
        archives: Path | None = None,
        files: Iterable[Path] = (),
        given: Mapping[str, Any] | None = None,
    ):
        self.config, self.studies = load_studies(values, source, studies, files, given or {})
        self.root = self.config.results
        mirror = mirror_of(self.config)
        self.mirror = str(mirror) if mirror else None
        forbidden = blamed(f"{source}: data.download: false", source, given or {})
        self.forbidden = None if self.config.data.download else forbidden
        self.retried = self.config.jobs.failures == "retry" and not self.config.only_finished
        self.tracked = self.config.tracking.enabled and not self.config.only_finished
        self.components = [str(Path(folder).resolve()) for folder in self.config.components.folders]
        self.trust = self.config.components.trust
        self.searches: dict[str, dict[str, SearchPlan]] = {
            name: {search.slug: search for search in plan_searches(expansion.study)}
            for name, expansion in self.studies.items()
            if expansion.study.tune is not None
        }
        self.active = [GRID, *self.config.studies]
        self.index = SpecIndex(self.studies.values(), self.trust)
        self.availability = Availability(self.config, self.studies, self.index.datasets, mirror, archives)
        self._attempts: dict[str, int] = {}
        for name in self.active:
            self.availability.check(name)

    def searched_graph(self, wildcards: Any) -> str:
        """Return the graph that a search trains on.

        Args:
            wildcards: of the job, with `study` and `search`.

        Returns:
            The path of `graph.npz`.
        """
        self.search_attempt(wildcards)
        entry = self.searches[wildcards.study][wildcards.search].at.dataset[1]
        return f"{self.root}/download/{dataset_part(entry).slug}/graph.npz"

    def preprocessed_file(self, wildcards: Any) -> str:
        """Return the output of preprocessing that a training job reads.

        Args:
            wildcards: of the job, with `dataset`, `partition`, `method` and `seeds`.

        Returns:
            The path of `seeds-<range>.json`.
        """
        self.attempt(wildcards)
        slug = self.index.preprocessed_slug(wildcards)
        return f"{self.root}/preprocess/{wildcards.dataset}/{wildcards.partition}/{slug}/seeds-{wildcards.seeds}.json"

    def attempt(self, wildcards: Any) -> int:
        """Return the number of a training job's attempt; see `stages.failures`.

        Args:
            wildcards: of the job, with `dataset`, `partition`, `method` and `seeds`.

        Returns:
            The number, counted from 0.
        """
        folder = f"{self.root}/train/{wildcards.dataset}/{wildcards.partition}/{wildcards.method}"
        return self._attempt(f"{folder}/seeds-{wildcards.seeds}.json")

    def search_attempt(self, wildcards: Any) -> int:
        """Return the number of a search's attempt; see `stages.failures`.

        Args:
            wildcards: of the job, with `study` and `search`.

        Returns:
            The number, counted from 0.
        """
        return self._attempt(f"{self.root}/tune/{wildcards.study}/{wildcards.search}.json")

    def _attempt(self, output: str) -> int:
        # The number is stored when Snakemake asks for the inputs of a job, because it may ask for params after the run.
        if output not in self._attempts:
            self._attempts[output] = attempt_number(Path(output), self.retried)
        return self._attempts[output]

    def evaluated(self, study: str) -> list[str]:
        """Return the outputs of all evaluation jobs of a study.

        Reused cells and cells of unavailable datasets have no evaluation job. With `only_finished`, only existing
        outputs are returned.

        Args:
            study: the name of the study.

        Returns:
            The paths, in the order of the cells.

        Raises:
            DataError: no cell of the study can be run or reused.
        """
        self.availability.check(study)
        return self._wanted(self._batches("evaluate", self.availability.run_here(study)))

    def graphs(self, studies: Iterable[str]) -> list[str]:
        """Return the data cards of all datasets of some studies.

        Args:
            studies: the names of the studies.

        Returns:
            The paths of `graph.json`, each once.
        """
        slugs = {cell.dataset.slug: None for study in studies for cell in self.availability.run_here(study)}
        return [f"{self.root}/download/{slug}/graph.json" for slug in slugs]

    def trained(self, studies: Iterable[str]) -> list[str]:
        """Return the outputs of all training jobs of some studies.

        Args:
            studies: the names of the studies.

        Returns:
            The paths, each once. With `only_finished`, only existing ones.
        """
        batches = (path for study in studies for path in self._batches("train", self.availability.run_here(study)))
        return self._wanted(dict.fromkeys(batches))

    def _wanted(self, files: Iterable[str]) -> list[str]:
        """Return the files; with `only_finished`, only existing ones."""
        return [path for path in files if not self.config.only_finished or Path(path).exists()]

    def _batches(self, stage: str, cells: list[Cell]) -> dict[str, None]:
        """Return the outputs of the jobs of a stage, in the order of the cells."""
        seeds: dict[str, list[int]] = {}
        for cell in cells:
            seeds.setdefault(cell.folder(stage).rpartition("/")[0], []).append(cell.seed)
        size = self.config.jobs.seeds_per_job
        return {
            f"{self.root}/{folder}/seeds-{seed_ranges(batch)}.json": None
            for folder, numbers in seeds.items()
            for batch in seed_batches(numbers, size)
        }
