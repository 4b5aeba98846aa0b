"""Summarise a finished study in the terminal: its tables, files and outcomes."""

import shutil
import sys
from pathlib import Path

from fglbench.records.run import UNFINISHED
from fglbench.records.study import STUDY, StudyRecord, read_study
from fglbench.reporting.terminal import to_text
from fglbench.stages.tables import study_sheets
from fglbench.storage import read_json


def summary(results: Path, study: str, references: Path, retried: bool = True) -> str:
    """Return the tables of a study, the paths of its files, and the number of cells per outcome.

    Args:
        results: the results folder.
        study: the name of the study.
        references: folder of the papers' CSV files.
        retried: whether the same command retries seeds that failed with an error.

    Returns:
        The text; empty if the study is not collected yet.
    """
    records = results / "studies" / study
    if not (records / STUDY).exists():
        return ""
    loaded = read_study(records)
    width = shutil.get_terminal_size((120, 24)).columns
    tables = [table for sheet in study_sheets(loaded, references) for table in sheet.shown]
    parts = [to_text(table, width, colour=sys.stdout.isatty()) for table in tables]
    places = [("Tables", results / "tables" / study), ("Figures", results / "figures" / study)]
    places.append(("Report", results / "report" / f"{study}.html"))
    parts += [f"{name}: {path}" for name, path in places if path.exists()]
    tracking = results / "tracking" / f"{study}.json"
    if tracking.exists():
        imported = read_json(tracking)
        postponed = f"not imported yet, the next run of the workflow tries again. {imported.get('postponed')}"
        parts.append(f"Runs: {imported.get('command') or postponed}")
    settings = loaded.settings
    if published := settings.get("published"):
        parts.append(
            f"{published} of {settings['cells']} cells are archived records that were not run here; to run them: "
            "snakemake --config published=none ..."
        )
    outcomes = settings["outcomes"]
    kept = {"oom": "ran out of memory", "timeout": "ran out of time"} | ({} if retried else {"failed": "failed"})
    if ended := [text for state, text in kept.items() if outcomes.get(state)]:
        parts.append(
            f"Try the seeds again that {' or '.join(ended)}: snakemake --forcerun train_cell (all others are kept). "
            f"The logs are in {results / 'logs' / 'train'}."
        )
    parts += _not_run(loaded)
    parts.append(f"{study}: " + ", ".join(f"{count} {state}" for state, count in sorted(outcomes.items())))
    return "\n".join(parts)


def _not_run(study: StudyRecord) -> list[str]:
    """Return one line for each reason why cells were not run, and how to run them."""
    rows = study.runs[study.runs["outcome"] == "not_run"]
    cells = rows.groupby("reason", sort=False)["cell"].nunique().to_dict() if len(rows) else {}
    lines = [f"Not run: {count} cells: {reason or 'no record'}" for reason, count in cells.items()]
    if UNFINISHED in cells:
        lines.append("Run the same command without only_finished=true to train the cells that are not finished.")
    if cells.keys() - {UNFINISHED}:
        lines.append(
            "Add the missing files and run the same command again. 'snakemake --forcerun split_dataset' tries "
            "partitions again that could not be made; finished results are kept."
        )
    return lines
