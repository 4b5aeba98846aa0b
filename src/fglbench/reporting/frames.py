"""Rows of a study's frames: selected, grouped and ordered as tables and figures show them."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from fglbench.errors import ConfigError, suggest
from fglbench.records.study import FIELDS, StudyRecord


def select(frame: pd.DataFrame, where: Mapping[str, Any] | None, owner: str) -> pd.DataFrame:
    """The rows whose columns have one of the wanted values.

    Args:
        frame: any of the tidy frames.
        where: from column name to a value or a list of values.
        owner: who asks, for the error, such as "table 'main'".

    Raises:
        ConfigError: `where` names a column that the frame does not have.
    """
    if frame.empty:
        # Nothing was recorded, perhaps not even the columns.
        return frame
    chosen = frame
    for column, wanted in (where or {}).items():
        if column not in frame.columns:
            raise ConfigError([f"{owner}: 'where' names '{column}'. {suggest(column, map(str, frame.columns))}"])
        chosen = chosen[chosen[column].isin(as_list(wanted))]
    return chosen


def of_mean(rows: pd.DataFrame, mean: str) -> "pd.Series[bool]":
    """Which rows, of one metric, split and reading, are of a client mean; `nodes` is stored only where clients share
    nodes, and is `pooled` elsewhere."""
    kept = rows["mean"] == mean
    if mean != "nodes":
        return kept
    return kept | ((rows["mean"] == "pooled") & ~rows["cell"].isin(rows.loc[kept, "cell"]))


def complete_only(study: StudyRecord, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `frame` whose placement (`FIELDS`) ended well for every seed: only complete cells are averaged."""
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
    """A list as it is; anything else as a list of one."""
    return list(value) if isinstance(value, list | tuple | set) else [value]


def ordered(
    keys: Iterable[tuple[Any, ...]], fields: Iterable[str], order: Mapping[str, list[Any]]
) -> list[tuple[Any, ...]]:
    """Distinct keys sorted field by field in the study's order; values that it does not name come last, by name."""
    positions = [{value: place for place, value in enumerate(order.get(field) or [])} for field in fields]

    def rank(key: tuple[Any, ...]) -> list[tuple[int, float, str]]:
        return [
            (place.get(value, len(place)), value if isinstance(value, int | float) else 0, str(value))
            for place, value in zip(positions, key, strict=True)
        ]

    return sorted(set(keys), key=rank)


def distinct(frame: pd.DataFrame, fields: Iterable[str], order: Mapping[str, list[Any]]) -> list[tuple[Any, ...]]:
    """The distinct values of the fields in a frame, ordered as `ordered`, as plain Python values."""
    names = list(fields)
    unique = frame[names].drop_duplicates()
    keys = zip(*(unique[name].tolist() for name in names), strict=True) if names else iter([()])
    return ordered(keys, names, order)


def shown(field: str, value: Any) -> str:
    """A field's value as tables and figures print it."""
    if field == "clients":
        return "1 client" if value == 1 else f"{value} clients"
    return str(value)


def field_titles(fields: Iterable[str]) -> list[str]:
    """Heads of the columns that name rows: a label is what readers call the method."""
    names = list(fields)
    return ["method" if name == "label" and "method" not in names else name for name in names]


def titled(fields: Iterable[str], key: Iterable[Any], joint: str = ", ") -> str:
    """Several values in one line, empty ones left out."""
    return joint.join(shown(field, value) for field, value in zip(fields, key, strict=True) if value != "")
