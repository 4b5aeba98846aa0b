"""The typed settings of components, readable without importing the component.

A component file (a method, backbone or partition scheme) declares a class `Settings(ComponentSettings)` and integers
such as `VERSION`. The workflow needs both while it is parsed, when torch must not be imported, so
`registry.declaration` evaluates just these statements of the file. They may use the names exported here and plain
Python, nothing else.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fglbench.requests import Propagation

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
    """Settings of a method that leaves aggregation to another one, see `methods/_aggregated.py`."""

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
