"""What each job is about: the specifications of datasets, partitions, preprocessing and methods, by their slugs."""

from collections.abc import Iterable
from typing import Any, TypeVar

from fglbench.config.expand import Expansion
from fglbench.config.identity import Cell, Part, Spec, seeds_of
from fglbench.errors import ConfigError
from fglbench.records.component_files import KEY, own_file, own_files

Key = TypeVar("Key")
Value = TypeVar("Value")


class SpecIndex:
    """The specifications of all studies. Wildcards name slugs, as in the paths of the results.

    Args:
        studies: all studies.
        trust: what a changed component file of the user means, see `components.trust`.

    Attributes:
        datasets: every dataset by its slug.

    Raises:
        ConfigError: two different settings have the same path.
    """

    def __init__(self, studies: Iterable[Expansion], trust: str):
        self._trust = trust
        self.datasets: dict[str, Part] = {}
        self._partitions: dict[tuple[str, str], Part] = {}
        self._preprocessed: dict[str, Part] = {}
        self._methods: dict[str, tuple[Part, Part]] = {}
        for expansion in studies:
            for cell in expansion.cells:
                _remember(self.datasets, cell.dataset.slug, cell.dataset)
                _remember(self._partitions, (cell.dataset.slug, cell.partition.slug), cell.partition)
                _remember(self._preprocessed, cell.preprocessed.slug, cell.preprocessed)
                _remember(self._methods, cell.method.slug, (cell.method, cell.preprocessed))

    def dataset(self, wildcards: Any) -> Spec:
        """The specification of a dataset."""
        spec = self.datasets[wildcards.dataset].spec
        return self._with_files(spec, own_file("dataset", spec["name"]))

    def partition(self, wildcards: Any) -> Spec:
        """The specification of a partition and its split."""
        spec = self._partitions[wildcards.dataset, wildcards.partition].spec
        return self._with_files(spec, own_file("scheme", spec["scheme"]))

    def partition_file(self, wildcards: Any) -> str | None:
        """The file of a partition of the scheme `file`."""
        return self._partitions[wildcards.dataset, wildcards.partition].file

    def preprocessed(self, wildcards: Any) -> Spec:
        """What preprocessing makes."""
        return self._preprocessed[wildcards.preprocessed].spec

    def preprocessed_slug(self, wildcards: Any) -> str:
        """The slug of what preprocessing makes for a method."""
        return self._methods[wildcards.method][1].slug

    def specs(self, wildcards: Any) -> dict[str, Any]:
        """Everything that a training job needs to know; with the hashes of users' files and what a changed one means,
        where the cell uses any."""
        specs = self._cell(wildcards, seed=0).specs  # no specification depends on the seed
        files = own_files(specs)
        return {**specs, KEY: files, "trust": self._trust} if files else specs

    def cells(self, wildcards: Any) -> dict[int, str]:
        """The cell ids of a training job, by seed."""
        return {seed: self._cell(wildcards, seed).id for seed in seeds_of(wildcards.seeds)}

    def _cell(self, wildcards: Any, seed: int) -> Cell:
        method, preprocessed = self._methods[wildcards.method]
        dataset = self.datasets[wildcards.dataset]
        partition = self._partitions[wildcards.dataset, wildcards.partition]
        return Cell(dataset, partition, preprocessed, method, seed)

    def _with_files(self, spec: Spec, files: dict[str, str]) -> Spec:
        """With the hashes of users' files, so that Snakemake runs a job again where one changed."""
        return {**spec, KEY: files} if files and self._trust == "again" else spec


def _remember(known: dict[Key, Value], slug: Key, value: Value) -> None:
    if known.setdefault(slug, value) != value:
        raise ConfigError(
            [f"two different settings have the path '{slug}', by an accident of hashing; change one label."]
        )
