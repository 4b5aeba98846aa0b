"""The track stage: imports the finished runs of a study into MLflow, in one process, from its records."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fglbench.records.study import read_study
from fglbench.storage import write_json
from fglbench.tracking.mlflow_store import import_runs, resolve_uri, without_password
from fglbench.tracking.runs import tracked_runs


def track(
    study_folder: Path,
    results: Path,
    output: Path,
    uri: str | None,
    experiment: str | None,
    failures: int = 0,
    specs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Imports every finished cell once and writes to `output` what was done; prints the command that shows the runs.

    Args:
        study_folder: what the collect stage wrote.
        results: the results folder; `tracking/` below it holds the default store and the artifacts.
        output: JSON with uri, experiment, imported, superseded, kept, command and failures. The store in
            `results/tracking` is named relative to the working directory as `results` is.
        uri: tracking URI; None: MLFLOW_TRACKING_URI, else SQLite in `results/tracking`.
        experiment: None: the name of the study.
        failures: how often this import was tried in vain.
        specs: the specifications of cells that did not run here, by id.

    Raises:
        StorageError: a record is missing or unreadable.
        TrackingError: the store cannot be reached, is locked, or refuses. `output` is not written.
    """
    study = read_study(study_folder)
    folder = Path(results) / "tracking"
    name = study.settings["name"]
    address = resolve_uri(uri, folder)
    chosen = experiment or name
    counts = import_runs(tracked_runs(study, results, specs), name, chosen, address, folder)
    shown = without_password(address, address)
    command = f"open {shown}" if shown.startswith("http") else f"mlflow ui --backend-store-uri {shlex.quote(shown)}"
    done = {"uri": shown, "experiment": chosen, **counts, "command": command, "failures": failures}
    write_json(output, done)
    print(f"MLflow experiment '{chosen}': " + ", ".join(f"{counts[key]} {key}" for key in counts))
    print(f"to look at it: {command}")
    return done
