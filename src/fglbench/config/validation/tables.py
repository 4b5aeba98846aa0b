"""Tables and figures: they must show cells of the study, and a table's cell must hold one method in one setting."""

from collections.abc import Mapping
from typing import Any

from fglbench.config.entries import labels, selected
from fglbench.config.merge import known_tasks
from fglbench.config.schema import Figure, Study, Table
from fglbench.config.validation.wording import duplicates
from fglbench.errors import suggest
from fglbench.evaluation.quantities import OF_RUNS
from fglbench.tasks import metrics_of, metrics_of_logits

_CURVES = ("accuracy_per_round", "accuracy_per_second", "labels_and_convergence")
_TASKS = "the datasets have several tasks ({}), each with scores of its own; choose datasets of one under 'where'"


def name_problems(study: Study) -> list[str]:
    """Return the names that several tables or several figures have.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    found = []
    for key, shown in (("tables", study.tables), ("figures", study.figures)):
        names = [item.name for item in shown]
        if key == "tables":
            names += [f"{table.name}-compared" for table in study.tables if table.reference]
        found += duplicates(key, names, lambda name: f"name '{name}'")
    return found


def shown_problems(study: Study) -> list[str]:
    """Return the problems of what tables and figures show.

    Tables and figures must show cells of the study. A cell of a table must hold one method in one setting. Therefore
    every axis with several values must be in the table's rows, columns or `where`.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    values, found = _axis_values(study), []
    for index, table in enumerate(study.tables):
        if table.kind != "cells":
            found += _where_problems(f"tables[{index}]", table.where, values)
            continue
        tasks = known_tasks(study, table.where.get("dataset"))
        if len(tasks) > 1 and table.metric is None:
            found.append(f"tables[{index}].metric: {_TASKS.format(', '.join(tasks))}, or name a metric.")
        found += _score_problems(f"tables[{index}]", table, study, tasks)
        if table.mean == "weighted" != study.protocol.mean:
            found.append(
                f"tables[{index}].mean: 'weighted' needs protocol.mean: 'weighted', so that weights are stored."
            )
        found += duplicates(f"tables[{index}]", [*table.rows, *table.columns], lambda axis: f"axis '{axis}'")
        found += _where_problems(f"tables[{index}]", table.where, values)
        fixed: dict[str, list[Any]] = {str(axis): list(kept) for axis, kept in table.where.items()}
        for axis, known in values.items():
            kept = [value for value in known if value in fixed.get(axis, known)]
            if axis == "label":
                kept = _labels_in_one_cell(study, kept, fixed.get("method"), "method" in [*table.rows, *table.columns])
            # Entries of the same method are distinguished by their labels.
            if axis != "method" and len(kept) > 1 and axis not in [*table.rows, *table.columns]:
                found.append(
                    f"tables[{index}]: '{axis}' has {len(kept)} values in this study, so it must be among the table's "
                    "rows or columns, or be fixed under 'where'."
                )
    for index, figure in enumerate(study.figures):
        found += _where_problems(f"figures[{index}]", figure.where, values)
        found += _figure_problems(f"figures[{index}]", figure, study, values["label"])
        if len(tasks := known_tasks(study, figure.where.get("dataset"))) > 1:
            found.append(f"figures[{index}].where: {_TASKS.format(', '.join(tasks))}.")
    return found


def _score_problems(where: str, shown: Table | Figure, study: Study, tasks: list[str]) -> list[str]:
    """Return the problems of the score that a table or figure shows, for datasets with these tasks."""
    found = []
    metrics = [metric for task in tasks for metric in metrics_of(task)] + [*OF_RUNS]
    if shown.metric is not None and shown.metric not in metrics:
        found.append(f"{where}.metric: '{shown.metric}' is not a metric. {suggest(shown.metric, metrics)}")
    if shown.split == "global_test" and study.protocol.global_test is None:
        found.append(f"{where}.split: 'global_test' needs protocol.global_test: 'whole' or 'held_out'.")
    of_logits = [metric for task in tasks for metric in metrics_of_logits(task)]
    if shown.metric in of_logits and not study.protocol.logits:
        found.append(f"{where}.metric: '{shown.metric}' needs protocol.logits: true, so that it is stored.")
    return found


def _figure_problems(where: str, figure: Figure, study: Study, known: list[Any]) -> list[str]:
    found = _score_problems(where, figure, study, known_tasks(study, figure.where.get("dataset")))
    if figure.kind in _CURVES and (figure.metric is not None or figure.split not in ("test", "val")):
        found.append(f"{where}: rounds have the score that selects, on 'test' and 'val'; leave metric and split out.")
    if figure.gains and figure.kind != "accuracy_by_clients":
        found.append(f"{where}.gains: only figures of kind 'accuracy_by_clients' draw gains.")
    found += [
        f"{where}.gains: '{label}' is no label of the study. {suggest(label, map(str, known))}"
        for label in [*figure.gains, *figure.gains.values()]
        if label not in known
    ]
    found += [
        f"{where}.gains: '{label}' is not among the labels under 'where'; add it there."
        for label in [*figure.gains, *figure.gains.values()]
        if label not in figure.where.get("label", [label])
    ]
    return found


def _labels_in_one_cell(study: Study, kept: list[Any], methods: list[Any] | None, by_method: bool) -> list[str]:
    """Return the labels that would share a cell of a table: all labels, or those of the method with the most labels."""
    found: dict[str, list[str]] = {}
    for label, entry in selected(study.methods, None):
        if label in kept and (methods is None or entry.name in methods):
            found.setdefault(entry.name if by_method else "", []).append(label)
    return max(found.values(), key=len, default=[])


def _axis_values(study: Study) -> dict[str, list[Any]]:
    """Return the values that a study has on each axis of tables and figures."""
    return {
        "dataset": labels(study.datasets),
        "scheme": labels(study.partitions),
        "clients": study.clients,
        "backbone": labels(study.backbones),
        "label": labels(study.methods),
        "method": [entry.name for entry in study.methods],
    }


def _where_problems(owner: str, where: Mapping[Any, list[Any]], values: Mapping[str, list[Any]]) -> list[str]:
    """Return a problem for each value in `where` that the study does not have: it would silently select no cell."""
    found = []
    for axis, wanted in where.items():
        for value in (value for value in wanted if value not in values[axis]):
            known = [str(other) for other in values[axis]]
            quoted = f"'{value}' is text; write {value} without quotes."
            unknown = f"'{value}' is not in this study. {suggest(value, known)}"
            found.append(f"{owner}.where.{axis}: {quoted if value in known else unknown}")
    return found
