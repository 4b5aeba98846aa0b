"""Tables and figures: they must show cells of the study, and a table's cell must hold one method in one setting."""

from collections.abc import Mapping
from typing import Any

from fglbench.config.entries import labels, selected
from fglbench.config.merge import known_tasks
from fglbench.config.schema import Study
from fglbench.config.validation.wording import duplicates
from fglbench.errors import suggest
from fglbench.evaluation.quantities import OF_RUNS
from fglbench.records.presentation import FigureSettings, TableSettings
from fglbench.tasks import metrics_of, metrics_of_logits

_CURVES = ("accuracy_per_round", "accuracy_per_second", "labels_and_convergence")
_TASKS = "the datasets have several tasks ({}), each with its own scores; select the datasets of one task under 'where'"


def name_problems(study: Study) -> list[str]:
    """Return the names that several tables or several figures have.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems = []
    for key, shown in (("tables", study.tables), ("figures", study.figures)):
        names = [item.name for item in shown]
        if key == "tables":
            names += [f"{table.name}-compared" for table in study.tables if table.reference]
        problems += duplicates(key, names, lambda name: f"name '{name}'")
    return problems


def shown_problems(study: Study) -> list[str]:
    """Return the problems of what tables and figures show.

    Tables and figures must show cells of the study. A cell of a table must hold one method in one setting. Therefore
    every axis with several values must be in the table's rows, columns or `where`.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    values = _axis_values(study)
    problems: list[str] = []
    for index, table in enumerate(study.tables):
        if table.kind != "cells":
            problems += _where_problems(f"tables[{index}]", table.where, values)
            continue
        tasks = known_tasks(study, table.where.get("dataset"))
        if len(tasks) > 1 and table.metric is None:
            problems.append(f"tables[{index}].metric: {_TASKS.format(', '.join(tasks))}, or name a metric.")
        problems += _score_problems(f"tables[{index}]", table, study, tasks)
        if table.mean == "weighted" and study.protocol.mean != "weighted":
            problems.append(
                f"tables[{index}].mean: 'weighted' needs protocol.mean: 'weighted', so that weights are stored."
            )
        problems += duplicates(f"tables[{index}]", [*table.rows, *table.columns], lambda axis: f"axis '{axis}'")
        problems += _where_problems(f"tables[{index}]", table.where, values)
        fixed: dict[str, list[Any]] = {str(axis): list(wanted) for axis, wanted in table.where.items()}
        axes = [*table.rows, *table.columns]
        for axis, on_axis in values.items():
            shown = [value for value in on_axis if value in fixed.get(axis, on_axis)]
            if axis == "label":
                shown = _labels_in_one_cell(study, shown, fixed.get("method"), "method" in axes)
            # Entries of the same method are distinguished by their labels.
            if axis != "method" and len(shown) > 1 and axis not in axes:
                problems.append(
                    f"tables[{index}]: '{axis}' has {len(shown)} values in this study, so it must be among the table's "
                    "rows or columns, or be fixed under 'where'."
                )
    for index, figure in enumerate(study.figures):
        problems += _where_problems(f"figures[{index}]", figure.where, values)
        problems += _figure_problems(f"figures[{index}]", figure, study, values["label"])
        if len(tasks := known_tasks(study, figure.where.get("dataset"))) > 1:
            problems.append(f"figures[{index}].where: {_TASKS.format(', '.join(tasks))}.")
    return problems


def _score_problems(where: str, shown: TableSettings | FigureSettings, study: Study, tasks: list[str]) -> list[str]:
    """Return the problems of the score that a table or figure shows, for datasets with these tasks."""
    problems = []
    metrics = [metric for task in tasks for metric in metrics_of(task)] + [*OF_RUNS]
    if shown.metric is not None and shown.metric not in metrics:
        problems.append(f"{where}.metric: '{shown.metric}' is not a metric. {suggest(shown.metric, metrics)}")
    if shown.split == "global_test" and study.protocol.global_test is None:
        problems.append(f"{where}.split: 'global_test' needs protocol.global_test: 'whole' or 'held_out'.")
    of_logits = [metric for task in tasks for metric in metrics_of_logits(task)]
    if shown.metric in of_logits and not study.protocol.logits:
        problems.append(f"{where}.metric: '{shown.metric}' needs protocol.logits: true, so that it is stored.")
    return problems


def _figure_problems(where: str, figure: FigureSettings, study: Study, study_labels: list[Any]) -> list[str]:
    problems = _score_problems(where, figure, study, known_tasks(study, figure.where.get("dataset")))
    if figure.kind in _CURVES and (figure.metric is not None or figure.split not in ("test", "val")):
        problems.append(
            f"{where}: a figure of this kind shows the score that selects rounds, on 'test' or 'val'; leave out metric "
            "and split."
        )
    if figure.gains and figure.kind != "accuracy_by_clients":
        problems.append(f"{where}.gains: only figures of kind 'accuracy_by_clients' draw gains.")
    problems += [
        f"{where}.gains: '{label}' is not a label of the study. {suggest(label, map(str, study_labels))}"
        for label in [*figure.gains, *figure.gains.values()]
        if label not in study_labels
    ]
    problems += [
        f"{where}.gains: '{label}' is not among the labels under 'where'; add it there."
        for label in [*figure.gains, *figure.gains.values()]
        if label not in figure.where.get("label", [label])
    ]
    return problems


def _labels_in_one_cell(study: Study, shown: list[Any], methods: list[Any] | None, by_method: bool) -> list[str]:
    """Return the labels that would share a cell of a table: all labels, or those of the method with the most labels."""
    labels_by_cell: dict[str, list[str]] = {}
    for label, entry in selected(study.methods, None):
        if label in shown and (methods is None or entry.name in methods):
            labels_by_cell.setdefault(entry.name if by_method else "", []).append(label)
    return max(labels_by_cell.values(), key=len, default=[])


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
    problems = []
    for axis, wanted in where.items():
        valid = [str(value) for value in values[axis]]
        for value in (value for value in wanted if value not in values[axis]):
            quoted = f"'{value}' is text; write {value} without quotes."
            unknown = f"'{value}' is not in this study. {suggest(value, valid)}"
            problems.append(f"{owner}.where.{axis}: {quoted if value in valid else unknown}")
    return problems
