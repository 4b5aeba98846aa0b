"""Typed settings of components, which can be read without importing the component, and requests to preprocessing.

A component file (such as a method, backbone or partition scheme) declares a class `Settings(ComponentSettings)` and
integers such as `VERSION`. The workflow reads both while Snakemake parses it, before torch may be imported. So
`registry.declaration` evaluates only these statements of the file. They may use the names exported here and built-in
Python, and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "AggregatedSettings",
    "Annotated",
    "Any",
    "AveragedSettings",
    "CommunitySettings",
    "ComponentSettings",
    "Field",
    "Literal",
    "Propagation",
    "SampledSettings",
    "SamplerSettings",
    "Section",
]


OF_ENTRIES = ("name", "label", "training", "protocol", "printed", "settings")
"""Reserved names: these keys of a component's entry have another meaning, so no setting can have these names."""


class Section(BaseModel):
    """A section of a configuration: immutable, without unknown keys, and without conversion of strings to numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ComponentSettings(Section):
    """Settings of one component; every field has a default and a description."""


class AggregatedSettings(ComponentSettings):
    """Settings of a method that delegates aggregation to another method, see `methods/common/aggregated.py`."""

    aggregation: str = Field("fedavg", description="The method that aggregates.")
    aggregation_settings: dict[str, Any] = Field({}, description="Its settings, where they are not the defaults.")


class AveragedSettings(ComponentSettings):
    """Settings of a method that averages the clients' parameters, see `methods/fedavg.py`."""

    weights: Literal["labelled", "nodes", "labelled_times_nodes"] | None = Field(
        None,
        description="What a client counts by in the average: its training nodes, all its nodes, or their product; "
        "null: the targets that it trains on.",
    )


class CommunitySettings(ComponentSettings):
    """Settings of a partition scheme that assigns Louvain communities, see `partition/communities.py`."""

    resolution: float = Field(1.0, gt=0, description="Above 1 gives more and smaller communities, below 1 fewer.")
    igraph_above_edges: int = Field(100_000, ge=0, description="Graphs with more undirected edges are left to igraph.")
    leiden_above_edges: int = Field(2_000_000, ge=0, description="And those with more than this to igraph's Leiden.")


class SampledSettings(ComponentSettings):
    """Settings of a backbone that computes its targets from sampled neighbours, see `samplers/base.py`."""

    sampler: str = Field("tree", description="The sampler that says what a node reads.")
    sampler_settings: dict[str, Any] = Field({}, description="Its settings, where they are not the defaults.")


class SamplerSettings(ComponentSettings):
    """Settings that all samplers share, see `samplers/base.py`."""

    redraw: Literal["never", "epoch", "step"] = Field(
        "epoch", description="How often training draws: once, at the start of every local epoch, or in every step."
    )


Combine: TypeAlias = Literal["last", "each"] | tuple[float, ...]


@dataclass(frozen=True)
class Propagation:
    """The propagation that a backbone requests from preprocessing.

    Preprocessing computes the normalised operator A = D^(r-1) (A + I) D^(-r), and the features of the first linear map,
    propagated with that operator.

    Attributes:
        r: kernel coefficient; 0.5 is symmetric, 0 averages over neighbours.
        self_loops: whether A has self-loops.
        hops: applications of A in the first linear map that preprocessing can compute before training.
        combine: "last" (A^hops X), "each" (X, A X, ..., A^hops X), or hops + 1 coefficients c for the sum of
            c_l A^l X over l.
        fill: whether preprocessing may propagate sparse features, which makes them dense.
    """

    r: float = 0.5
    self_loops: bool = True
    hops: int = 0
    combine: Combine = "last"
    fill: bool = True

    def spec(self) -> dict[str, Any]:
        """Return the request as part of a cell's specification.

        Returns:
            `r` and `hops`, and those of `self_loops`, `combine` and `fill` that differ from their defaults.
        """
        spec: dict[str, Any] = {"r": self.r, "hops": self.hops}
        if not self.self_loops:
            spec["self_loops"] = False
        if self.combine != "last":
            spec["combine"] = list(self.combine) if isinstance(self.combine, tuple) else self.combine
        if not self.fill:
            spec["fill"] = False
        return spec

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "Propagation":
        """Read the request from a specification.

        Args:
            spec: as `spec` returns it; other keys are ignored.

        Returns:
            The request; missing keys have their defaults.
        """
        values = {name: spec[name] for name in cls.__dataclass_fields__ if name in spec}
        if isinstance(values.get("combine"), list):
            values["combine"] = tuple(values["combine"])
        return cls(**values)
