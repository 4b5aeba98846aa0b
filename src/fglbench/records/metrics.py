"""The scores of a trained seed: `metrics.json`. Equal predictions give equal bytes, for no time or version is in it."""

from collections.abc import Iterator
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from fglbench.records.base import Record
from fglbench.records.run import Outcome

METRICS = "metrics.json"
EVALUATE_VERSION = 1
"""Raised when scores change. No cell's identity depends on the evaluation, which is repeated without training: its rule
and archives know its version."""

Means: TypeAlias = dict[str, Any]
"""The entry of one metric, see `evaluation.metrics.scores`."""


class Reading(BaseModel):
    """The scores of one reading ("val", "last" or "test"), by split and metric.

    Attributes:
        round: that it reads, from 0.
        train, val, test: every client's model on its own targets.
        global_test: every client's model on the same targets; None where the protocol has no such test.
    """

    model_config = ConfigDict(frozen=True)

    round: int
    train: dict[str, Means]
    val: dict[str, Means]
    test: dict[str, Means]
    global_test: dict[str, Means] | None = Field(None, exclude_if=lambda found: found is None)

    def splits(self) -> Iterator[tuple[str, dict[str, Means]]]:
        """The splits that were scored, by name."""
        for name in ("global_test", "test", "train", "val"):
            found = getattr(self, name)
            if found is not None:
                yield name, found


class Metrics(Record):
    """The content of `metrics.json`.

    Attributes:
        cell: the cell's id; None where the seed could not be run.
        outcome: how the seed ended.
        bytes_up, bytes_down: sent by all clients, and to them.
        readings: empty unless the outcome is ok.
    """

    NAME = METRICS

    cell: str | None = None
    outcome: Outcome
    bytes_up: int | None = None
    bytes_down: int | None = None
    readings: dict[str, Reading] = Field(default_factory=dict)
