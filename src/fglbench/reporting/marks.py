"""Marks of table cells: best, second, and not separable from the best.

Cells of the same dataset, scheme and number of clients compete, in a column or in a row. Centralised methods see all
data and do not compete.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fglbench.evaluation.quantities import Quantity
from fglbench.evaluation.statistics import PairedTest, Summary, holm, paired_differences, paired_test
from fglbench.records.presentation import TableSpec
from fglbench.records.study import PROBLEM
from fglbench.reporting.cells import TableCell

ALIKE = "≈"


def with_marks(cells: list[list[TableCell]], spec: TableSpec, unit: Quantity) -> list[list[TableCell]]:
    """Mark the best and the second cell of each problem, compared at the printed precision.

    With `separable` in the table's entry, cells that the test does not separate from the best at this level get the
    mark `ALIKE`. Only complete cells take part.

    Args:
        cells: [rows][columns].
        spec: the table's entry in `study.json`.
        unit: the quantity that the table shows; without a better direction nothing is marked.

    Returns:
        [rows][columns], with marks.
    """
    if unit.better is None:
        return cells
    names = [name for name in PROBLEM if name in spec.axes]
    problems: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if competes(cell):
                key = (*(cell.coordinates.get(name) for name in names), cell.coordinates.get("device"))
                problems.setdefault(key, []).append((i, j))
    marked = [list(row) for row in cells]
    for positions in problems.values():
        rivals = [cells[i][j] for i, j in positions]
        if len(rivals) > 1:
            rivals = _ranked(rivals, spec.digits, unit.better)
            rivals = _tested(rivals, spec.separable, unit.better)
        for (i, j), cell in zip(positions, rivals, strict=True):
            marked[i][j] = cell
    return marked


def competes(cell: TableCell) -> bool:
    """Return whether a cell takes part in the comparison.

    Args:
        cell: a cell of a table.

    Returns:
        True if the cell is recorded and its method is not centralised.
    """
    return bool(cell.coordinates) and not cell.coordinates["centralised"]


def _ranked(rivals: list[TableCell], digits: int, better: str) -> list[TableCell]:
    shown = [None if cell.mean is None else round(float(f"{cell.mean:.{digits}f}"), 12) for cell in rivals]
    podium = sorted({value for value in shown if value is not None}, reverse=better == "higher")
    return [
        replace(cell, best=value in podium[:1], second=value in podium[1:2])
        for cell, value in zip(rivals, shown, strict=True)
    ]


def _tested(rivals: list[TableCell], level: float | None, better: str) -> list[TableCell]:
    """Add to each rival its test against the best, and mark the rivals that the test does not separate from it.

    The p-values are adjusted over all tested rivals. Cells with the printed number of the best are marked as best
    instead.
    """
    means = [cell.mean for cell in rivals if cell.mean is not None]
    if level is None or not means:
        return rivals
    top = max(means) if better == "higher" else min(means)
    best = next(cell for cell in rivals if cell.mean == top)
    raw = [None if cell is best or cell.mean is None else paired_test(cell.values, best.values) for cell in rivals]
    adjusted = iter(holm([test.p for test in raw if test]))
    tests = [PairedTest(test.difference, next(adjusted)) if test else None for test in raw]
    return [
        replace(cell, against_best=test, mark=ALIKE if test and test.p >= level and not cell.best else "")
        for cell, test in zip(rivals, tests, strict=True)
    ]


def leads(cells: list[list[TableCell]]) -> Iterator[tuple[tuple[Any, ...], Summary]]:
    """Yield how far the best cell of each problem is ahead of the second, paired by seed.

    Args:
        cells: [rows][columns], with marks.

    Yields:
        (dataset, scheme, clients) and the differences over common seeds, for problems with a single best and a single
        second cell and at least two common seeds.
    """
    problems: dict[tuple[Any, ...], tuple[list[TableCell], list[TableCell]]] = {}
    for cell in (cell for column in zip(*cells, strict=True) for cell in column):
        if cell.best or cell.second:
            pair = problems.setdefault(tuple(cell.coordinates[name] for name in PROBLEM), ([], []))
            pair[0 if cell.best else 1].append(cell)
    for key, (best, second) in problems.items():
        if len(best) == len(second) == 1:
            lead = paired_differences(best[0].values, second[0].values)
            if lead is not None and lead.std is not None:
                yield key, lead
