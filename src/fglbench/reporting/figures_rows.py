"""Rows of the records that figures draw: filters, complete cells and groups."""

import pandas as pd

from fglbench.evaluation.quantities import OF_RUNS, quantity
from fglbench.records.presentation import FigureSpec
from fglbench.records.study import FIELDS, StudyRecord
from fglbench.reporting.frames import complete_only, of_mean, of_partitions, select


def complete_rows(study: StudyRecord, frame: pd.DataFrame, spec: FigureSpec, needed: str | None = None) -> pd.DataFrame:
    """Select the rows that a figure's filter matches, from complete cells.

    Args:
        study: the collected records.
        frame: any of its frames with the columns of `FIELDS`.
        spec: the figure's entry in `study.json`.
        needed: column without which a row is left out; None to keep all rows.

    Returns:
        Rows of `frame`.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen = select(frame, spec.where, f"figure '{spec.name}'")
    if chosen.empty:
        return chosen
    chosen = complete_only(study, chosen)
    return chosen.dropna(subset=[needed]) if needed else chosen


def partition_rows(frame: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """Select the rows of partitions that a figure's filter matches.

    Args:
        frame: `study.partitions` or `study.drawings`.
        spec: the figure's entry in `study.json`.

    Returns:
        Rows of `frame`.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    return select(frame, of_partitions(spec.where), f"figure '{spec.name}'")


def scored(study: StudyRecord, spec: FigureSpec) -> pd.DataFrame:
    """Select the scores of a figure, from complete cells that have the score for every seed.

    Args:
        study: the collected records.
        spec: the figure's entry in `study.json`.

    Returns:
        Rows of `study.runs`, one per cell placement and seed; `value` is in printed units.

    Raises:
        ConfigError: `where` names an unknown column.
    """
    chosen = complete_rows(study, study.runs, spec)
    metric = spec.metric
    kept = chosen[chosen["metric"] == metric]
    if metric not in OF_RUNS:
        kept = kept[(kept["split"] == spec.split) & (kept["reading"] == spec.reading)]
        kept = kept[of_mean(kept, spec.mean)]
    kept = for_every_seed(kept.dropna(subset=["value"]), chosen)
    return kept.assign(value=kept["value"].astype(float).map(quantity(metric).shown))


def for_every_seed(kept: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells that have a row in `kept` for each of their seeds in `chosen`.

    Args:
        kept: rows to filter, with the columns of `FIELDS` and `seed`.
        chosen: rows of all seeds that ran, with the same columns.

    Returns:
        Rows of `kept`.
    """
    if kept.empty:
        return kept
    seeds, expected = (frame.groupby(list(FIELDS))["seed"].nunique() for frame in (kept, chosen))
    complete = seeds[seeds == expected.reindex(seeds.index)].reset_index()
    return kept.merge(complete[list(FIELDS)], on=list(FIELDS), how="inner")
