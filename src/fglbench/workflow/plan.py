"""The plan of a workflow: which files each stage makes, and with which settings; asked by the rules.

Seeds of one cell share a job up to `jobs.seeds_per_job`; the job's output is a small list `seeds-<range>.json` beside
the folders of its seeds. The stage itself keeps what is finished, so another grouping of seeds repeats nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fglbench.config.expand import Expansion, dataset_part, expand
from fglbench.config.given import blamed
from fglbench.config.identity import Cell, Part, Spec, seed_batches, seed_ranges, seeds_of
from fglbench.config.load import load_config, load_study, mirror_of
from fglbench.config.schema import Config, Study
from fglbench.config.searches import SearchPlan, plan_searches
from fglbench.datasets import catalogue
from fglbench.datasets.availability import why_unavailable
from fglbench.datasets.room import room_for
from fglbench.errors import ConfigError, DataError
from fglbench.records.archive import archived_cells, archived_files
from fglbench.records.component_files import KEY, own_file, own_files
from fglbench.stages.failures import attempt

GRID = "grid"
UNFINISHED = "not finished"

RESERVED = {"all", "data", "train", "tables", "figures", "report", "tune", GRID}
"""Targets of the workflow that no study may be called like."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Plan:
    """All studies of a configuration and the jobs behind them.

    Args:
        values: the merged configuration.
        source: its file, for messages.
        studies: folder of study files.
        archives: folder of archived studies.
        files: that the values were read from, to find keys that they give twice.
        given: the part of the values that the command line gave; its problems are not the file's.

    Raises:
        ConfigError: with every problem found, in the configuration and in the study files.
        DataError: no dataset of a study can be had here.
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
        found: list[str] = []
        self.studies: dict[str, Expansion] = {}
        with _kept(found):
            self.config: Config = load_config(values, source, studies, files)
            fields = {key: getattr(self.config, key) for key in Study.model_fields}
            self.studies[GRID] = _expanded(Study.model_construct(**fields), source)
        for path in sorted(studies.glob("*.yaml")):
            with _kept(found):
                self.studies[path.stem] = _expanded(_study(path), str(path))
        if found:
            raise ConfigError([blamed(problem, source, given or {}) for problem in found])
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
        self._archived = archived_cells(archives if self.config.published != "none" else None)
        self._attempts: dict[str, int] = {}
        self._datasets: dict[str, Part] = {}
        self._partitions: dict[tuple[str, str], Part] = {}
        self._prepared: dict[str, Part] = {}
        self._methods: dict[str, tuple[Part, Part]] = {}
        for expansion in self.studies.values():
            for cell in expansion.cells:
                _remember(self._datasets, cell.dataset.slug, cell.dataset)
                _remember(self._partitions, (cell.dataset.slug, cell.partition.slug), cell.partition)
                _remember(self._prepared, cell.prepared.slug, cell.prepared)
                _remember(self._methods, cell.method.slug, (cell.method, cell.prepared))
        self._unavailable = {slug: reason for slug, part in self._datasets.items() if (reason := self._why(part))}
        for name in self.active:
            self.check(name)

    def _why(self, dataset: Part) -> str | None:
        """Why a dataset cannot be had here; None where it can, or is in the results already."""
        if Path(self.root, "download", dataset.slug, "graph.json").exists():
            return None
        spec = catalogue.get(dataset.spec["name"])
        return why_unavailable(spec, Path(self.mirror) if self.mirror else None, self.config.data.download)

    def not_run(self, study: str) -> dict[str, str]:
        """Why cells of a study that have no record were not run, by the slug of their dataset.

        That are the datasets that cannot be had here, and where only what is finished is shown all the others as well.
        """
        slugs = {cell.dataset.slug: None for cell in self._wanted_cells(study)}
        if self.config.only_finished:
            return {slug: self._unavailable.get(slug, UNFINISHED) for slug in slugs}
        return {slug: self._unavailable[slug] for slug in slugs if slug in self._unavailable}

    def check(self, study: str) -> None:
        """Raises a DataError where no cell of a study can be run or taken from archived records."""
        if self.config.only_finished:
            return
        reasons = self.not_run(study)
        if not reasons or self._own_cells(study) or self.reused(study):
            return
        listed = "\n".join(f"  - {slug}: {reason}" for slug, reason in reasons.items())
        raise DataError(
            f"study '{study}': none of its datasets can be had here:\n{listed}\n"
            "Put the files there ('fglbench describe <dataset>' names their source), name another folder as "
            "data.mirror or in FGLBENCH_MIRROR, leave the mirror out to download, or choose datasets that need no "
            f"files: {catalogue.free()}."
        )

    def dataset(self, wildcards: Any) -> Spec:
        """The specification of a dataset by its slug."""
        spec = self._datasets[wildcards.dataset].spec
        return self._with_files(spec, own_file("dataset", spec["name"]))

    def download_mb(self, wildcards: Any) -> int:
        """Memory that a download job asks of the scheduler."""
        room = room_for(catalogue.get(self.dataset(wildcards)["name"]))
        return max(4000, round(room.memory / 1e6) if room else 0)

    def download_min(self, wildcards: Any) -> int:
        """Minutes that it asks for: 10 MB a second, and the rest of the work."""
        room = room_for(catalogue.get(self.dataset(wildcards)["name"]))
        return 30 + (round(room.temporary / 6e8) if room else 0)

    def partition(self, wildcards: Any) -> Spec:
        """The specification of a partition and its split by the slugs of dataset and partition."""
        spec = self._partitions[wildcards.dataset, wildcards.partition].spec
        return self._with_files(spec, own_file("scheme", spec["scheme"]))

    def partition_file(self, wildcards: Any) -> str | None:
        """The file of a partition of the scheme `file`."""
        return self._partitions[wildcards.dataset, wildcards.partition].file

    def _with_files(self, spec: Spec, files: dict[str, str]) -> Spec:
        """With the hashes of users' files, so that Snakemake runs a job again where one changed."""
        return {**spec, KEY: files} if files and self.trust == "again" else spec

    def prepared(self, wildcards: Any) -> Spec:
        """What preprocessing makes, by the slug."""
        return self._prepared[wildcards.prepared].spec

    def specs(self, wildcards: Any) -> dict[str, Any]:
        """Everything that a training job needs to know; with the hashes of users' files and what a changed one means,
        where the cell uses any."""
        specs = self._cell(wildcards, seed=0).specs  # no specification depends on the seed
        files = own_files(specs)
        return {**specs, KEY: files, "trust": self.trust} if files else specs

    def cells(self, wildcards: Any) -> dict[int, str]:
        """The cell ids of a training job, by seed."""
        return {seed: self._cell(wildcards, seed).id for seed in seeds_of(wildcards.seeds)}

    def _cell(self, wildcards: Any, seed: int) -> Cell:
        method, prepared = self._methods[wildcards.method]
        dataset = self._datasets[wildcards.dataset]
        partition = self._partitions[wildcards.dataset, wildcards.partition]
        return Cell(dataset, partition, prepared, method, seed)

    def searched_graph(self, wildcards: Any) -> str:
        """The graph that a search trains on."""
        self.search_attempt(wildcards)
        entry = self.searches[wildcards.study][wildcards.search].at.dataset[1]
        return f"{self.root}/download/{dataset_part(entry).slug}/graph.npz"

    def prepared_file(self, wildcards: Any) -> str:
        """The output of preprocessing that a training job reads."""
        self.attempt(wildcards)
        slug = self._methods[wildcards.method][1].slug
        return f"{self.root}/preprocess/{wildcards.dataset}/{wildcards.partition}/{slug}/seeds-{wildcards.seeds}.json"

    def attempt(self, wildcards: Any) -> int:
        """The number of a training job's attempt; see `stages.failures`."""
        folder = f"{self.root}/train/{wildcards.dataset}/{wildcards.partition}/{wildcards.method}"
        return self._attempt(f"{folder}/seeds-{wildcards.seeds}.json")

    def search_attempt(self, wildcards: Any) -> int:
        """The number of a search's attempt."""
        return self._attempt(f"{self.root}/tune/{wildcards.study}/{wildcards.search}.json")

    def _attempt(self, output: str) -> int:
        # Known from when the job's inputs are asked for, before any job runs: Snakemake may ask for params after it.
        if output not in self._attempts:
            self._attempts[output] = attempt(Path(output), self.retried)
        return self._attempts[output]

    def evaluated(self, study: str) -> list[str]:
        """The outputs of all evaluation jobs of a study; archived cells need none, cells without data have none.

        Where only what is finished is shown, those that are there already.

        Raises:
            DataError: no cell of the study can be run or taken from archived records.
        """
        self.check(study)
        return self._wanted(self._batches("evaluate", self._own_cells(study)))

    def reused(self, study: str) -> dict[str, str]:
        """The folders of the archived records that a study reuses, by cell id."""
        if not self._archived or (study == GRID and self.config.published != "all"):
            return {}
        cells = self.studies[study].cells
        return {cell.id: str(self._archived[cell.id]) for cell in cells if cell.id in self._archived}

    def reused_files(self, study: str) -> list[str]:
        """The archived records that a study reuses."""
        folders = sorted(set(self.reused(study).values()))
        return [str(path) for folder in folders for path in archived_files(Path(folder))]

    def _wanted_cells(self, study: str) -> list[Cell]:
        """The cells that are not taken from archived records."""
        reused = self.reused(study)
        return [cell for cell in self.studies[study].cells if not reused or cell.id not in reused]

    def _own_cells(self, study: str) -> list[Cell]:
        """The cells that can be run here."""
        return [cell for cell in self._wanted_cells(study) if cell.dataset.slug not in self._unavailable]

    def graphs(self, studies: Iterable[str]) -> list[str]:
        """The data cards of all datasets of some studies."""
        slugs = {cell.dataset.slug: None for study in studies for cell in self._own_cells(study)}
        return [f"{self.root}/download/{slug}/graph.json" for slug in slugs]

    def trained(self, studies: Iterable[str]) -> list[str]:
        """The outputs of all training jobs of some studies."""
        batches = (path for study in studies for path in self._batches("train", self._own_cells(study)))
        return self._wanted(dict.fromkeys(batches))

    def _wanted(self, files: Iterable[str]) -> list[str]:
        return [path for path in files if not self.config.only_finished or Path(path).exists()]

    def _batches(self, stage: str, cells: list[Cell]) -> dict[str, None]:
        seeds: dict[str, list[int]] = {}
        for cell in cells:
            seeds.setdefault(cell.folder(stage).rpartition("/")[0], []).append(cell.seed)
        size = self.config.jobs.seeds_per_job
        return {
            f"{self.root}/{folder}/seeds-{seed_ranges(batch)}.json": None
            for folder, numbers in seeds.items()
            for batch in seed_batches(numbers, size)
        }


def _remember(known: dict[Key, Value], slug: Key, value: Value) -> None:
    if known.setdefault(slug, value) != value:
        raise ConfigError(
            [f"two different settings have the path '{slug}', by an accident of hashing; change one label."]
        )


def _study(path: Path) -> Study:
    """A study file that may be a target of the workflow."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", path.stem) or path.stem in RESERVED:
        raise ConfigError(
            [
                f"{path}: '{path.stem}' cannot name a study, which is a target of the workflow; use lower-case "
                f"letters, digits and dashes, and none of {', '.join(sorted(RESERVED))}."
            ]
        )
    return load_study(path)


def _expanded(study: Study, source: str) -> Expansion:
    try:
        return expand(study)
    except ConfigError as error:
        raise ConfigError([f"{source}: {problem}" for problem in error.problems]) from error


@contextmanager
def _kept(found: list[str]) -> Iterator[None]:
    """Keeps the problems of one file, so that those of the others are reported with them."""
    try:
        yield
    except ConfigError as error:
        found += error.problems
