"""A table between its records and its printed formats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fglbench.evaluation.statistics import PairedTest


@dataclass(frozen=True)
class TableCell:
    """One cell of a table.

    Attributes:
        text: what is printed, such as "80.7 ± 0.3", "○" or "2 of 3 †".
        state: "ok", "partial", the outcome of all seeds, or "text" for words.
        mean: in printed units at full precision; None unless every seed ended well.
        std: sample standard deviation in printed units; None for one seed.
        n: seeds that ended well.
        seeds: seeds asked for.
        best, second: marks; ties as printed share them.
        mark: a sign behind the text, explained in the legend; "" without.
        against_best: the cell minus the best one, paired by seed, with its Holm-adjusted p-value; None of the best one,
            where they share fewer than two seeds, and where that is not asked for.
        detail: why a number is missing, seed by seed.
        tone: a word that the page colours by, such as a verdict.
        place: the values of `records.FIELDS`, and what else is the same for all seeds; empty where nothing is recorded.
        values: printed units by seed.
    """

    text: str
    state: str = "text"
    mean: float | None = None
    std: float | None = None
    n: int = 0
    seeds: int = 0
    best: bool = False
    second: bool = False
    mark: str = ""
    against_best: PairedTest | None = None
    detail: str = ""
    tone: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[int, float] = field(default_factory=dict)

    @property
    def hint(self) -> str:
        """What a page shows beside the pointer: why there is no number, or the test against the best."""
        if self.against_best is None:
            return self.detail
        lag = self.against_best.difference
        return f"against the best {lag.mean:+.2f} ± {lag.std:.2f}, n = {lag.n}, p = {self.against_best.p:.2g}"


@dataclass(frozen=True)
class Table:
    """A table before it has a format.

    Attributes:
        name, title: of the table.
        caption: sentences: what the numbers are, how they were made, what the marks mean.
        row_fields, rows: names and values of the row heads.
        column_fields, columns: names and values of the column heads.
        cells: [rows][columns].
        legend: (symbol, meaning) of the symbols that occur.
        notes: further sentences below the table.
        data: the same content as plain records for CSV, numbers at full precision.
    """

    name: str
    title: str
    caption: list[str]
    row_fields: list[str]
    rows: list[tuple[str, ...]]
    column_fields: list[str]
    columns: list[tuple[str, ...]]
    cells: list[list[TableCell]]
    legend: list[tuple[str, str]]
    notes: list[str]
    data: list[dict[str, Any]]
