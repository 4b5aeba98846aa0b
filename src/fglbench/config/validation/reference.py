"""The printed numbers that a study names. They are checked early, because they are used only after all training."""

import csv
from pathlib import Path

from fglbench.config.merge import known_tasks
from fglbench.config.schema import Study
from fglbench.errors import suggest
from fglbench.tasks import selecting_metric

FOLDER = "reference"
COLUMNS = (
    *("paper", "table", "task", "dataset", "method", "backbone", "variant", "partition", "clients"),
    *("eval", "metric", "value", "std", "n_runs", "note"),
)


def reference_problems(study: Study, studies: Path) -> list[str]:
    """Return the problems of a study's printed numbers: a missing file, printed table or column, or a malformed file.

    Args:
        study: a well-typed study.
        studies: folder of study files; the printed numbers are in its `reference/`.

    Returns:
        One sentence for each problem, with its key first.
    """
    if study.reference is None:
        return [
            f"tables[{index}].reference: the study has no key 'reference'; add it, or leave out the table's."
            for index, table in enumerate(study.tables)
            if table.reference
        ]
    files = {file.stem: file for file in (studies / FOLDER).glob("*.csv")}
    if study.reference not in files:
        hint = suggest(study.reference, files)
        return [f"reference: '{study.reference}' is not a file of printed numbers. {hint}"]
    path = files[study.reference]
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            rows, columns = list(reader), reader.fieldnames or []
    except (OSError, ValueError, csv.Error) as error:
        return [f"reference: {path} cannot be read as CSV: {error}."]
    if missing := [name for name in COLUMNS if name not in columns]:
        return [
            f"reference: {path} lacks the column {', '.join(missing)}; a file of printed numbers has the columns "
            f"{', '.join(COLUMNS)}, separated by commas."
        ]
    problems = []
    for index, table in enumerate(study.tables):
        if table.reference is None:
            continue
        problems += [
            f"tables[{index}].reference.where: '{name}' is not a column of {path.name}. {suggest(name, columns)}"
            for name in table.reference.where
            if name not in columns
        ]
        of_table = [row for row in rows if row["table"] == table.reference.table]
        metrics = (
            [table.metric]
            if table.metric
            else [selecting_metric(task) for task in known_tasks(study, table.where.get("dataset"))]
        )
        scored = {row["eval"] for row in of_table if row["metric"] in metrics}
        if not of_table:
            tables = sorted({row["table"] for row in rows})
            problems.append(
                f"tables[{index}].reference.table: '{table.reference.table}' is not in {path.name}. "
                f"{suggest(table.reference.table, tables)}"
            )
        elif scored and not scored & {"", table.split} and "eval" not in table.reference.where:
            problems.append(
                f"tables[{index}].reference: table '{table.reference.table}' in {path.name} has no number for the "
                f"split '{table.split}'; its values of 'eval' are {', '.join(map(repr, sorted(scored)))}. Name those "
                "to compare with: where: {eval: [...]}."
            )
    return problems
