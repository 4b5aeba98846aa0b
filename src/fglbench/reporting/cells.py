"""Data structures of a table, between the records and the printed formats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fglbench.evaluation.statistics import PairedTest


@dataclass(frozen=True)
class TableCell:
    """One cell of a table.

    Attributes:
        text: printed text, such as "80.7 ± 0.3", "○" or "2 of 3 †".
        state: "ok"; "partial" if some seeds ended well; the most frequent outcome if none did; "mixed_devices" if timed
            seeds ran on different devices; "text" for words.
        mean: mean over seeds in printed units at full precision; None unless every seed ended well.
        std: sample standard deviation in printed units; None for one seed.
        n: number of seeds that ended well.
        seeds: number of requested seeds.
        best: whether the cell is the best of its problem; cells with equal printed numbers share the mark.
        second: whether the cell is the second best of its problem, with ties as for `best`.
        mark: symbol after the text, explained in the legend; "" for none.
        against_best: the cell minus the best cell, paired by seed, with the Holm-adjusted p-value; None for the best
            cell, for fewer than two common seeds, and for a table without this test.
        detail: reasons for missing numbers, seed by seed.
        tone: word that selects the colour on the report page, such as a verdict; "" for none.
        coordinates: the values of `FIELDS`, `device` and `centralised` of all seeds; empty if nothing is recorded.
        values: value of each seed, by seed, in printed units.
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
    coordinates: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[int, float] = field(default_factory=dict)

    @property
    def hint(self) -> str:
        """Tooltip on the report page: the reason for a missing number, or the test against the best cell."""
        if self.against_best is None:
            return self.detail
        lag = self.against_best.difference
        return f"against the best {lag.mean:+.2f} ± {lag.std:.2f}, n = {lag.n}, p = {self.against_best.p:.2g}"


@dataclass(frozen=True)
class Table:
    """A table without an output format.

    Attributes:
        name: file name without suffix.
        title: title without a full stop.
        caption: sentences above the table: the numbers, how they were computed, and the marks.
        row_fields: names of the fields in the row heads.
        rows: row heads, one value per row field.
        column_fields: names of the fields in the column heads.
        columns: column heads, one value per column field.
        cells: [rows][columns].
        legend: (symbol, meaning) of the symbols that occur.
        notes: sentences below the table.
        data: the content as plain records for CSV, numbers at full precision.
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
