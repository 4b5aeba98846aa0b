"""The collected records of a study: tidy frames in Parquet, and `study.json`, what the study asked for and ran on."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fglbench.errors import StorageError
from fglbench.records.checksums import check_made
from fglbench.storage import read_json

if TYPE_CHECKING:
    import pandas as pd

STUDY = "study.json"
FRAMES = ("runs", "curves", "partitions", "mixing", "drawings")
"""The Parquet files of a study's records, beside its `study.json`."""

FIELDS = ("dataset", "scheme", "clients", "method", "backbone", "label")
PROBLEM = ("dataset", "scheme", "clients")


def _nothing() -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame()


@dataclass(frozen=True)
class StudyRecord:
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
    runs: "pd.DataFrame"
    curves: "pd.DataFrame"
    partitions: "pd.DataFrame"
    mixing: "pd.DataFrame" = field(default_factory=_nothing)
    drawings: "pd.DataFrame" = field(default_factory=_nothing)

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


def read_study(folder: Path) -> StudyRecord:
    """Reads `study.json` and the Parquet files of a study folder; records without the last two are older than they.

    Raises:
        StorageError: a file is missing, unreadable, or not what the collect stage wrote.
    """
    folder = Path(folder)
    check_made(folder / STUDY)
    frames = {name: _read_parquet(folder / f"{name}.parquet") for name in ("runs", "curves", "partitions")}
    older = {f"{role}_accuracy": f"{role}_score" for role in ("val", "test")}
    frames["curves"] = frames["curves"].rename(columns=older)
    for name in ("mixing", "drawings"):
        if (folder / f"{name}.parquet").exists():
            frames[name] = _read_parquet(folder / f"{name}.parquet")
    return StudyRecord(settings=read_json(folder / STUDY), **frames)


def _read_parquet(path: Path) -> "pd.DataFrame":
    import pandas as pd

    check_made(path)
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} cannot be read as Parquet ({error}). Remove it and run the collect stage again."
        ) from error
