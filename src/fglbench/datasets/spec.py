"""What the catalogue says of a dataset: its counts, its files, and the settings of those that are generated.

Light on purpose, as the catalogue is: no torch, pandas or loader.
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
        """Undirected edges."""
        return round(self.nodes * self.average_degree / 2)

    @property
    def same_class_edges(self) -> int:
        """Undirected edges whose ends have the same class."""
        return round(self.edges * self.homophily)

    @model_validator(mode="after")
    def _possible(self) -> "SbmSettings":
        if self.classes * 2 > self.nodes:
            raise ValueError(f"classes {self.classes} > nodes / 2 = {self.nodes // 2}; every class needs two nodes")
        small, larger = divmod(self.nodes, self.classes)
        within = (self.classes - larger) * (small * (small - 1) // 2) + larger * ((small + 1) * small // 2)
        across = self.nodes * (self.nodes - 1) // 2 - within
        wanted = {"one class": (self.same_class_edges, within)}
        wanted["two classes"] = (self.edges - self.same_class_edges, across)
        for kind, (asked, pairs) in wanted.items():
            if asked * 2 > pairs:
                raise ValueError(
                    f"average_degree {self.average_degree} and homophily {self.homophily} ask for {asked} edges "
                    f"inside {kind}, but at most half of the {pairs} pairs can be edges; ask for a lower average_degree"
                )
        return self


@dataclass(frozen=True)
class Counts:
    """What a dataset must hold: `edges` are undirected, without duplicates and self-loops."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class Announced:
    """What is known of a dataset whose published files have not been read here.

    Numbers are those of its publishers, which FedGTA prints too (table 2). `counts.edges` are half the entries where
    these have both directions, else all of them, so that duplicates and self-loops may count; they are not checked,
    and neither are hashes.

    Attributes:
        entries: edges that the raw files hold, as they say; checked.
        raw_mb: size of the raw files in 10^6 bytes, estimated from their arrays where no publisher states it.
        archive_mb: size of the archive they come in; 0 where each comes by itself.
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
        counts: nodes, undirected edges, features, classes; of the default settings where there are settings.
        about: what nodes, edges, features and classes are.
        source: where it comes from, for people.
        citation: the paper to cite.
        license: what is known about the terms of use.
        content_hash: `datasets.base.content_hash` of the canonical graph; None where it depends on settings, or is not
            known yet.
        raw_files: paths below a mirror folder, with the hash of what each file holds (None: not known yet); empty where
            nothing is needed.
        url: the address of the folder that holds the raw files, of a .tar.gz or .zip with them, or of each file by its
            base name; "" where nothing is needed.
        announced: of a dataset whose files have not been read here.
        pyg: class of `torch_geometric.datasets` and its `name` argument ("" where it takes none).
        largest_component: only the largest connected component of the graph that the loader reads.
        component: the file of a user's own dataset.
        own_files: what that reads; neither downloaded nor in a mirror.
        own_split: whether it comes with masks.
        own_negative: whether it says that features may be negative.
        native_clients: clients that it comes split into; 0 where it does not.
        settings: the settings class; without fields unless the dataset is generated.
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
        return self.counts.nodes

    @property
    def edges(self) -> int:
        return self.counts.edges

    @property
    def features(self) -> int:
        return self.counts.features

    @property
    def classes(self) -> int:
        return self.counts.classes

    @property
    def needs_files(self) -> bool:
        """False for datasets that are embedded in a library, generated, or a user's own."""
        return bool(self.raw_files)

    @property
    def has_public_split(self) -> bool:
        """Whether the dataset comes with masks of its own."""
        return self.own_split or self.family in ("planetoid", "graphsaint", "ogb", "fedgta")

    @property
    def has_negative_features(self) -> bool:
        """Whether features are standardised, embeddings or Gaussian: rows cannot be divided by their sums."""
        standardised = self.family in ("embedded", "synthetic", "ogb") and self.name != "karate"
        return self.own_negative or standardised or self.name == "reddit"

    @property
    def synthetic(self) -> bool:
        return self.family == "synthetic"

    def read_settings(self, values: Mapping[str, Any]) -> ComponentSettings:
        """Validates settings.

        Raises:
            DataError: an unknown key, a wrong type or a value out of range; all problems in one message.
        """
        try:
            return self.settings(**values)
        except ValidationError as error:
            known = self.settings.model_fields
            problems = []
            for problem in error.errors():
                key = ".".join(str(part) for part in problem["loc"])
                if problem["type"] != "extra_forbidden":
                    problems.append(f"{key or 'settings'}: {problem['msg']} (found {problem['input']!r})")
                elif known:
                    problems.append(f"'{key}' is not a setting. {suggest(key, known)}")
                else:
                    problems.append(f"'{key}' is not a setting; this dataset has none.")
            raise DataError(f"dataset '{self.name}': " + " ".join(problems)) from error

    def counts_for(self, values: Mapping[str, Any]) -> Counts:
        """The counts under given settings, known before anything is made.

        Raises:
            DataError: the settings are not valid.
        """
        settings = self.read_settings(values)
        if isinstance(settings, SbmSettings):
            return Counts(settings.nodes, settings.edges, settings.features, settings.classes)
        return self.counts
