"""Default tables and figures of studies with other tasks than the default one.

If such a study gives no tables or figures, it gets those of each of its tasks, worded for the score of that task.
"""

from typing import Any

from pydantic import ValidationError

from fglbench import registry
from fglbench.config.merge import datasets_of_tasks
from fglbench.config.schema import Checked
from fglbench.evaluation.quantities import quantity
from fglbench.tasks import DEFAULT_TASK, selecting_metric


def with_shown(study: Checked) -> Checked:
    """Return the study with default tables and figures for its tasks.

    Args:
        study: a well-typed study.

    Returns:
        A copy in which `tables` and `figures` are filled in if the study does not give them. The study itself if the
        default task is its only task, if a task is unknown, or if the protocol of a dataset is invalid.
    """
    try:
        datasets = datasets_of_tasks(study)
    except ValidationError:  # the protocol of a dataset is invalid, which validation reports
        return study
    if list(datasets) == [DEFAULT_TASK] or not set(datasets) <= set(registry.names("task")):
        return study
    shown: dict[str, list[Any]] = {"tables": [], "figures": []}
    for task, labels in datasets.items():
        metric = selecting_metric(task)
        words = quantity(metric)
        title = f"Test {words.title}" + (" in percent." if words.unit == "%" else ".")
        where = {"dataset": labels} if len(datasets) > 1 else {}
        of_task = {"name": metric, "title": title, "where": where}
        shown["tables"] += [table.model_copy(update=of_task) for table in study.tables]
        for figure in study.figures:
            name = figure.name.replace("accuracy", metric)
            if len(datasets) > 1 and "accuracy" not in figure.name:
                name += f"-{metric}"
            of_task = {"name": name, "title": figure.title.replace("accuracy", words.title), "where": where}
            shown["figures"].append(figure.model_copy(update=of_task))
    return study.model_copy(update={key: items for key, items in shown.items() if key not in study.model_fields_set})
