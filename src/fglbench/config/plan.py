"""The plan of a workflow: which files each stage makes, and with which settings; asked by the rules.

Seeds of one cell share a job up to `jobs.seeds_per_job`; the job's output is a small list `seeds-<range>.json` beside
the folders of its seeds. The stage itself keeps what is finished, so another grouping of seeds repeats nothing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fglbench.config.expand import Expansion, expand
from fglbench.config.identity import Cell, Part, Spec, seed_ranges, seeds_of
from fglbench.config.load import load_config, load_study, mirror_of
from fglbench.config.schema import Config, Study

GRID = "grid"


class Plan:
    """All studies of a configuration and the jobs behind them.

    Args:
        values: the merged configuration.
        source: its file, for messages.
        studies: folder of study files.

    Raises:
        ConfigError: with every problem found, in the configuration and in the study files.
    """

    def __init__(self, values: dict[str, Any], source: str, studies: Path):
        self.config: Config = load_config(values, source, studies)
        self.root = self.config.results
        mirror = mirror_of(self.config)
        self.mirror = str(mirror) if mirror else None
        self.components = [str(Path(folder).resolve()) for folder in self.config.components]
        fields = {key: getattr(self.config, key) for key in Study.model_fields}
        self.studies: dict[str, Expansion] = {GRID: expand(Study.model_construct(**fields))}
        for path in sorted(studies.glob("*.yaml")):
            self.studies[path.stem] = expand(load_study(path))
        self.active = [GRID, *self.config.studies]
        self._datasets: dict[str, Part] = {}
        self._partitions: dict[tuple[str, str], Part] = {}
        self._prepared: dict[str, Part] = {}
        self._methods: dict[str, Cell] = {}
        for expansion in self.studies.values():
            for cell in expansion.cells:
                self._datasets[cell.dataset.slug] = cell.dataset
                self._partitions[cell.dataset.slug, cell.partition.slug] = cell.partition
                self._prepared[cell.prepared.slug] = cell.prepared
                self._methods[cell.method.slug] = cell

    def dataset(self, wildcards: Any) -> Spec:
        """The specification of a dataset by its slug."""
        return self._datasets[wildcards.dataset].spec

    def partition(self, wildcards: Any) -> Spec:
        """The specification of a partition and its split by the slugs of dataset and partition."""
        return self._partitions[wildcards.dataset, wildcards.partition].spec

    def prepared(self, wildcards: Any) -> Spec:
        """What preprocessing makes, by the slug."""
        return self._prepared[wildcards.prepared].spec

    def specs(self, wildcards: Any) -> dict[str, Spec]:
        """Everything that a training job needs to know."""
        cell = self._methods[wildcards.method]
        return {
            "dataset": self.dataset(wildcards),
            "partition": self.partition(wildcards),
            "prepared": cell.prepared.spec,
            "method": cell.method.spec,
        }

    def cells(self, wildcards: Any) -> dict[int, str]:
        """The cell ids of a training job, by seed."""
        known = self._methods[wildcards.method]
        dataset = self._datasets[wildcards.dataset]
        partition = self._partitions[wildcards.dataset, wildcards.partition]
        return {
            seed: Cell(dataset, partition, known.prepared, known.method, seed).id for seed in seeds_of(wildcards.seeds)
        }

    def prepared_file(self, wildcards: Any) -> str:
        """The output of preprocessing that a training job reads."""
        slug = self._methods[wildcards.method].prepared.slug
        return f"{self.root}/preprocess/{wildcards.dataset}/{wildcards.partition}/{slug}/seeds-{wildcards.seeds}.json"

    def evaluated(self, study: str) -> list[str]:
        """The outputs of all evaluation jobs of a study."""
        return list(self._batches("evaluate", self.studies[study].cells))

    def graphs(self, studies: Iterable[str]) -> list[str]:
        """The data cards of all datasets of some studies."""
        slugs = {cell.dataset.slug: None for study in studies for cell in self.studies[study].cells}
        return [f"{self.root}/download/{slug}/graph.json" for slug in slugs]

    def trained(self, studies: Iterable[str]) -> list[str]:
        """The outputs of all training jobs of some studies."""
        return list(
            dict.fromkeys(path for study in studies for path in self._batches("train", self.studies[study].cells))
        )

    def _batches(self, stage: str, cells: list[Cell]) -> dict[str, None]:
        seeds: dict[str, list[int]] = {}
        for cell in cells:
            seeds.setdefault(cell.folder(stage).rpartition("/")[0], []).append(cell.seed)
        size = self.config.jobs.seeds_per_job
        return {
            f"{self.root}/{folder}/seeds-{seed_ranges(numbers[first : first + size])}.json": None
            for folder, numbers in seeds.items()
            for first in range(0, len(numbers), size)
        }
