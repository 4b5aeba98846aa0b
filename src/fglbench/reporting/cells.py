"""A table between its records and its printed formats."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what is printed, such as "80.7 ± 0.3", "○" or "2 of 3 †".
        state: "ok", "partial", the outcome of all seeds, or "text" for words.
        mean: in printed units at full precision; None unless every seed ended well.
        std: sample standard deviation in printed units; None for one seed.
        n: seeds that ended well.
        seeds: seeds asked for.
        best, second: marks; ties as printed share them.
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
    detail: str = ""
    tone: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[int, float] = field(default_factory=dict)


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
    cells: list[list[Cell]]
    legend: list[tuple[str, str]]
    notes: list[str]
    data: list[dict[str, Any]]
