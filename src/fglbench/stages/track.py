"""Import the finished runs of a study into MLflow from its records, in one process."""

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
    """Import every finished cell once, write a summary to `output`, and print the command that shows the runs.

    Args:
        study_folder: result of the collect stage.
        results: the results folder. Its folder `tracking/` holds the default store and the artifacts.
        output: the JSON file of the summary. It names the store in `results/tracking` relative to the working directory
            if `results` is relative.
        uri: tracking URI; None: MLFLOW_TRACKING_URI, else SQLite in `results/tracking`.
        experiment: name of the experiment; None: the name of the study.
        failures: the number of earlier failed attempts of this import.
        specs: specifications of the cells that did not run here, by cell id; None: there are none.

    Returns:
        The content of `output`: `uri`, `experiment`, `imported`, `superseded`, `kept`, `command` and `failures`.

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
    print(f"to show the runs: {command}")
    return done
