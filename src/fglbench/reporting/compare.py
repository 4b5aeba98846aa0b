"""Comparison with a paper: matched numbers, differences, verdicts and rank correlations.

A number matches if it lies within max(2 points, 2 x pooled standard deviation) of the printed one, at most 4 points.
The pooled standard deviation weights both sides by n - 1. A number is unstable if either standard deviation is above 4
points, whatever the difference: the mean then describes no single run.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import pandas as pd

from fglbench.evaluation.statistics import RankCorrelation, pooled_deviation, rank_correlation
from fglbench.records.presentation import Reference, TableSpec
from fglbench.records.study import StudyRecord
from fglbench.reporting.cells import TableCell
from fglbench.reporting.frames import ordered
from fglbench.reporting.outcomes import OUTCOMES
from fglbench.reporting.reference import Printed, base_dataset, named_by, printed_numbers, run_methods
from fglbench.reporting.tables import build_table

TOLERANCE_POINTS, MOST_TOLERANCE_POINTS = 2.0, 4.0
VERDICTS = ("match", "below", "above", "unstable", "no number", "not run")


@dataclass(frozen=True)
class Comparison:
    """One printed number and the study's number.

    Attributes:
        coordinates: the values of `FIELDS`, and `centralised`.
        ours: the study's cell; its state is "ok" if all seeds ended well.
        printed: the paper's number.
        difference: ours minus printed, in printed units (points); None if either is missing.
        tolerance: largest absolute difference of a match, in points; None if either number is missing.
        verdict: one of `VERDICTS`: "not run" if the study has no run, "no number" if its runs give no mean; "" if only
            the paper has no number.
    """

    coordinates: Mapping[str, Any]
    ours: TableCell
    printed: Printed
    difference: float | None
    tolerance: float | None
    verdict: str


def compare(
    study: StudyRecord, spec: TableSpec, reference: pd.DataFrame, cells: list[TableCell] | None = None
) -> list[Comparison]:
    """Compare every printed number of a table's reference with the study's number.

    Dataset, method, backbone, variant, partition scheme and number of clients must agree; the study's `printed` entries
    say how the paper names a method. Several cells of the study may match one printed number. A centralised method such
    as `global` has no partition, so its scheme and number of clients need not agree.

    Args:
        study: the collected records.
        spec: a table's entry in `study.json` that has a `reference`.
        reference: the frame from `reference.load_reference`.
        cells: the result of `own_cells` for this table; None to compute it.

    Returns:
        One comparison for each pair of a printed number and a matching cell, and one for each printed number without a
        cell; in the order of the study's table.

    Raises:
        ConfigError: as `tables.build_table` and `reference.printed_numbers`.
    """
    cells = own_cells(study, spec) if cells is None else cells
    labels = spec.where.get("label")
    methods = [
        (coordinates, names)
        for coordinates, names in run_methods(study)
        if labels is None or coordinates["label"] in labels
    ]
    rows = []
    for number in printed_numbers(study, spec, reference):
        matching = _matching(number, cells, study, spec.printed_table)
        rows += [_comparison(cell.coordinates, cell, number) for cell in matching]
        if not matching:
            missing = TableCell(text=OUTCOMES["not_run"].symbol, state="not_run")
            rows.append(_comparison(_coordinates_of(number, study, methods), missing, number))
    fields = [*spec.columns, *spec.rows]
    keys = [tuple(row.coordinates[name] for name in fields) for row in rows]
    position = {key: index for index, key in enumerate(ordered(keys, fields, study.order))}
    return [row for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: position[pair[0]])]


def own_cells(study: StudyRecord, spec: TableSpec) -> list[TableCell]:
    """Return the study's recorded cells without marks.

    Args:
        study: the collected records.
        spec: the table's entry in `study.json`.

    Returns:
        Cells in the order of the table, row by row; metrics with the unit % are in percent.

    Raises:
        ConfigError: as `tables.build_table`.
    """
    table = build_table(study, spec.model_copy(update={"percent": None, "separable": None}))
    return [replace(cell, best=False, second=False) for row in table.cells for cell in row if cell.coordinates]


def _matching(number: Printed, cells: list[TableCell], study: StudyRecord, printed_table: Reference) -> list[TableCell]:
    def name(cell: TableCell, field: str) -> Any:
        return study.name(field, cell.coordinates[field])

    candidates = [
        cell
        for cell in cells
        if number.dataset in (name(cell, "dataset"), base_dataset(name(cell, "dataset"), printed_table))
        and number.names == named_by(study, cell.coordinates)
    ]
    exact = [
        cell
        for cell in candidates
        if (number.partition, number.clients) == (name(cell, "scheme"), cell.coordinates["clients"])
    ]
    # One centralised run appears in every column, so any of its cells can be compared.
    return exact or (candidates[:1] if number.method in study.centralised else [])


def _coordinates_of(
    number: Printed, study: StudyRecord, methods: list[tuple[dict[str, Any], dict[str, str]]]
) -> dict[str, Any]:
    """Return the coordinates of a printed number without a run, with the study's labels where they exist."""
    return {
        "dataset": study.label("dataset", number.dataset),
        "scheme": study.label("scheme", number.partition),
        "clients": number.clients or "",
        "method": number.method,
        "backbone": study.label("backbone", number.backbone),
        "label": f"{number.method} {number.variant}".strip(),
        "centralised": number.method in study.centralised,
    } | next((coordinates for coordinates, names in methods if names == number.names), {})


def _comparison(coordinates: Mapping[str, Any], ours: TableCell, number: Printed) -> Comparison:
    if ours.mean is None:
        verdict = "not run" if ours.state == "not_run" else "no number"
        return Comparison(coordinates, ours, number, None, None, verdict)
    if number.value is None:
        return Comparison(coordinates, ours, number, None, None, "")
    difference = ours.mean - number.value
    deviations = [(ours.std, ours.n), (number.std, number.n)]
    tolerance = min(max(TOLERANCE_POINTS, 2 * pooled_deviation(deviations)), MOST_TOLERANCE_POINTS)
    beyond = _exceeds(abs(difference), tolerance)
    verdict = ("below" if difference < 0 else "above") if beyond else "match"
    if any(std is not None and _exceeds(std, MOST_TOLERANCE_POINTS) for std, _ in deviations):
        verdict = "unstable"
    return Comparison(coordinates, ours, number, difference, tolerance, verdict)


def _exceeds(value: float, limit: float) -> bool:
    # Rounding keeps floating-point error from deciding a value that equals the limit.
    return round(value - limit, 9) > 0


def verdict_counts(rows: list[Comparison]) -> str:
    """Return the number of comparisons per verdict and the median difference in one line.

    Args:
        rows: comparisons of one table.

    Returns:
        One sentence with a full stop.
    """
    numbers = Counter(row.verdict for row in rows)
    verdicts = [verdict for verdict in VERDICTS if numbers[verdict] or verdict != "no number"]
    counts = ", ".join(f"{numbers[verdict]} {verdict}" for verdict in verdicts)
    distance = median_distance(rows)
    middle = "" if distance is None else f"; median absolute difference {distance:.1f} points"
    without = f"; {numbers['']} where the paper prints no number" if numbers[""] else ""
    return f"{len(rows)} printed: {counts}{without}{middle}."


def median_distance(rows: list[Comparison]) -> float | None:
    """Return the median absolute difference, with unstable numbers included.

    Args:
        rows: comparisons.

    Returns:
        Points; None if no row has a difference.
    """
    distances = [abs(row.difference) for row in rows if row.difference is not None]
    return median(distances) if distances else None


def order_agreement(rows: list[Comparison]) -> RankCorrelation | None:
    """Return the rank correlation of the study's and the printed numbers over methods.

    Only methods with both numbers count; centralised methods are left out.

    Args:
        rows: comparisons of one dataset, scheme, number of clients and backbone.

    Returns:
        Spearman's and Kendall's coefficients; None below three methods or if one side is constant.
    """
    both = [
        (row.ours.mean, row.printed.value)
        for row in rows
        if row.ours.mean is not None and row.printed.value is not None and not row.coordinates["centralised"]
    ]
    return rank_correlation([ours for ours, _ in both], [theirs for _, theirs in both])
