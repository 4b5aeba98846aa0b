"""The numbers that a paper prints, read from its reference file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fglbench.config.validation.reference import COLUMNS
from fglbench.errors import ConfigError, StorageError, suggest
from fglbench.records.study import StudyRecord
from fglbench.reporting.frames import as_list, distinct, select

_NAMED = ("label", "method", "backbone")
SAME = {"dataset": "dataset", "scheme": "partition", "clients": "clients", "method": "method", "backbone": "backbone"}


@dataclass(frozen=True)
class Printed:
    """One printed number, in percent where the metric is one; `value` is None where the paper prints a word, which is
    then the note."""

    dataset: str
    method: str
    backbone: str
    variant: str
    partition: str
    clients: int | None
    value: float | None
    std: float | None
    n: int | None
    note: str

    @property
    def names(self) -> dict[str, str]:
        """What a method of a study must be printed as to have this number."""
        return {"method": self.method, "backbone": self.backbone, "variant": self.variant}


def load_reference(path: Path) -> pd.DataFrame:
    """A reference file as text columns, empty where nothing is printed.

    Raises:
        StorageError: the file is missing, is not CSV, or lacks a column.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read as a reference file ({error}).") from error
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise StorageError(f"{path} lacks the column {', '.join(missing)}; a reference file has {', '.join(COLUMNS)}.")
    return frame


def printed_numbers(study: StudyRecord, spec: Mapping[str, Any], reference: pd.DataFrame) -> list[Printed]:
    """The printed numbers that a table is compared with, in the order of the file.

    They are those of the table's `reference.table` and metric that pass `reference.where` (columns of the file) and, in
    the fields that it does not name, the table's own `where`. Variants (ablations) are left out unless a method of the
    study is printed as one or `reference.where` names them.

    Raises:
        ConfigError: no such table, or an unknown column.
    """
    owner, wish = f"table '{spec['name']}': reference", spec["reference"]
    tables = sorted(set(reference["table"]))
    if str(wish["table"]) not in tables:
        raise ConfigError([f"{owner}: the file has no table '{wish['table']}'. {suggest(wish['table'], tables)}"])
    where = {name: list(map(str, as_list(value))) for name, value in (wish.get("where") or {}).items()}
    own = spec.get("where") or {}
    otherwise = [names for label, names in study.printed.items() if label in as_list(own.get("label", label))]
    variants = ["", *(names["variant"] for names in otherwise if "variant" in names)]
    chosen = select(reference, {"variant": variants, **where}, owner)
    chosen = chosen[(chosen["table"] == str(wish["table"])) & (chosen["metric"] == spec["metric"])]
    if "eval" not in where:
        chosen = chosen[chosen["eval"].isin(["", spec.get("split", "test")])]
    numbers = [_printed(row) for row in chosen.to_dict("records")]
    wanted = {
        name: [study.name(name, value) for value in as_list(own[name])] + [n[name] for n in otherwise if name in n]
        for name in SAME
        if name in own and SAME[name] not in where
    }
    central = study.centralised
    ours = [(str(place["label"]), names) for place, names in own_places(study)]
    labels = as_list(own["label"]) if "label" in own else None
    return [
        number
        for number in numbers
        if all(_passes(number, name, kept, wish, central) for name, kept in wanted.items())
        and _asked(number, ours, labels)
    ]


def _printed(row: Mapping[Any, str]) -> Printed:
    return Printed(
        dataset=row["dataset"],
        method=row["method"],
        backbone=row["backbone"],
        variant=row["variant"],
        partition=row["partition"],
        clients=int(row["clients"]) if row["clients"] else None,
        value=float(row["value"]) if row["value"] else None,
        std=float(row["std"]) if row["std"] else None,
        n=int(row["n_runs"]) if row["n_runs"] else None,
        note=row["note"],
    )


def _asked(number: Printed, ours: list[tuple[str, dict[str, str]]], labels: list[Any] | None) -> bool:
    """Whether a filter of labels keeps a number: all but those which another label of the study stands for."""
    standing = [label for label, names in ours if names == number.names]
    return labels is None or not standing or any(label in labels for label in standing)


def own_places(study: StudyRecord) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """`label`, `method` and `backbone` of all that was run, in the study's order, each with what it is printed as."""
    places = [dict(zip(_NAMED, key, strict=True)) for key in distinct(study.runs, _NAMED, study.order)]
    return [(place, named_by(study, place)) for place in places]


def named_by(study: StudyRecord, place: Mapping[str, Any]) -> dict[str, str]:
    """Method, backbone and variant under which the paper prints what stands at a place of ours."""
    backbone = study.name("backbone", place["backbone"])
    own = {"method": place["method"], "backbone": backbone, "variant": ""}
    return own | {name: value for name, value in study.printed.get(place["label"], {}).items() if name in own}


def _passes(number: Printed, name: str, wanted: list[Any], wish: Mapping[str, Any], central: list[str]) -> bool:
    # A centralised run has no partition: what the paper prints beside it only names the table's setting.
    if number.method in central and name in ("scheme", "clients"):
        return True
    seen = getattr(number, SAME[name])
    if name == "dataset":
        wanted = [base_dataset(value, wish) for value in wanted]
    return seen in wanted or seen in ("", None)


def base_dataset(name: str, wish: Mapping[str, Any]) -> str:
    """A dataset's name in the paper: the largest connected component stands for the dataset, unless `exact` is set."""
    return name if wish.get("exact") else name.removesuffix("-lcc")
