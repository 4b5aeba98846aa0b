"""Reading a study's collected records: tidy frames and the study's own description."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fglbench.errors import ConfigError, StorageError, suggest
from fglbench.records.checksums import check_made
from fglbench.storage import read_json

FIELDS = ("dataset", "scheme", "clients", "method", "backbone", "label")
PROBLEM = ("dataset", "scheme", "clients")


@dataclass(frozen=True)
class Study:
    """A study as the collect stage left it.

    Attributes:
        settings: the content of `study.json`.
        runs: one row per (cell placement, split, reading, mean, metric).
        curves: one row per (cell placement, round), with the score that selects of validation and test.
        partitions: one row per (partition, seed, client).
        mixing: one row per (cell placement, client): the weights it received in the round that is read.
        drawings: one row per (partition, client) that a figure draws, and one for the whole graph.
    """

    settings: dict[str, Any]
    runs: pd.DataFrame
    curves: pd.DataFrame
    partitions: pd.DataFrame
    mixing: pd.DataFrame = field(default_factory=pd.DataFrame)
    drawings: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def order(self) -> dict[str, list[Any]]:
        """The study's own order of the values of each field."""
        return self.settings.get("order") or {}

    def name(self, field: str, label: Any) -> Any:
        """The component's name behind a label of dataset, scheme or backbone; other values as they are."""
        return (self.settings.get("names") or {}).get(field, {}).get(label, label)

    @property
    def metric(self) -> str:
        """The score that selects rounds, of which the curves are; older records are of accuracy."""
        return self.settings.get("metric", "accuracy")

    def metric_on(self, dataset: str) -> str:
        """The same on a dataset, which may have a task of its own."""
        return (self.settings.get("metrics") or {}).get(dataset, self.metric)

    @property
    def centralised(self) -> list[str]:
        """The methods that train on the whole graph in one place; they stand outside all competition."""
        return self.settings.get("centralised", ["global"])

    @property
    def printed(self) -> dict[str, dict[str, str]]:
        """By label, the method, backbone or variant that stands for it in the paper's reference file."""
        return self.settings.get("printed") or {}

    def label(self, field: str, name: Any) -> Any:
        """The study's first label for a component's name; the name itself where the study does not have it."""
        found = (self.settings.get("names") or {}).get(field, {})
        return next((label for label, own in found.items() if own == name), name)


def load_study(folder: Path) -> Study:
    """Reads `study.json` and the Parquet files of a study folder; records without the last two are older than they.

    Raises:
        StorageError: a file is missing, unreadable, or not what the collect stage wrote.
    """
    folder = Path(folder)
    check_made(folder / "study.json")
    frames = {name: _read_parquet(folder / f"{name}.parquet") for name in ("runs", "curves", "partitions")}
    older = {f"{role}_accuracy": f"{role}_score" for role in ("val", "test")}
    frames["curves"] = frames["curves"].rename(columns=older)
    for name in ("mixing", "drawings"):
        if (folder / f"{name}.parquet").exists():
            frames[name] = _read_parquet(folder / f"{name}.parquet")
    return Study(settings=read_json(folder / "study.json"), **frames)


def _read_parquet(path: Path) -> pd.DataFrame:
    check_made(path)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} cannot be read as Parquet ({error}). Remove it and run the collect stage again."
        ) from error


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


def complete_only(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
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
