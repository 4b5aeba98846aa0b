"""Look up the specifications of a job: of its dataset, partition, preprocessing and method, by their slugs."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from fglbench.config.expand import Expansion
from fglbench.config.identity import Cell, Part, Spec, seeds_of
from fglbench.errors import ConfigError
from fglbench.records.component_files import own_file, own_files

Key = TypeVar("Key")
Value = TypeVar("Value")


class SpecIndex:
    """The specifications of all studies. The wildcards of a job name slugs, as the paths of the results do.

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
        """Return the specification of a dataset.

        Args:
            wildcards: of the job, with `dataset`.

        Returns:
            The specification, with the hash of the user's dataset file if there is one and `trust` is "again".
        """
        spec = self.datasets[wildcards.dataset].spec
        return self._with_files(spec, own_file("dataset", spec["name"]))

    def partition(self, wildcards: Any) -> Spec:
        """Return the specification of a partition and its split.

        Args:
            wildcards: of the job, with `dataset` and `partition`.

        Returns:
            The specification, with the hash of the user's scheme file if there is one and `trust` is "again".
        """
        spec = self._partitions[wildcards.dataset, wildcards.partition].spec
        return self._with_files(spec, own_file("scheme", spec["scheme"]))

    def partition_file(self, wildcards: Any) -> str | None:
        """Return the file that a partition of the scheme `file` reads.

        Args:
            wildcards: of the job, with `dataset` and `partition`.

        Returns:
            The path; None for all other schemes.
        """
        return self._partitions[wildcards.dataset, wildcards.partition].file

    def preprocessed(self, wildcards: Any) -> Spec:
        """Return the specification of preprocessing.

        Args:
            wildcards: of the job, with `preprocessed`.

        Returns:
            The specification, as `stages.preprocess.preprocess` reads it.
        """
        return self._preprocessed[wildcards.preprocessed].spec

    def preprocessed_slug(self, wildcards: Any) -> str:
        """Return the slug of the preprocessing that a method reads.

        Args:
            wildcards: of the job, with `method`.

        Returns:
            The slug, which names a folder of `preprocess/`.
        """
        return self._methods[wildcards.method][1].slug

    def specs(self, wildcards: Any) -> Mapping[str, Any]:
        """Return all specifications that a training job needs.

        Args:
            wildcards: of the job, with `dataset`, `partition` and `method`.

        Returns:
            The specifications by part. If the cell uses component files of the user, also their hashes and `trust`.
        """
        specs = self._cell(wildcards, seed=0).specs  # no specification depends on the seed
        files = own_files(specs)
        return {**specs, "component_files": files, "trust": self._trust} if files else specs

    def cells(self, wildcards: Any) -> dict[int, str]:
        """Return the cells of a training job.

        Args:
            wildcards: of the job, with `dataset`, `partition`, `method` and `seeds`.

        Returns:
            The cell id, by seed.
        """
        return {seed: self._cell(wildcards, seed).id for seed in seeds_of(wildcards.seeds)}

    def _cell(self, wildcards: Any, seed: int) -> Cell:
        """Return the cell of a training job and a seed."""
        method, preprocessed = self._methods[wildcards.method]
        dataset = self.datasets[wildcards.dataset]
        partition = self._partitions[wildcards.dataset, wildcards.partition]
        return Cell(dataset, partition, preprocessed, method, seed)

    def _with_files(self, spec: Spec, files: dict[str, str]) -> Spec:
        """Add the hashes of users' files, so that Snakemake runs a job again after a file changed."""
        return {**spec, "component_files": files} if files and self._trust == "again" else spec


def _remember(known: dict[Key, Value], slug: Key, value: Value) -> None:
    """Store a value under a slug, and refuse a second, different value."""
    if known.setdefault(slug, value) != value:
        raise ConfigError(
            [
                f"two different settings have the path '{slug}', because their hashes are equal; change a setting of "
                "one of them."
            ]
        )
