"""Tables of the comparison with a paper: agreement by column, ours / printed in the study's layout, every number."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pandas as pd

from fglbench.evaluation.quantities import quantity
from fglbench.records.presentation import TableSpec
from fglbench.records.study import FIELDS, PROBLEM, StudyRecord
from fglbench.reporting import captions
from fglbench.reporting.cells import Table, TableCell
from fglbench.reporting.compare import (
    MOST_TOLERANCE_POINTS,
    TOLERANCE_POINTS,
    VERDICTS,
    Comparison,
    compare,
    median_distance,
    order_agreement,
    own_cells,
    verdict_counts,
)
from fglbench.reporting.frames import field_titles, ordered, shown, titled
from fglbench.reporting.outcomes import OUTCOMES
from fglbench.reporting.reference import Printed
from fglbench.reporting.sheets import Picture, Sheet
from fglbench.reporting.tables import mean_text

SIGNS = {"above": "▴", "below": "▾", "unstable": "⇕"}
MEANINGS = {"above": "above the printed number", "below": "below the printed number", "unstable": "unstable"}
RULES = (
    f"Numbers match within max({TOLERANCE_POINTS:g} points, 2 × pooled standard deviation), at most "
    f"{MOST_TOLERANCE_POINTS:g} points;",
    f"they are unstable where a standard deviation, ours or the printed one, is above {MOST_TOLERANCE_POINTS:g} "
    "points.",
    "Our deviation covers all that a seed draws: partition, split and initialisation;",
    "a printed deviation often covers the initialisation alone.",
)
ALWAYS_COUNTED = ("match", "below", "above", "unstable")
Key = tuple[Any, ...]


def comparison_sheet(study: StudyRecord, spec: TableSpec, reference: pd.DataFrame) -> Sheet:
    """Build the comparison of a table that has a `reference`.

    Args:
        study: the collected records.
        spec: the table's entry in `study.json`.
        reference: the frame from `reference.load_reference`.

    Returns:
        The sheet: agreement by column, scatter plot (None without a pair of numbers), ours / printed, and a folded
        table of every printed number.

    Raises:
        ConfigError: as `compare.compare`.
    """
    cells = own_cells(study, spec)
    rows = compare(study, spec, reference, cells)
    paper = next(iter(reference["paper"]), "the paper")
    return Sheet(
        table=_matrix(study, spec, cells, rows, paper),
        above=_by_column(spec, rows),
        picture=_picture(spec, rows),
        folded=_numbers(spec, cells, rows),
    )


def _picture(spec: TableSpec, rows: list[Comparison]) -> Picture | None:
    fields = _problem_fields(spec)
    points = [
        (
            str(row.coordinates["backbone"]),
            titled(fields, key),
            row.printed.value,
            row.ours.mean,
            row.verdict == "unstable",
        )
        for key, members in _grouped(rows, fields).items()
        for row in members
        if row.difference is not None
    ]

    def draw() -> bytes:
        # The import is local because terminals show no picture and importing matplotlib takes a second.
        from fglbench.reporting.figures_scatter import Point, png, scatter

        return png(scatter([Point._make(point) for point in points], quantity(spec.metric)))

    caption = (
        "Ours against printed, a point for each number. Hollow points are unstable; the others match within "
        f"{TOLERANCE_POINTS:g} points (dark band) and never beyond {MOST_TOLERANCE_POINTS:g} (light band)."
    )
    return Picture(draw, caption) if points else None


def _problem_fields(spec: TableSpec) -> list[str]:
    """Return the problem fields among the axes of a table; the dataset if there are none."""
    return [name for name in PROBLEM if name in spec.axes] or ["dataset"]


def _grouped(rows: list[Comparison], fields: list[str]) -> dict[Key, list[Comparison]]:
    """Group the comparisons by the values of `fields`, in the order of their first occurrence."""
    groups: dict[Key, list[Comparison]] = {}
    for row in rows:
        groups.setdefault(tuple(row.coordinates[name] for name in fields), []).append(row)
    return groups


def _title(spec: TableSpec, what: str) -> str:
    return f"{spec.heading}: {what}"


def _by_column(spec: TableSpec, rows: list[Comparison]) -> Table:
    """Build the table with one row per problem: verdicts, median difference and rank correlation by backbone."""
    fields = _problem_fields(spec)
    occurring = {row.verdict for row in rows}
    verdicts = [verdict for verdict in VERDICTS if verdict in ALWAYS_COUNTED or verdict in occurring]
    backbones = list(dict.fromkeys(row.coordinates["backbone"] for row in rows))
    lines: list[tuple[str, ...]] = []
    cells: list[list[TableCell]] = []
    for key, members in _grouped(rows, fields).items():
        numbers, distance = Counter(row.verdict for row in members), median_distance(members)
        texts = [str(len(members)), *(str(numbers[verdict]) for verdict in verdicts)]
        texts.append("–" if distance is None else f"{distance:.1f}")
        texts += [_order([row for row in members if row.coordinates["backbone"] == backbone]) for backbone in backbones]
        lines.append((titled(fields, key),))
        cells.append([TableCell(text=text) for text in texts])
    heads = ["printed", *verdicts, "median difference"]
    heads += [f"order, {name}" if len(backbones) > 1 else "order" for name in backbones]
    return Table(
        name=f"{spec.name}-compared-columns",
        title=_title(spec, "agreement with print"),
        caption=[
            verdict_counts(rows),
            "Order: Spearman / Kendall rank correlation over the (n) methods that both have, without centralised ones.",
        ],
        row_fields=[", ".join(field_titles(fields))],
        rows=lines,
        column_fields=["agreement"],
        columns=[(head,) for head in heads],
        cells=cells,
        legend=[("–", "nothing to compare")] if any(cell.text == "–" for row in cells for cell in row) else [],
        notes=[],
        data=[],
    )


def _order(rows: list[Comparison]) -> str:
    agreement = order_agreement(rows)
    if agreement is None:
        return "–"
    return f"{agreement.spearman:.2f} / {agreement.kendall:.2f} ({agreement.n})".replace("-", "−")


def _matrix(study: StudyRecord, spec: TableSpec, ours: list[TableCell], rows: list[Comparison], paper: str) -> Table:
    """Build the table of ours / printed in the study's layout; its CSV has one record per comparison."""
    row_fields: list[str] = [*spec.rows]
    column_fields: list[str] = [*spec.columns]
    fields = spec.axes
    compared = _grouped(rows, fields)
    recorded = {tuple(cell.coordinates[name] for name in fields): cell for cell in ours}
    keys, split, digits = [*compared, *recorded], len(row_fields), spec.digits
    lines = ordered([key[:split] for key in keys], row_fields, study.order)
    heads = ordered([key[split:] for key in keys], column_fields, study.order)
    cells = [
        [_pair(compared.get(line + head, []), recorded.get(line + head), digits) for head in heads] for line in lines
    ]
    signs = {cell.mark for row in cells for cell in row}
    legend = [(sign, MEANINGS[verdict]) for verdict, sign in SIGNS.items() if sign in signs]
    if any("/ –" in cell.text for row in cells for cell in row):
        legend.append(("–", "not printed"))
    content = f"ours / printed in table {spec.printed_table.table} of {paper}, means"
    return Table(
        name=f"{spec.name}-compared",
        title=_title(spec, "ours and printed"),
        caption=[
            *captions.caption(study, spec, quantity(spec.metric), [ours], content),
            *RULES,
        ],
        row_fields=field_titles(row_fields),
        rows=[tuple(map(shown, row_fields, key)) for key in lines],
        column_fields=column_fields,
        columns=[tuple(map(shown, column_fields, key)) for key in heads],
        cells=cells,
        legend=[*legend, *captions.symbols_of(cells)],
        notes=[],
        data=[_record(row) for row in rows],
    )


def _pair(rows: list[Comparison], recorded: TableCell | None, digits: int) -> TableCell:
    """Return one cell of the matrix: our number and the printed numbers, with the sign of their common verdict.

    Args:
        rows: the comparisons of this cell.
        recorded: our cell, used if `rows` is empty; None if there is none.
        digits: decimals.
    """
    ours = rows[0].ours if rows else recorded or TableCell(text=OUTCOMES["not_run"].symbol, state="not_run")
    our_text = ours.text if ours.mean is None else f"{ours.mean:.{digits}f}"
    their_text = "; ".join(_theirs(replace(row.printed, std=None), digits) for row in rows) or "–"
    verdicts = {row.verdict for row in rows}
    verdict = verdicts.pop() if len(verdicts) == 1 else ""
    tone = verdict if verdict in SIGNS else ""
    return replace(ours, text=f"{our_text} / {their_text}", mark=SIGNS.get(verdict, ""), tone=tone)


def _theirs(number: Printed, digits: int) -> str:
    """Return the paper's entry: a number with its standard deviation, or a word."""
    return number.note or "no number" if number.value is None else mean_text(number.value, number.std, digits)


def _numbers(spec: TableSpec, ours: list[TableCell], rows: list[Comparison]) -> Table:
    """Build the table with one row for each printed number."""
    names = [*spec.columns, *spec.rows]
    footnotes: list[str] = []
    cells = [_cells(row, spec.digits, footnotes) for row in rows]
    return Table(
        name=f"{spec.name}-compared-numbers",
        title=_title(spec, "every printed number"),
        caption=[f"Ours: {captions.spread(ours)}.", "Difference in points, ours minus printed."],
        row_fields=field_titles(names),
        rows=[tuple(shown(name, row.coordinates[name]) for name in names) for row in rows],
        column_fields=["value"],
        columns=[("ours",), ("printed",), ("difference",), ("verdict",)],
        cells=cells,
        legend=captions.symbols_of(cells),
        notes=[f"[{number}] {text}" for number, text in enumerate(footnotes, start=1)],
        data=[],
    )


def _cells(row: Comparison, digits: int, footnotes: list[str]) -> list[TableCell]:
    """Return ours, printed, difference and verdict of one row; a note of the reference becomes a numbered footnote."""
    number = row.printed
    theirs = _theirs(number, digits)
    if number.value is not None and number.note:
        if number.note not in footnotes:
            footnotes.append(number.note)
        theirs += f" [{footnotes.index(number.note) + 1}]"
    difference = "–" if row.difference is None else _signed(row.difference, digits)
    verdict = row.verdict or "not printed"
    return [
        row.ours,
        TableCell(text=theirs),
        TableCell(text=difference),
        TableCell(text=verdict, tone=verdict.replace(" ", "-")),
    ]


def _signed(value: float, digits: int) -> str:
    """Format a value with its sign; a value that rounds to zero gets a plus sign."""
    return ("−" if round(value, digits) < 0 else "+") + f"{abs(value):.{digits}f}"


def _record(row: Comparison) -> dict[str, Any]:
    number = row.printed
    return {
        **{name: row.coordinates[name] for name in FIELDS},
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
