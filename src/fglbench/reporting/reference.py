"""Printed numbers of a paper, read from its reference file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fglbench.config.validation.reference import COLUMNS
from fglbench.errors import ConfigError, StorageError, suggest
from fglbench.records.presentation import Reference, TableSpec
from fglbench.records.study import StudyRecord
from fglbench.reporting.frames import as_list, distinct, select

_NAMED = ("label", "method", "backbone")
SAME = {"dataset": "dataset", "scheme": "partition", "clients": "clients", "method": "method", "backbone": "backbone"}


@dataclass(frozen=True)
class Printed:
    """One printed number.

    Attributes:
        dataset: name in the paper.
        method: name in the paper's reference file.
        backbone: name of the backbone; "" if the paper names none.
        variant: ablation; "" for the method itself.
        partition: partition scheme; "" if the paper names none.
        clients: number of clients; None if the paper names none.
        value: the number, in percent for metrics with the unit %; None if the paper prints a word, which `note` then
            holds.
        std: printed standard deviation, in the unit of `value`; None if not printed.
        n: number of runs; None if not printed.
        note: remark of the reference file; "" for none.
    """

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
        """Method, backbone and variant, for comparison with the names that `named_by` returns."""
        return {"method": self.method, "backbone": self.backbone, "variant": self.variant}


def load_reference(path: Path) -> pd.DataFrame:
    """Load a reference file.

    Args:
        path: CSV file with the columns `COLUMNS`.

    Returns:
        One row per printed number; all columns are text, "" for missing entries.

    Raises:
        StorageError: the file is missing, is not CSV, or lacks a column.
    """
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{path} cannot be read as a reference file ({error}). Correct it, or name another folder with "
            "'fglbench compare --references DIR'."
        ) from error
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise StorageError(
            f"{path} lacks the column {', '.join(missing)}. A reference file requires the columns {', '.join(COLUMNS)}."
        )
    return frame


def printed_numbers(study: StudyRecord, spec: TableSpec, reference: pd.DataFrame) -> list[Printed]:
    """Return the printed numbers that a table is compared with.

    They have the table's `reference.table` and metric, and pass `reference.where` (columns of the file). The table's
    own `where` applies to the fields that `reference.where` does not name. Variants (ablations) are left out, except
    those that a method of the study is printed as or that `reference.where` names.

    Args:
        study: the collected records.
        spec: a table's entry in `study.json` that has a `reference`.
        reference: the frame from `load_reference`.

    Returns:
        Numbers in the order of the file.

    Raises:
        ConfigError: no such table, or an unknown column.
    """
    owner, printed_table = f"table '{spec.name}': reference", spec.printed_table
    tables = sorted(set(reference["table"]))
    if printed_table.table not in tables:
        raise ConfigError(
            [f"{owner}: the file has no table '{printed_table.table}'. {suggest(printed_table.table, tables)}"]
        )
    where = {name: list(map(str, as_list(value))) for name, value in printed_table.where.items()}
    of_table: Mapping[Any, list[str | int]] = spec.where
    renamed = [names for label, names in study.printed.items() if label in of_table.get("label", [label])]
    variants = ["", *(names["variant"] for names in renamed if "variant" in names)]
    chosen = select(reference, {"variant": variants, **where}, owner)
    chosen = chosen[(chosen["table"] == printed_table.table) & (chosen["metric"] == spec.metric)]
    if "eval" not in where:
        chosen = chosen[chosen["eval"].isin(["", spec.split])]
    numbers = [_printed(row) for row in chosen.to_dict("records")]
    wanted: dict[str, list[Any]] = {}
    for name, column in SAME.items():
        if name in of_table and column not in where:
            wanted[name] = [study.name(name, value) for value in of_table[name]]
            wanted[name] += [names[name] for names in renamed if name in names]
    central = study.centralised
    ours = [(str(coordinates["label"]), names) for coordinates, names in run_methods(study)]
    return [
        number
        for number in numbers
        if all(_passes(number, name, values, printed_table, central) for name, values in wanted.items())
        and _keeps_label(number, ours, of_table.get("label"))
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


def _keeps_label(number: Printed, ours: list[tuple[str, dict[str, str]]], labels: list[Any] | None) -> bool:
    """Return whether a filter of labels keeps a number. It drops numbers that match only other labels."""
    matching = [label for label, names in ours if names == number.names]
    return labels is None or not matching or any(label in labels for label in matching)


def run_methods(study: StudyRecord) -> list[tuple[dict[str, Any], dict[str, str]]]:
    """Return all methods and backbones that a study has run.

    Args:
        study: the collected records.

    Returns:
        (coordinates, names) in the study's order: `label`, `method` and `backbone`; the paper's names from
        `named_by`.
    """
    methods = [dict(zip(_NAMED, key, strict=True)) for key in distinct(study.runs, _NAMED, study.order)]
    return [(coordinates, named_by(study, coordinates)) for coordinates in methods]


def named_by(study: StudyRecord, coordinates: Mapping[str, Any]) -> dict[str, str]:
    """Return the names under which the paper prints a method of the study.

    Args:
        study: the collected records.
        coordinates: `label`, `method` and `backbone`.

    Returns:
        `method`, `backbone` and `variant`; `variant` is "" for the method itself.
    """
    backbone = study.name("backbone", coordinates["backbone"])
    names = {"method": coordinates["method"], "backbone": backbone, "variant": ""}
    return names | {name: value for name, value in study.printed.get(coordinates["label"], {}).items() if name in names}


def _passes(number: Printed, name: str, wanted: list[Any], printed_table: Reference, central: list[str]) -> bool:
    # A centralised run has no partition, so the scheme and clients printed beside it only name the table's setting.
    if number.method in central and name in ("scheme", "clients"):
        return True
    value = getattr(number, SAME[name])
    if name == "dataset":
        wanted = [base_dataset(dataset, printed_table) for dataset in wanted]
    return value in wanted or value in ("", None)


def base_dataset(name: str, printed_table: Reference | None) -> str:
    """Return the name of a dataset in the paper.

    Args:
        name: name of the dataset in the suite.
        printed_table: the table's `reference`; None if there is none.

    Returns:
        The name without "-lcc" (largest connected component), or the name itself if `exact` is set.
    """
    return name if printed_table and printed_table.exact else name.removesuffix("-lcc")
