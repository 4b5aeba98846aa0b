"""The typed settings of components, readable without importing the component, and what they ask of preprocessing.

A component file (a method, backbone or partition scheme) declares a class `Settings(ComponentSettings)` and integers
such as `VERSION`. The workflow needs both while it is parsed, when torch must not be imported, so
`registry.declaration` evaluates just these statements of the file. They may use the names exported here and plain
Python, nothing else.
"""

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
"""Keys that mean something else beside a component's settings, so that no setting can be called so."""


class Section(BaseModel):
    """A part of a configuration: unknown keys are refused, text is never read as a number, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ComponentSettings(Section):
    """Settings of one component; every field has a default and a description."""


class AggregatedSettings(ComponentSettings):
    """Settings of a method that leaves aggregation to another one, see `methods/common/aggregated.py`."""

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
    """Settings of a partition scheme that deals Louvain communities, see `partition/communities.py`."""

    resolution: float = Field(1.0, gt=0, description="Above 1 gives more and smaller communities, below 1 fewer.")
    igraph_above_edges: int = Field(100_000, ge=0, description="Graphs with more undirected edges are left to igraph.")
    leiden_above_edges: int = Field(2_000_000, ge=0, description="And those with more than this to igraph's Leiden.")


class SampledSettings(ComponentSettings):
    """Settings of a backbone whose targets read what a sampler draws, see `samplers/base.py`."""

    sampler: str = Field("tree", description="The sampler that says what a node reads.")
    sampler_settings: dict[str, Any] = Field({}, description="Its settings, where they are not the defaults.")


class SamplerSettings(ComponentSettings):
    """Settings that every sampler has, see `samplers/base.py`."""

    redraw: Literal["never", "epoch", "step"] = Field(
        "epoch", description="How often training draws: once, at the start of every local epoch, or in every step."
    )


Combine: TypeAlias = Literal["last", "each"] | tuple[float, ...]


@dataclass(frozen=True)
class Propagation:
    """What a backbone asks preprocessing to make.

    That is a normalised operator A = D^(r-1) (A + I) D^(-r), and the features of the first linear map propagated with
    it.

    Attributes:
        r: kernel coefficient; 0.5 is symmetric, 0 averages over neighbours.
        self_loops: whether A has self-loops.
        hops: applications of A in the first linear map that may be made ahead of training.
        combine: "last" (A^hops X), "each" (X, A X, ..., A^hops X), or hops + 1 coefficients c (sum over l of
            c_l A^l X).
        fill: whether sparse features may be propagated ahead, which fills them up.
    """

    r: float = 0.5
    self_loops: bool = True
    hops: int = 0
    combine: Combine = "last"
    fill: bool = True

    def spec(self) -> dict[str, Any]:
        """The request in a specification; what is not said has its default."""
        spec: dict[str, Any] = {"r": self.r, "hops": self.hops}
        if not self.self_loops:
            spec["self_loops"] = False
        if self.combine != "last":
            spec["combine"] = list(self.combine) if isinstance(self.combine, tuple) else self.combine
        if not self.fill:
            spec["fill"] = False
        return spec

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> "Propagation":
        """The request in a specification, which may say other things beside it."""
        own = {name: spec[name] for name in cls.__dataclass_fields__ if name in spec}
        if isinstance(own.get("combine"), list):
            own["combine"] = tuple(own["combine"])
        return cls(**own)
