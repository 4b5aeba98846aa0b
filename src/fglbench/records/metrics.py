"""Scores of a trained seed: `metrics.json`.

The file contains no times and no versions, so equal predictions give equal bytes.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from fglbench.evaluation.client_means import ClientMeans
from fglbench.records.base import Record
from fglbench.records.run import Outcome

METRICS = "metrics.json"
EVALUATE_VERSION = 1
"""Version of the evaluation, increased when scores change.

It is not part of a cell's identity, because the evaluation can be repeated without training. The rule of the evaluation
and the archives record it.
"""

Means = Annotated[dict[str, ClientMeans], SkipValidation]
"""The means of each metric, as evaluation computed them."""


class Reading(BaseModel):
    """Scores of one reading ("val", "last" or "test"), by split and metric.

    Attributes:
        round: the round of this reading, from 0.
        train, val, test: every client's model on its own targets.
        global_test: every client's model on the same targets; None if the protocol has no such test.
    """

    model_config = ConfigDict(frozen=True)

    round: int
    train: Means
    val: Means
    test: Means
    global_test: Means | None = Field(None, exclude_if=lambda value: value is None)

    def splits(self) -> Iterator[tuple[str, Means]]:
        """Iterate over the splits that were scored.

        Yields:
            Name and entries by metric, in alphabetical order of the names.
        """
        for name in ("global_test", "test", "train", "val"):
            means = getattr(self, name)
            if means is not None:
                yield name, means


class Metrics(Record):
    """Content of `metrics.json`.

    Attributes:
        cell: the cell's id; None if the seed could not be run.
        outcome: how the seed ended.
        bytes_up: bytes that all clients sent.
        bytes_down: bytes that all clients received.
        readings: by name; empty unless the outcome is ok.
    """

    NAME = METRICS

    cell: str | None = None
    outcome: Outcome
    bytes_up: int | None = None
    bytes_down: int | None = None
    readings: dict[str, Reading] = Field(default_factory=dict)
