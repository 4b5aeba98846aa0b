"""Tables from records: cells, their printed text and their marks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from fglbench.errors import ConfigError, suggest
from fglbench.evaluation.quantities import Quantity, quantity
from fglbench.evaluation.statistics import summarise
from fglbench.records.presentation import TableSpec
from fglbench.records.study import FIELDS, StudyRecord
from fglbench.reporting import captions
from fglbench.reporting.cells import Table, TableCell
from fglbench.reporting.frames import as_list, distinct, field_titles, of_mean, select, shown
from fglbench.reporting.marks import with_marks
from fglbench.reporting.notes import notes
from fglbench.reporting.outcomes import OUTCOMES, symbols

Key = tuple[Any, ...]


def build_table(study: StudyRecord, spec: TableSpec) -> Table:
    """Build a table of a study.

    A cell is averaged only if every seed ended well; a cell with failed seeds prints how many ended well. `marks`
    selects the best cells.

    Args:
        study: the collected records.
        spec: the table's entry in `study.json`.

    Returns:
        The table, with rows and columns in the study's order.

    Raises:
        ConfigError: an unknown metric, or a cell that would mix several datasets, schemes, client counts,
            methods, backbones or labels.
    """
    row_fields: list[str] = [*spec.rows]
    column_fields: list[str] = [*spec.columns]
    unit = quantity(spec.metric, spec.percent, spec.better)
    frame = _seed_rows(study.runs, spec)
    rows, columns = (distinct(frame, names, study.order) for names in (row_fields, column_fields))
    groups = _grouped(frame, spec.axes)
    seeds = [int(seed) for seed in as_list(study.settings.get("seeds") or [])]
    cells = [[_cell(groups.get(row + column), study, spec, unit, seeds) for column in columns] for row in rows]
    cells = _with_sizes(with_marks(cells, spec, unit))
    head_rows, head_columns = _heads(row_fields, rows), _heads(column_fields, columns)
    return Table(
        name=spec.name,
        title=spec.heading,
        caption=captions.caption(study, spec, unit, cells),
        row_fields=field_titles(row_fields),
        rows=head_rows,
        column_fields=column_fields,
        columns=head_columns,
        cells=cells,
        legend=captions.symbols_of(cells, spec.separable),
        notes=notes(spec, unit, cells, frame),
        data=_data(row_fields, rows, head_columns, cells, tested=spec.separable is not None),
    )


def mean_text(mean: float, std: float | None, digits: int) -> str:
    """Format a mean with its standard deviation.

    Args:
        mean: in printed units.
        std: in printed units; None for no deviation.
        digits: decimals.

    Returns:
        Text, such as "80.7 ± 0.3", or "80.7" without a deviation.
    """
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if std is not None else "")


def _seed_rows(runs: pd.DataFrame, spec: TableSpec) -> pd.DataFrame:
    """Return one row per cell placement and seed, with its outcome and `value`, NaN for a run without a value."""
    chosen = select(runs, spec.where, f"table '{spec.name}'")
    keys = [*FIELDS, "seed", "cell"]
    metric = chosen[chosen["metric"] == spec.metric]
    if metric.empty and (chosen["outcome"] == "ok").any():
        metrics = sorted(set(chosen["metric"]) - {"outcome"})
        raise ConfigError(
            [f"table '{spec.name}': no run has the metric '{spec.metric}'. {suggest(spec.metric, metrics)}"]
        )
    # The metrics of a whole run, such as its time, have no split, reading or client mean.
    scored = metric[(metric["split"] == spec.split) & (metric["reading"] == spec.reading)]
    wanted = pd.concat([metric[metric["split"] == ""], scored[of_mean(scored, spec.mean)]])
    columns = [*keys, *(name for name in ("value", "evaluated", "of", "device") if name in metric)]
    outcomes = chosen[[*keys, "outcome", "outcome_round", "reason"]].drop_duplicates(keys)
    return outcomes.merge(wanted[columns], on=keys, how="left")


def _grouped(frame: pd.DataFrame, fields: list[str]) -> dict[Key, pd.DataFrame]:
    # pandas gives tuples as keys even for a list of one field.
    return {tuple(key): group for key, group in frame.groupby(fields, sort=False)} if len(frame) else {}


def _heads(fields: list[str], keys: list[Key]) -> list[tuple[str, ...]]:
    return [tuple(shown(name, value) for name, value in zip(fields, key, strict=True)) for key in keys]


def _cell(
    group: pd.DataFrame | None, study: StudyRecord, spec: TableSpec, unit: Quantity, seeds: list[int]
) -> TableCell:
    """Return the cell of one group of seed rows, without marks."""
    if group is None:
        return TableCell(text=OUTCOMES["not_run"].symbol, state="not_run", seeds=len(seeds))
    _refuse_mixtures(group, spec)
    by_seed = {int(row["seed"]): row for row in group.to_dict("records")}
    expected = seeds or sorted(by_seed)
    states: list[str] = []
    missing: dict[str, list[str]] = {}
    values: dict[int, float] = {}
    for seed in expected:
        row = by_seed.get(seed)
        state = _state(row)
        states.append(state)
        if row is not None and state == "ok":
            values[seed] = unit.shown(float(row["value"]))
        else:
            missing.setdefault(_reason(state, row), []).append(str(seed))
    details = [f"seed{'s' * (len(labels) > 1)} {', '.join(labels)}: {reason}" for reason, labels in missing.items()]
    devices = sorted(
        {str(row["device"]) for seed, row in by_seed.items() if seed in values and _is_text(row.get("device"))}
    )
    coordinates = {name: group.iloc[0][name] for name in FIELDS} | {"device": ", ".join(devices) if unit.timed else ""}
    coordinates["centralised"] = coordinates["method"] in study.centralised
    common: dict[str, Any] = {"n": len(values), "seeds": len(expected), "coordinates": coordinates, "values": values}
    if unit.timed and len(devices) > 1:
        text = OUTCOMES["mixed_devices"].symbol
        return TableCell(text=text, state="mixed_devices", detail=f"devices: {', '.join(devices)}", **common)
    bad = [state for state in states if state != "ok"]
    if not bad:
        summary = summarise(list(values.values()))
        text = mean_text(summary.mean, summary.std, spec.digits)
        return TableCell(text=text, state="ok", mean=summary.mean, std=summary.std, **common)
    all_bad = len(bad) == len(states)
    text = symbols(bad) if all_bad else f"{len(values)} of {len(states)} {symbols(bad)}"
    state = Counter(bad).most_common(1)[0][0] if all_bad else "partial"
    return TableCell(text=text, state=state, detail="; ".join(details), **common)


def _state(row: Mapping[Any, Any] | None) -> str:
    if row is None:
        return "not_run"
    if row["outcome"] != "ok":
        return str(row["outcome"]) if row["outcome"] in OUTCOMES else "failed"
    return "no_value" if pd.isna(row["value"]) else "ok"


def _reason(state: str, row: Mapping[Any, Any] | None) -> str:
    words = OUTCOMES[state].meaning
    if row is not None and state == "diverged" and not pd.isna(row["outcome_round"]):
        words += f" in round {int(row['outcome_round']) + 1}"
    return f"{words} ({row['reason']})" if row is not None and _is_text(row["reason"]) else words


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _refuse_mixtures(group: pd.DataFrame, spec: TableSpec) -> None:
    mixed = [name for name in FIELDS if group[name].nunique() > 1]
    if mixed:
        values = {name: ", ".join(map(str, sorted(set(group[name])))) for name in mixed}
        listed = "; ".join(f"{name}: {texts}" for name, texts in values.items())
        problem = f"table '{spec.name}': one cell would mix several values of {', '.join(mixed)} ({listed}). "
        raise ConfigError([problem + "Add them to 'rows' or 'columns', or choose one in 'where'."])
    if group["seed"].duplicated().any():
        problem = f"table '{spec.name}': two methods with different settings share the label "
        raise ConfigError([f"{problem}'{group.iloc[0]['label']}'. Give each method a different label."])


def _with_sizes(cells: list[list[TableCell]]) -> list[list[TableCell]]:
    """Add "(n)" to every complete cell if their numbers of seeds differ."""
    if len({cell.n for row in cells for cell in row if cell.state == "ok"}) < 2:
        return cells
    return [
        [replace(cell, text=f"{cell.text} ({cell.n})") if cell.state == "ok" else cell for cell in row] for row in cells
    ]


def _data(
    fields: list[str], rows: list[Key], columns: list[tuple[str, ...]], cells: list[list[TableCell]], tested: bool
) -> list[dict[str, Any]]:
    """Return plain records for CSV, one per row, with mean, standard deviation, n and outcome of every column.

    If cells are tested against the best, records also have the paired difference, its deviation and the adjusted
    p-value.
    """
    records = []
    for key, row in zip(rows, cells, strict=True):
        record: dict[str, Any] = dict(zip(fields, key, strict=True))
        for head, cell in zip(columns, row, strict=True):
            name = ", ".join(head) or "value"
            record |= {name: cell.mean, f"{name} std": cell.std, f"{name} n": cell.n, f"{name} outcome": cell.state}
            if tested:
                lag, p = (cell.against_best.difference, cell.against_best.p) if cell.against_best else (None, None)
                record |= {f"{name} minus best": lag and lag.mean, f"{name} minus best std": lag and lag.std}
                record[f"{name} p"] = p
        records.append(record)
    return records
