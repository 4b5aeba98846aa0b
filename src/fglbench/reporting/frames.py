"""Selection, grouping and order of a study's records in tables and figures."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from fglbench.errors import ConfigError, suggest
from fglbench.records.study import FIELDS, PROBLEM, StudyRecord


def select(frame: pd.DataFrame, where: Mapping[Any, Any] | None, owner: str) -> pd.DataFrame:
    """Return the rows whose columns have one of the wanted values.

    Args:
        frame: any of the tidy frames.
        where: column names, each with a value or a list of values; None for no filter.
        owner: table or figure named in the error, such as "table 'main'".

    Returns:
        Rows of `frame`; an empty frame is returned unchanged.

    Raises:
        ConfigError: `where` names a column that the frame does not have.
    """
    if frame.empty:
        # An empty frame may lack even the columns.
        return frame
    chosen = frame
    for column, wanted in (where or {}).items():
        if column not in frame.columns:
            valid = suggest(column, map(str, frame.columns))
            raise ConfigError([f"{owner}: 'where' names '{column}', which is not a column. {valid}"])
        chosen = chosen[chosen[column].isin(as_list(wanted))]
    return chosen


def of_mean(rows: pd.DataFrame, mean: str) -> "pd.Series[bool]":
    """Return which rows belong to a client mean.

    `nodes` is stored only for clients that share nodes; for all other cells it equals `pooled`.

    Args:
        rows: records of one metric, split and reading.
        mean: name of the client mean.

    Returns:
        [rows] bool, with the index of `rows`.
    """
    kept = rows["mean"] == mean
    if mean != "nodes":
        return kept
    return kept | ((rows["mean"] == "pooled") & ~rows["cell"].isin(rows.loc[kept, "cell"]))


def complete_only(study: StudyRecord, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of complete cells, whose every seed ended well; only these are averaged.

    Args:
        study: the collected records.
        frame: any frame with the columns of `FIELDS`.

    Returns:
        Rows of `frame`.
    """
    outcomes = study.runs[[*FIELDS, "seed", "outcome"]].drop_duplicates()
    seeds = len(as_list(study.settings.get("seeds") or [])) or 1
    counts = (
        outcomes.assign(ok=outcomes["outcome"] == "ok")
        .groupby(list(FIELDS), as_index=False)
        .agg(all_ok=("ok", "all"), count=("ok", "size"))
    )
    complete = counts.loc[counts["all_ok"] & (counts["count"] >= seeds), list(FIELDS)]
    return frame.merge(complete, on=list(FIELDS), how="inner")


def as_list(value: Any) -> list[Any]:
    """Return a value as a list.

    Args:
        value: a list, a tuple, a set or a single value.

    Returns:
        The items, or a list of the single value.
    """
    return list(value) if isinstance(value, list | tuple | set) else [value]


def ordered(
    keys: Iterable[tuple[Any, ...]], fields: Iterable[str], order: Mapping[str, list[Any]]
) -> list[tuple[Any, ...]]:
    """Sort distinct keys field by field in the study's order.

    Args:
        keys: one value per field each.
        fields: field names.
        order: the study's order of the values of each field.

    Returns:
        Distinct keys; values that are not in `order` come last, numbers by size and texts by name.
    """
    positions = [{value: index for index, value in enumerate(order.get(field) or [])} for field in fields]

    def rank(key: tuple[Any, ...]) -> list[tuple[int, float, str]]:
        return [
            (position.get(value, len(position)), value if isinstance(value, int | float) else 0, str(value))
            for position, value in zip(positions, key, strict=True)
        ]

    return sorted(set(keys), key=rank)


def distinct(frame: pd.DataFrame, fields: Iterable[str], order: Mapping[str, list[Any]]) -> list[tuple[Any, ...]]:
    """Return the distinct values of fields in a frame.

    Args:
        frame: any frame with these columns.
        fields: column names.
        order: the study's order of the values of each field.

    Returns:
        Keys of plain Python values, sorted as in `ordered`.
    """
    names = list(fields)
    unique = frame[names].drop_duplicates()
    keys = zip(*(unique[name].tolist() for name in names), strict=True) if names else iter([()])
    return ordered(keys, names, order)


def shown(field: str, value: Any) -> str:
    """Format the value of a field for tables and figures.

    Args:
        field: field name.
        value: its value.

    Returns:
        Text, such as "10 clients" for the field `clients`.
    """
    if field == "clients":
        return "1 client" if value == 1 else f"{value} clients"
    return str(value)


def field_titles(fields: Iterable[str]) -> list[str]:
    """Return the heads of the columns that name rows.

    Args:
        fields: field names.

    Returns:
        The names; `label` becomes "method" unless `method` is a field as well.
    """
    names = list(fields)
    return ["method" if name == "label" and "method" not in names else name for name in names]


def titled(fields: Iterable[str], key: Iterable[Any], joint: str = ", ") -> str:
    """Join the values of several fields in one line.

    Args:
        fields: field names.
        key: one value per field.
        joint: separator.

    Returns:
        The formatted values without empty ones.
    """
    return joint.join(shown(field, value) for field, value in zip(fields, key, strict=True) if value != "")


def groups(
    frame: pd.DataFrame, fields: list[str], order: Mapping[str, list[Any]]
) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Split a frame by the values of `fields`.

    Args:
        frame: any frame with these columns.
        fields: column names.
        order: the study's order of the values of each field.

    Yields:
        (values of the fields, rows), in the study's order; nothing for an empty frame, which may lack even the columns.
    """
    if frame.empty:
        return
    parts = {tuple(key): part for key, part in frame.groupby(fields, sort=False)}
    for key in distinct(frame, fields, order):
        yield key, parts[key]


def of_partitions(where: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the part of a filter that applies to partitions, which have no methods.

    Args:
        where: column names with wanted values.

    Returns:
        The entries for dataset, scheme and clients.
    """
    return {name: kept for name, kept in where.items() if name in PROBLEM}
