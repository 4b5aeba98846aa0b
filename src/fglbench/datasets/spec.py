"""The rows of the catalogue: counts and files of a dataset, and the settings of generated datasets.

Like the catalogue, this module imports neither torch, pandas nor a loader, so that it loads fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError, model_validator

from fglbench.errors import DataError, suggest
from fglbench.settings import ComponentSettings, Field


class SbmSettings(ComponentSettings):
    """Settings of the synthetic stochastic block model."""

    nodes: int = Field(10_000, ge=4, le=100_000_000, description="number of nodes, dealt evenly to the classes")
    classes: int = Field(5, ge=2, le=10_000, description="number of classes, one block each")
    average_degree: float = Field(10.0, ge=0, description="edges = nodes * average_degree / 2, rounded")
    homophily: float = Field(0.8, ge=0, le=1, description="fraction of edges that join two nodes of one class")
    features: int = Field(100, ge=1, le=100_000, description="number of features")
    signal: float = Field(1.0, ge=0, description="distance of a class centre from the origin; the noise deviates by 1")
    seed: int = Field(0, ge=0, description="seed of the graph itself, not of a cell")

    @property
    def edges(self) -> int:
        """Number of undirected edges."""
        return round(self.nodes * self.average_degree / 2)

    @property
    def same_class_edges(self) -> int:
        """Number of undirected edges whose ends have the same class."""
        return round(self.edges * self.homophily)

    @model_validator(mode="after")
    def _possible(self) -> "SbmSettings":
        if self.classes * 2 > self.nodes:
            raise ValueError(f"classes {self.classes} > nodes / 2 = {self.nodes // 2}; every class needs two nodes")
        small, larger = divmod(self.nodes, self.classes)
        within = (self.classes - larger) * (small * (small - 1) // 2) + larger * ((small + 1) * small // 2)
        across = self.nodes * (self.nodes - 1) // 2 - within
        requested = {
            "within one class": (self.same_class_edges, within),
            "between two classes": (self.edges - self.same_class_edges, across),
        }
        for kind, (edges, pairs) in requested.items():
            if edges * 2 > pairs:
                raise ValueError(
                    f"average_degree {self.average_degree} and homophily {self.homophily} request {edges} edges "
                    f"{kind}, but at most half of the {pairs} pairs there can be edges; lower average_degree"
                )
        return self


@dataclass(frozen=True)
class Counts:
    """The sizes that a dataset must have.

    Attributes:
        nodes: number of nodes.
        edges: number of undirected edges, without duplicates and self-loops.
        features: number of features.
        classes: number of classes.
    """

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class Announced:
    """Published sizes of a dataset whose files this project has not read yet.

    The numbers come from the publishers of the dataset; FedGTA prints them too (table 2). `counts.edges` is half the
    number of entries if the entries contain both directions, else their number, so it may include duplicates and
    self-loops; for arxiv it is smaller, the number of distinct undirected edges. `counts.edges` and hashes are not
    checked.

    Attributes:
        entries: number of edges in the raw files, as published; checked.
        raw_mb: size of the raw files in 10^6 bytes; estimated from their arrays if no publisher states it.
        archive_mb: size of their archive in 10^6 bytes; 0 if each file is downloaded separately.
    """

    entries: int
    raw_mb: int
    archive_mb: int = 0


@dataclass(frozen=True)
class DatasetSpec:
    """One row of the catalogue.

    Attributes:
        name: as used in configurations, folders and tables.
        title: as printed in reports.
        family: datasets of one family share their raw format and origin.
        loader: the module of `fglbench.datasets` whose `load` makes the graph.
        counts: nodes, undirected edges, features, classes; for a generated dataset under its default settings.
        about: the meaning of nodes, edges, features and classes.
        source: origin of the data, as text.
        citation: the paper to cite.
        license: known terms of use.
        content_hash: `datasets.base.content_hash` of the canonical graph; None if it depends on settings or is not
            known yet.
        raw_files: paths below a mirror folder -> checksum of the content of the file (None: not known yet); empty if
            the dataset needs no files.
        url: address of a folder with the raw files, of a .tar.gz or .zip with them, or of each file by its base name;
            "" if there is none.
        announced: published sizes, if the files have not been read in this project; else None.
        pyg: class of `torch_geometric.datasets` and its `name` argument ("" if it has none).
        largest_component: whether the graph is reduced to its largest connected component.
        component: the file of a user's own dataset.
        own_files: data files of a user's own dataset; neither downloaded nor in a mirror.
        own_split: whether a user's own dataset has masks.
        own_negative: whether a user's own dataset may have negative features.
        native_clients: number of clients in the published data; 0 if it has no clients.
        settings: the settings class; it has no fields unless the dataset is generated.
        version: raised when the graph changes; part of the identity of every cell.
    """

    name: str
    title: str
    family: str
    loader: str
    counts: Counts
    about: str
    source: str
    citation: str
    license: str
    content_hash: str | None
    raw_files: Mapping[str, str | None] = field(default_factory=dict)
    url: str | Mapping[str, str] = ""
    announced: Announced | None = None
    pyg: tuple[str, str] = ("", "")
    largest_component: bool = False
    component: Path | None = None
    own_files: tuple[Path, ...] = ()
    own_split: bool = False
    own_negative: bool = False
    native_clients: int = 0
    settings: type[ComponentSettings] = ComponentSettings
    version: int = 1

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.counts.nodes

    @property
    def edges(self) -> int:
        """Number of undirected edges."""
        return self.counts.edges

    @property
    def features(self) -> int:
        """Number of features."""
        return self.counts.features

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.counts.classes

    @property
    def needs_files(self) -> bool:
        """Whether it has raw files; false for datasets inside a library, generated ones, and users' own."""
        return bool(self.raw_files)

    @property
    def has_public_split(self) -> bool:
        """Whether the dataset has its own masks."""
        return self.own_split or self.family in ("planetoid", "graphsaint", "ogb", "fedgta")

    @property
    def has_negative_features(self) -> bool:
        """Whether features may be negative, because they are standardised, embeddings or Gaussian.

        Rows of such features cannot be divided by their sums.
        """
        standardised = self.family in ("embedded", "synthetic", "ogb") and self.name != "karate"
        return self.own_negative or standardised or self.name == "reddit"

    @property
    def synthetic(self) -> bool:
        """Whether the graph is generated."""
        return self.family == "synthetic"

    def read_settings(self, values: Mapping[str, Any]) -> ComponentSettings:
        """Validate the settings of the dataset.

        Args:
            values: setting -> value; missing settings have their defaults.

        Returns:
            The complete settings.

        Raises:
            DataError: a key is unknown, or a value has a wrong type or is out of range. The message lists all problems.
        """
        try:
            return self.settings(**values)
        except ValidationError as error:
            valid = self.settings.model_fields
            problems = []
            for problem in error.errors():
                key = ".".join(str(part) for part in problem["loc"])
                if problem["type"] != "extra_forbidden":
                    problems.append(f"{key or 'settings'}: {problem['msg']} (found {problem['input']!r})")
                elif valid:
                    problems.append(f"'{key}' is not a setting. {suggest(key, valid)}")
                else:
                    problems.append(f"'{key}' is not a setting; this dataset has none.")
            raise DataError(f"dataset '{self.name}': " + " ".join(problems)) from error

    def counts_for(self, values: Mapping[str, Any]) -> Counts:
        """Return the counts of the dataset under given settings, without making the graph.

        Args:
            values: setting -> value; missing settings have their defaults.

        Returns:
            The counts of a generated dataset under these settings; else those of the row.

        Raises:
            DataError: the settings are not valid.
        """
        settings = self.read_settings(values)
        if isinstance(settings, SbmSettings):
            return Counts(settings.nodes, settings.edges, settings.features, settings.classes)
        return self.counts
