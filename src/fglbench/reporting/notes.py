"""Sentences below a table: missing numbers, tests, average ranks and paired differences."""

from collections import Counter
from typing import Any

import pandas as pd

from fglbench.evaluation.quantities import Quantity
from fglbench.evaluation.statistics import ranks_over_datasets
from fglbench.records.presentation import TableSpec
from fglbench.records.study import FIELDS, PROBLEM
from fglbench.reporting.captions import test_of
from fglbench.reporting.cells import TableCell
from fglbench.reporting.frames import shown, titled
from fglbench.reporting.marks import competes, leads

MOST_NAMED = 6
MOST_REASONS = MOST_PAIRS = 12


def notes(spec: TableSpec, unit: Quantity, cells: list[list[TableCell]], frame: pd.DataFrame) -> list[str]:
    """Return the sentences below a table.

    Args:
        spec: the table's entry in `study.json`.
        unit: the quantity that the table shows.
        cells: [rows][columns], with marks.
        frame: the table's records, one row per cell placement and seed.

    Returns:
        Sentences in print order: missing numbers, clients without nodes, tests, average ranks, paired differences.
    """
    if frame.empty:
        return ["No record matches this table's filter."]
    return [
        *_reasons(spec, cells),
        *_clients(spec, frame),
        *_separable(spec, unit, cells),
        *_ranking(spec, unit, cells),
        *_pairs(spec, cells),
    ]


def _name(spec: TableSpec, cell: TableCell) -> str:
    """Return the row and column values of a cell in one line."""
    fields = [name for name in FIELDS if name in spec.axes]
    return titled(fields, [cell.coordinates[name] for name in fields])


def _reasons(spec: TableSpec, cells: list[list[TableCell]]) -> list[str]:
    by_detail: dict[str, list[TableCell]] = {}
    for cell in (cell for row in cells for cell in row):
        if cell.detail and cell.coordinates:
            by_detail.setdefault(cell.detail, []).append(cell)
    sentences = [f"{_named(spec, group)}: {detail}." for detail, group in by_detail.items()]
    excess = len(sentences) - MOST_REASONS
    if excess > 0:
        return [*sentences[:MOST_REASONS], f"{excess} more cells without a number: see runs.parquet."]
    return sentences


def _named(spec: TableSpec, cells: list[TableCell]) -> str:
    """Return the names of cells with the same reason; beyond `MOST_NAMED`, the number of cells per dataset."""
    if len(cells) <= MOST_NAMED:
        return "; ".join(_name(spec, cell) for cell in cells)
    counts = Counter(cell.coordinates["dataset"] for cell in cells)
    return "; ".join(f"{dataset}, {count} cell{'s' * (count > 1)}" for dataset, count in counts.items())


def _clients(spec: TableSpec, frame: pd.DataFrame) -> list[str]:
    if not {"evaluated", "of"} <= set(frame.columns):
        return []
    fields = [name for name in PROBLEM if name in spec.axes]
    incomplete = frame[frame["evaluated"] < frame["of"]]
    lines = []
    for key, group in incomplete.groupby(fields or ["dataset"], sort=False):
        problem = titled(fields or ["dataset"], key)
        low, high, of = int(group["evaluated"].min()), int(group["evaluated"].max()), int(group["of"].max())
        lines.append(f"{problem}: {low if low == high else f'{low} to {high}'} of {of} clients evaluated.")
    return lines


def _separable(spec: TableSpec, unit: Quantity, cells: list[list[TableCell]]) -> list[str]:
    """Return how many cells the test separates from the best, which shows that a table without marks was tested."""
    level = spec.separable
    rivals = [cell for row in cells for cell in row if competes(cell) and cell.mean is not None]
    if level is None or unit.better is None or len(rivals) < 2:
        return []
    tests = [cell.against_best for cell in rivals if cell.against_best]
    separated = sum(test.p < level for test in tests)
    line = f"Separable from the best {test_of(level)}: {separated} of {len(tests)} cells"
    untested = sum(not cell.best and cell.against_best is None for cell in rivals)
    return [line + (f"; {untested} more have no rival or fewer than two common seeds." if untested else ".")]


def _ranking(spec: TableSpec, unit: Quantity, cells: list[list[TableCell]]) -> list[str]:
    """Return average ranks over the problems in which every competing method has a number; none for mixed devices."""
    names = [name for name in ("backbone", "label", "method") if name in spec.axes]
    rivals = [cell for row in cells for cell in row if cell.coordinates and not cell.coordinates["centralised"]]
    if (
        unit.better is None
        or not names
        or len({cell.coordinates["device"] for cell in rivals if cell.mean is not None}) > 1
    ):
        return []
    entrants: dict[str, dict[tuple[Any, ...], float | None]] = {}
    for cell in rivals:
        *context, method = [str(cell.coordinates[name]) for name in names]
        entrant = f"{method} ({', '.join(context)})" if context else method
        entrants.setdefault(entrant, {})[tuple(cell.coordinates[name] for name in PROBLEM)] = cell.mean
    ranks = ranks_over_datasets(entrants, unit.better)
    if ranks is None:
        return []
    each = ", each dataset counted once" if 1 < ranks.datasets < ranks.columns else ""
    order = ", ".join(f"{entrant} {rank:.2f}" for entrant, rank in ranks.order)
    line = f"Average rank over {ranks.columns} columns{each}: {order}"
    if ranks.critical_difference is None:
        return [f"{line}."]
    line += f"; critical difference (Nemenyi, 5 %): {ranks.critical_difference:.2f}"
    return [line + ("." if ranks.friedman_p is None else f"; Friedman p = {ranks.friedman_p:.3g}.")]


def _pairs(spec: TableSpec, cells: list[list[TableCell]]) -> list[str]:
    """Return the lead of each single best cell over the second, paired by seed; empty beyond `MOST_PAIRS` problems."""
    parts = []
    fields = [name for name in PROBLEM if name in spec.axes]
    digits = spec.digits
    for key, lead in leads(cells):
        problem = ", ".join(shown(name, key[PROBLEM.index(name)]) for name in fields)
        sign = "+" if lead.mean >= 0 else "−"
        parts.append(f"{problem} {sign}{abs(lead.mean):.{digits}f} ± {lead.std:.{digits}f}".strip())
    return [f"Best minus second, paired by seed: {'; '.join(parts)}."] if 0 < len(parts) <= MOST_PAIRS else []
