"""Settings of a study's tables and figures: as a configuration gives them, and completed as `study.json` holds them."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from fglbench.evaluation.quantities import Direction
from fglbench.settings import Section

Axis = Literal["dataset", "scheme", "clients", "method", "backbone", "label"]
ScoredNodes = Literal["train", "val", "test", "global_test"]
Reading = Literal["val", "last", "test"]
ClientMean = Literal["pooled", "macro", "nodes", "weighted"]
FileName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,60}$")]
FigureKind = Literal[
    "accuracy_per_round",
    "accuracy_per_second",
    "accuracy_by_clients",
    "label_heatmap",
    "bytes_by_accuracy",
    "average_ranks",
    "accuracy_by_participation",
    "aggregation_weights",
    "labels_and_convergence",
    "seconds_by_method",
    "accuracy_by_method",
    "accuracy_by_local_epochs",
    "graph",
]


class Reference(Section):
    """The printed table of a paper that a table is compared with."""

    table: str = Field(description="The table's number in the paper.")
    where: dict[str, str | int | list[str | int]] = Field(
        {},
        description="Columns of the CSV, and values that rows must have there; they replace the table's own `where`.",
    )
    exact: bool = Field(False, description="Compare `-lcc` datasets only with rows of that very name.")


class Shown(Section):
    """A table or figure of a study."""

    name: FileName = Field(description="File name.")
    title: str = Field(description="Title.")

    @property
    def heading(self) -> str:
        """The title without a full stop; the name if the title is empty."""
        return self.title.removesuffix(".") or self.name


class TableSettings(Shown):
    """One table of a study."""

    title: str = Field(description="First sentence of the caption.")
    kind: Literal["cells", "datasets", "partitions"] = Field(
        "cells",
        description="Numbers of cells; or sizes of the datasets, for which only `reference` counts; or of the clients "
        "of partitions, for which `where` counts too.",
    )
    rows: list[Axis] = Field(["backbone", "label"], min_length=1, description="What distinguishes rows.")
    columns: list[Axis] = Field(["dataset", "scheme", "clients"], min_length=1, description="And columns.")
    metric: str | None = Field(
        None, description="accuracy, f1_micro, f1_macro, train_seconds, bytes_up, ...; null: what selects the round."
    )
    split: ScoredNodes = Field("test", description="Nodes scored: of the clients' own graphs, or of the global test.")
    where: dict[Axis, list[str | int]] = Field({}, description="Keep only cells with these values.")
    reading: Reading | None = Field(None, description="Round shown; null: the protocol's.")
    mean: ClientMean | None = Field(None, description="Mean over clients; null: the protocol's.")
    digits: int = Field(1, ge=0, le=6, description="Decimals printed.")
    percent: bool | None = Field(None, description="Print in percent; null: scores are.")
    better: Direction | None = Field(None, description="Direction; null: by the metric.")
    separable: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Mark what a paired t-test over seeds, Holm-corrected, does not tell from the best at this level; "
        "null: no test.",
    )
    reference: Reference | None = Field(None, description="The printed table to compare with.")


class FigureSettings(Shown):
    """One figure of a study."""

    kind: FigureKind = Field(description="What is drawn.")
    where: dict[Axis, list[str | int]] = Field({}, description="Keep only cells with these values.")
    split: ScoredNodes = Field("test", description="Nodes scored, as in tables; of the curves test or val.")
    metric: str | None = Field(None, description="What is drawn, as in tables; null: what selects the round.")
    gains: dict[str, str] = Field(
        {},
        description="accuracy_by_clients: labels, each with the one that is subtracted from it, seed by seed; the "
        "differences are drawn.",
    )


class TableSpec(TableSettings):
    """An entry of `tables` in `study.json`: the settings of a table, complete.

    Keys that were removed since a record was made are ignored.

    Attributes:
        metric: score that is shown.
        reading: round that is shown.
        mean: mean over clients.
        targets: name of the scored targets in captions, such as "nodes".
    """

    model_config = ConfigDict(extra="ignore")

    metric: str
    reading: Reading = "val"
    mean: ClientMean = "pooled"
    targets: str = "nodes"

    @property
    def axes(self) -> list[str]:
        """The fields of the table's rows and columns."""
        return [*self.rows, *self.columns]

    @property
    def printed_table(self) -> Reference:
        """The printed table that this table is compared with.

        Raises:
            ValueError: the table has no `reference`.
        """
        if self.reference is None:
            raise ValueError(f"table '{self.name}' has no reference")
        return self.reference


class FigureSpec(FigureSettings):
    """An entry of `figures` in `study.json`: the settings of a figure, complete.

    Keys that were removed since a record was made are ignored.

    Attributes:
        metric: score that is drawn.
        reading: round that is drawn.
        mean: mean over clients.
    """

    model_config = ConfigDict(extra="ignore")

    metric: str
    reading: Reading = "val"
    mean: ClientMean = "pooled"
