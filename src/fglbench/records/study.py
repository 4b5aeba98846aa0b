"""Collected records of a study: tidy Parquet frames, and `study.json` with the study's settings and hardware."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from pydantic import ValidationError

from fglbench.errors import StorageError
from fglbench.records.base import first_problem
from fglbench.records.checksums import check_made
from fglbench.records.presentation import FigureSpec, TableSpec
from fglbench.storage import read_json

if TYPE_CHECKING:
    import pandas as pd

STUDY = "study.json"
FRAMES = ("runs", "curves", "partitions", "mixing", "drawings")
"""The names of the Parquet files beside `study.json`, without suffix."""

FIELDS = ("dataset", "scheme", "clients", "method", "backbone", "label")
PROBLEM = ("dataset", "scheme", "clients")


class Hardware(TypedDict):
    """Hardware that the runs of a study were made on.

    Attributes:
        devices: type and name of every device, in alphabetical order.
        cores: the largest number of processor cores of a machine; None: unknown.
    """

    devices: list[str]
    cores: int | None


class StudySettings(TypedDict, total=False):
    """Content of `study.json`. Older records lack keys that were added later.

    Attributes:
        name: of the study.
        title: of the study.
        notes: in Markdown.
        reference: name of the file with the paper's numbers; None: there is none.
        protocol: settings of the protocol, with those of the task.
        protocols: by dataset, the protocols that differ from `protocol`.
        metric: the score that selects rounds.
        metrics: by dataset, the scores that select rounds where the protocol differs.
        training: settings of training.
        settings: the study as configured, without its tables and figures.
        tables: settings of each table, with defaults.
        figures: settings of each figure, with defaults.
        sizes: by dataset, the counts of the catalogue.
        order: by field, its values in the order of the study.
        names: by field, the component's name of each label.
        printed: by label, the names of its method, backbone or variant in the reference file.
        seeds: of every cell; empty if the grids have different seeds.
        cells: number of cells.
        outcomes: number of cells by outcome.
        published: number of cells from archives.
        evaluate_version: version of evaluation that made the scores.
        centralised: the methods that train on the whole graph.
        versions: by package, the versions of all runs, joined by commas; also `mode`.
        hardware: of all runs.
    """

    name: str
    title: str | None
    notes: str | None
    reference: str | None
    protocol: dict[str, Any]
    protocols: dict[str, dict[str, Any]]
    metric: str
    metrics: dict[str, str]
    training: dict[str, Any]
    settings: dict[str, Any]
    tables: list[dict[str, Any]]
    figures: list[dict[str, Any]]
    sizes: dict[str, dict[str, int]]
    order: dict[str, list[Any]]
    names: dict[str, dict[str, str]]
    printed: dict[str, dict[str, str]]
    seeds: list[int]
    cells: int
    outcomes: dict[str, int]
    published: int
    evaluate_version: int
    centralised: list[str]
    versions: dict[str, str]
    hardware: Hardware


def _nothing() -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame()


@dataclass(frozen=True)
class StudyRecord:
    """The collected records of a study.

    Attributes:
        settings: content of `study.json`.
        runs: one row per (cell placement, split, reading, mean, metric).
        curves: one row per (cell placement, round), with the validation and test values of the score that selects
            rounds.
        partitions: one row per (partition, seed, client).
        mixing: one row per (cell placement, client): the weights that the client received in the round of the reading.
        drawings: one row per (partition, client) that a figure draws, and one for the whole graph.
    """

    settings: StudySettings
    runs: "pd.DataFrame"
    curves: "pd.DataFrame"
    partitions: "pd.DataFrame"
    mixing: "pd.DataFrame" = field(default_factory=_nothing)
    drawings: "pd.DataFrame" = field(default_factory=_nothing)

    @property
    def order(self) -> dict[str, list[Any]]:
        """The order of the values of each field in the study."""
        return self.settings.get("order") or {}

    def name(self, field: str, label: Any) -> Any:
        """Return the component's name for a label of the study.

        Args:
            field: "dataset", "scheme" or "backbone"; labels of other fields are returned unchanged.
            label: as in the frames.

        Returns:
            The name; the label itself if the study defines no other name.
        """
        return (self.settings.get("names") or {}).get(field, {}).get(label, label)

    @property
    def metric(self) -> str:
        """The score that selects rounds, which the curves show; older records use accuracy."""
        return str(self.settings.get("metric", "accuracy"))

    def metric_on(self, dataset: str) -> str:
        """Return the score that selects rounds on a dataset, which may have its own task.

        Args:
            dataset: label of the dataset.

        Returns:
            Name of the metric.
        """
        return str((self.settings.get("metrics") or {}).get(dataset, self.metric))

    @property
    def tables(self) -> list[TableSpec]:
        """The settings of the study's tables.

        Raises:
            StorageError: a key is missing or invalid.
        """
        return [_spec(TableSpec, entry, self.metric) for entry in self.settings.get("tables") or []]

    @property
    def figures(self) -> list[FigureSpec]:
        """The settings of the study's figures.

        Raises:
            StorageError: a key is missing or invalid.
        """
        return [_spec(FigureSpec, entry, self.metric) for entry in self.settings.get("figures") or []]

    @property
    def centralised(self) -> list[str]:
        """The methods that train on the whole graph in one place; they are excluded from all comparisons."""
        return list(self.settings.get("centralised", ["global"]))

    @property
    def printed(self) -> dict[str, dict[str, str]]:
        """By label, the names of its method, backbone or variant in the reference file of the paper."""
        return self.settings.get("printed") or {}

    def label(self, field: str, name: Any) -> Any:
        """Return the study's label for a component's name.

        Args:
            field: "dataset", "scheme" or "backbone"; values of other fields are returned unchanged.
            name: of the component.

        Returns:
            The first label with this name; the name itself if the study has no such label.
        """
        names = (self.settings.get("names") or {}).get(field, {})
        return next((label for label, component in names.items() if component == name), name)


def read_study(folder: Path) -> StudyRecord:
    """Load the records of a study.

    Older records may lack `mixing.parquet` and `drawings.parquet`; these frames are then empty.

    Args:
        folder: with `study.json` and the Parquet files.

    Returns:
        The records.

    Raises:
        StorageError: a file is missing or unreadable, or does not match its checksum.
    """
    folder = Path(folder)
    check_made(folder / STUDY)
    frames = {name: _read_parquet(folder / f"{name}.parquet") for name in ("runs", "curves", "partitions")}
    older = {f"{role}_accuracy": f"{role}_score" for role in ("val", "test")}
    frames["curves"] = frames["curves"].rename(columns=older)
    for name in ("mixing", "drawings"):
        if (folder / f"{name}.parquet").exists():
            frames[name] = _read_parquet(folder / f"{name}.parquet")
    return StudyRecord(settings=cast(StudySettings, read_json(folder / STUDY)), **frames)


SpecT = TypeVar("SpecT", TableSpec, FigureSpec)


def _spec(model: type[SpecT], entry: Mapping[str, Any], metric: str) -> SpecT:
    """Read the settings of a table or figure; keys that an older record lacks have their defaults."""
    given = {name: value for name, value in entry.items() if value is not None}
    try:
        return model.model_validate({"metric": metric} | given)
    except ValidationError as error:
        kind = "table" if model is TableSpec else "figure"
        raise StorageError(
            f"{STUDY}: {kind} '{entry.get('name')}': {first_problem(error)}. Remove the file and run the collect stage "
            "again."
        ) from error


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    check_made(path)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} cannot be read as Parquet ({error}). Remove it and run the collect stage again."
        ) from error
