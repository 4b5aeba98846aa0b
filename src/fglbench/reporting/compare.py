"""Our numbers beside the printed ones: difference, verdict, and agreement on the order of the methods.

A number matches when it lies within max(2 points, 2 x pooled standard deviation) of the printed one, the deviations of
both sides pooled by their n - 1.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import pandas as pd

from fglbench.evaluation.statistics import pooled_deviation, rank_correlation
from fglbench.reporting import captions
from fglbench.reporting.cells import Cell, Table
from fglbench.reporting.outcomes import OUTCOMES
from fglbench.reporting.quantities import quantity
from fglbench.reporting.records import FIELDS, PROBLEM, Study, as_list, field_titles, ordered, shown, titled
from fglbench.reporting.reference import Printed, base_dataset, named_by, own_places, printed_numbers
from fglbench.reporting.tables import build_table, printed

TOLERANCE_POINTS = 2.0
VERDICTS = ("match", "below", "above", "no number", "not run")


@dataclass(frozen=True)
class Comparison:
    """One printed number with ours.

    Attributes:
        place: the values of `records.FIELDS`.
        ours: our cell; its state is "ok" where all seeds ended well.
        printed: the paper's number.
        difference: ours minus printed, in printed units (points); None where either is missing.
        tolerance: the difference up to which it is a match; None as before.
        verdict: one of `VERDICTS`: "no number" where we ran and have none; "" where only the paper has none.
    """

    place: Mapping[str, Any]
    ours: Cell
    printed: Printed
    difference: float | None
    tolerance: float | None
    verdict: str


def compare(study: Study, spec: Mapping[str, Any], reference: pd.DataFrame) -> list[Comparison]:
    """Every printed number of the table's reference with ours, in the order of the study's table.

    Dataset, method, backbone, variant, partition scheme and number of clients must agree, the method's as the study
    says it is printed; for `global`, which has no partition, scheme and clients need not.

    Args:
        study: our records.
        spec: a table's entry in `study.json` that has a `reference`.
        reference: as `reference.load_reference` reads it.

    Raises:
        ConfigError: as `tables.build_table` and `reference.printed_numbers`.
    """
    return _compare(_own_cells(study, spec), study, spec, reference)


def _own_cells(study: Study, spec: Mapping[str, Any]) -> list[Cell]:
    """Our recorded cells, in percent where the metric is one, without marks."""
    table = build_table(study, {**spec, "percent": None})
    return [replace(cell, best=False, second=False) for row in table.cells for cell in row if cell.place]


def _compare(cells: list[Cell], study: Study, spec: Mapping[str, Any], reference: pd.DataFrame) -> list[Comparison]:
    rows = []
    labels = (spec.get("where") or {}).get("label")
    places = [own for own in own_places(study) if labels is None or own[0]["label"] in as_list(labels)]
    for number in printed_numbers(study, spec, reference):
        found = _matching(number, cells, study, spec["reference"])
        rows += [_comparison(cell.place, cell, number) for cell in found]
        if not found:
            nothing = Cell(text=OUTCOMES["not_run"].symbol, state="not_run")
            rows.append(_comparison(_place_of(number, study, places), nothing, number))
    fields = [*spec["columns"], *spec["rows"]]
    keys = [tuple(row.place[name] for name in fields) for row in rows]
    position = {key: place for place, key in enumerate(ordered(keys, fields, study.order))}
    return [row for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: position[pair[0]])]


def _matching(number: Printed, cells: list[Cell], study: Study, wish: Mapping[str, Any]) -> list[Cell]:
    def named(cell: Cell) -> dict[str, Any]:
        return {field: study.name(field, value) for field, value in cell.place.items()} | named_by(study, cell.place)

    same = [
        cell
        for cell in cells
        if number.dataset in (named(cell)["dataset"], base_dataset(named(cell)["dataset"], wish))
        and all(getattr(number, name) == named(cell)[name] for name in ("method", "backbone", "variant"))
    ]
    exact = [
        cell for cell in same if (number.partition, number.clients) == (named(cell)["scheme"], cell.place["clients"])
    ]
    # One centralised run stands in every column; any of its places will do.
    return exact or (same[:1] if number.method in study.centralised else [])


def _place_of(number: Printed, study: Study, places: list[tuple[dict[str, Any], dict[str, str]]]) -> dict[str, Any]:
    """Where a number stands that we have not run, in the study's own words as far as it has them."""
    return {
        "dataset": study.label("dataset", number.dataset),
        "scheme": study.label("scheme", number.partition),
        "clients": number.clients or "",
        "method": number.method,
        "backbone": study.label("backbone", number.backbone),
        "label": f"{number.method} {number.variant}".strip(),
        "centralised": number.method in study.centralised,
    } | next((place for place, names in places if names == number.names), {})


def _comparison(place: Mapping[str, Any], ours: Cell, number: Printed) -> Comparison:
    if ours.mean is None:
        verdict = "not run" if ours.state == "not_run" else "no number"
        return Comparison(place, ours, number, None, None, verdict)
    if number.value is None:
        return Comparison(place, ours, number, None, None, "")
    difference = ours.mean - number.value
    pooled = pooled_deviation([(ours.std, ours.n), (number.std, number.n)])
    tolerance = max(TOLERANCE_POINTS, 2 * pooled)
    # Rounded so that a difference of exactly the tolerance is not decided by the last binary digit.
    beyond = round(abs(difference) - tolerance, 9) > 0
    verdict = ("below" if difference < 0 else "above") if beyond else "match"
    return Comparison(place, ours, number, difference, tolerance, verdict)


def summary(rows: list[Comparison]) -> str:
    """One line: how many numbers have which verdict, and the median distance."""
    found = Counter(row.verdict for row in rows)
    said = [verdict for verdict in VERDICTS if found[verdict] or verdict != "no number"]
    counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in said)
    distances = [abs(row.difference) for row in rows if row.difference is not None]
    middle = f"; median absolute difference {median(distances):.1f} points" if distances else ""
    without = sum(row.verdict == "" for row in rows)
    words = f"; {without} where the paper prints no number" if without else ""
    return f"{len(rows)} printed: {counts}{words}{middle}."


def agreement(rows: list[Comparison]) -> list[str]:
    """Per dataset, scheme, number of clients and backbone: rank correlation over the methods that both sides have,
    without centralised ones."""
    fields = [*PROBLEM, "backbone"]
    columns: dict[tuple[Any, ...], list[Comparison]] = {}
    for row in rows:
        if row.difference is not None and not row.place["centralised"]:
            columns.setdefault(tuple(row.place[name] for name in fields), []).append(row)
    lines = []
    for key, members in columns.items():
        ours = [row.ours.mean for row in members if row.ours.mean is not None]
        theirs = [row.printed.value for row in members if row.printed.value is not None]
        result = rank_correlation(ours, theirs)
        if result:
            place = titled(fields, key)
            lines.append(
                f"Order of {result.n} methods on {place}: Spearman {result.spearman:.2f}, Kendall {result.kendall:.2f}."
            )
    return lines


def comparison_table(study: Study, spec: Mapping[str, Any], reference: pd.DataFrame) -> Table:
    """The comparison as a table, one row per printed number; arguments and errors as `compare`."""
    own = _own_cells(study, spec)
    rows = _compare(own, study, spec, reference)
    names = [*spec["columns"], *spec["rows"]]
    footnotes: list[str] = []
    cells = [_cells(row, spec.get("digits", 1), footnotes) for row in rows]
    notes = [summary(rows), *agreement(rows)]
    unprinted = {cell.place["label"] for cell in own} - {row.ours.place["label"] for row in rows if row.ours.place}
    if unprinted:
        notes.append(f"Without a printed number: {', '.join(sorted(unprinted))}.")
    notes += [f"[{place}] {text}" for place, text in enumerate(footnotes, start=1)]
    paper = next(iter(reference["paper"]), "the paper")
    caption = [
        f"Ours beside table {spec['reference']['table']} of {paper}; difference in points, ours minus printed.",
        f"Match: within max({TOLERANCE_POINTS:g} points, 2 × pooled standard deviation).",
        *captions.caption(study, spec, quantity(spec["metric"]), [own]),
    ]
    return Table(
        name=f"{spec['name']}-compared",
        title=f"{(spec.get('title') or spec['name']).removesuffix('.')}: ours and printed",
        caption=caption,
        row_fields=field_titles(names),
        rows=[tuple(shown(name, row.place[name]) for name in names) for row in rows],
        column_fields=["value"],
        columns=[("ours",), ("printed",), ("difference",), ("verdict",)],
        cells=cells,
        legend=captions.legend(cells),
        notes=notes,
        data=[_record(row) for row in rows],
    )


def _cells(row: Comparison, digits: int, footnotes: list[str]) -> list[Cell]:
    """Ours, printed, difference and verdict of one row; a note of the reference becomes a numbered footnote."""
    number = row.printed
    if number.value is None:
        theirs = number.note or "no number"
    else:
        theirs = printed(number.value, number.std, digits)
        if number.note:
            if number.note not in footnotes:
                footnotes.append(number.note)
            theirs += f" [{footnotes.index(number.note) + 1}]"
    difference = "–" if row.difference is None else _signed(row.difference, digits)
    verdict = row.verdict or "not printed"
    return [row.ours, Cell(text=theirs), Cell(text=difference), Cell(text=verdict, tone=verdict.replace(" ", "-"))]


def _signed(value: float, digits: int) -> str:
    """With its sign as printed: what rounds to nothing is not below."""
    return ("−" if round(value, digits) < 0 else "+") + f"{abs(value):.{digits}f}"


def _record(row: Comparison) -> dict[str, Any]:
    number = row.printed
    return {
        **{name: row.place[name] for name in FIELDS},
        "ours": row.ours.mean,
        "ours std": row.ours.std,
        "ours n": row.ours.n,
        "ours outcome": row.ours.state,
        "printed": number.value,
        "printed std": number.std,
        "printed n": number.n,
        "difference": row.difference,
        "tolerance": row.tolerance,
        "verdict": row.verdict,
        "note": number.note,
    }
