"""Import finished runs into MLflow. No other module uses MLflow, and only one process at a time writes to the store.

An MLflow run corresponds to one cell of one study, which its tags identify. The tag with the fingerprint is written
last, so a run without it was interrupted and is imported again.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from filelock import FileLock

from fglbench.tracking import TrackingError
from fglbench.tracking.moved import point_to
from fglbench.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

CELL, STUDY, OUTCOME, RECORD = "fglbench.cell", "fglbench.study", "fglbench.outcome", "fglbench.record"
PER_BATCH = 1000  # the limit of MLflow for one call
LOCK_SECONDS = 10
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # These values report an unreachable server within a minute, instead of after eight tries of two minutes each.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


def resolve_uri(uri: str | None, folder: Path) -> str:
    """Return the tracking URI.

    Args:
        uri: the tracking URI of the configuration; None if there is none.
        folder: of the default store.

    Returns:
        `uri`, else MLFLOW_TRACKING_URI, else SQLite in `folder`. The SQLite path is relative if `folder` is, so the
        project can be moved.
    """
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or _default_uri(folder)


def _default_uri(folder: Path) -> str:
    """Return the URI of the SQLite store in a folder."""
    return f"sqlite:///{Path(folder) / 'mlflow.db'}"


def import_runs(runs: list[TrackedRun], study: str, experiment: str, uri: str, folder: Path) -> dict[str, int]:
    """Bring an experiment up to date with the finished runs of a study. A second call changes nothing.

    If the project was moved with the store in `folder`, the artifact locations in the store are corrected first.

    Args:
        runs: the finished runs.
        study: the name of the study.
        experiment: the name of the experiment, created if it is missing.
        uri: tracking URI.
        folder: holds the artifacts, unless a server stores them, and the lock that excludes a second import.

    Returns:
        The number of runs by key: `imported` (new), `superseded` (the content changed or the artifact is missing; the
        old run is deleted) and `kept`.

    Raises:
        TrackingError: the store cannot be reached, is locked, or refuses. Runs that were imported before stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    is_default = uri == _default_uri(folder)
    with FileLock(folder / ".import.lock"), _reported(uri), _without_waiting_for_disk(is_default):
        _refuse_locked(uri)
        # The path is absolute, because MLflow keeps one connection for each URI.
        client = client_of(_default_uri(folder.resolve()) if is_default else uri)
        experiment_id = _experiment(client, experiment, uri, folder)
        artifacts = (folder / "artifacts").resolve()
        if is_default and (moved := point_to(artifacts.with_name("mlflow.db"), artifacts)):
            print(
                f"the project has moved: the artifacts of {moved} runs are now read from {folder / 'artifacts'}",
                flush=True,
            )
        present = _present(client, experiment_id, study)
        counts = {"imported": 0, "superseded": 0, "kept": 0}
        for run in runs:
            previous = present.get(run.cell, [])
            has_artifacts = not is_default or all(_is_kept(run, artifacts / run_id) for run_id, _ in previous)
            if has_artifacts and [digest for _, digest in previous] == [run.fingerprint]:
                counts["kept"] += 1
                continue
            _write(client, experiment_id, study, run)
            for run_id, _ in previous:
                client.delete_run(run_id)
            counts["superseded" if previous else "imported"] += 1
    return counts


@contextmanager
def _without_waiting_for_disk(enabled: bool) -> Iterator[None]:
    """Turn off SQLite's synchronous writes, which speeds up MLflow's roughly ten commits per run.

    Each commit may otherwise wait tens of milliseconds for the disk. This is used only for the store below `results/`,
    which can be made again from the records.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def relax(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    if enabled:
        event.listen(Engine, "connect", relax)
    try:
        yield
    finally:
        if enabled:
            event.remove(Engine, "connect", relax)


def client_of(uri: str) -> "MlflowClient":
    """Return an MLflow client.

    Args:
        uri: of the tracking store.

    Returns:
        The client. It sends no telemetry, and its requests give up within a minute.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


@contextmanager
def _reported(uri: str) -> Iterator[None]:
    """Turn errors of MLflow, its database or the network into a `TrackingError`."""
    try:
        yield
    except TrackingError:
        raise
    except Exception as error:
        # Every database driver and server raises its own types, so all are caught. The message names the type.
        reason = (str(error).strip().splitlines() or ["the error has no message"])[0]
        message = (
            f"MLflow at {uri}: {type(error).__name__}: {reason}. The results are complete without it. Repeat the "
            "command when the store is available again, or set tracking.enabled to false."
        )
        raise TrackingError(without_password(message, uri)) from error


def without_password(text: str, uri: str) -> str:
    """Remove the password of a tracking URI from a text.

    Args:
        text: a text that may contain the URI.
        uri: tracking URI.

    Returns:
        The text with `***` instead of the password.
    """
    password = urlsplit(uri).password
    return text.replace(f":{password}@", ":***@") if password else text


def _refuse_locked(uri: str) -> None:
    """Request the write lock of SQLite once, because MLflow would retry for minutes if the store is locked."""
    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or not path.exists():
        return
    connection = sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def _experiment(client: "MlflowClient", name: str, uri: str, folder: Path) -> str:
    """Return the id of an experiment, and create the experiment if it is missing."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        # A server chooses its artifact location. A database would use the working directory.
        local = uri.startswith(("sqlite:", "postgresql", "mysql", "mssql"))
        return client.create_experiment(name, (folder / "artifacts").resolve().as_uri() if local else None)
    if experiment.lifecycle_stage != "active":
        raise TrackingError(
            f"MLflow experiment '{name}' was deleted. Restore it with 'mlflow experiments restore -x "
            f"{experiment.experiment_id}', or set tracking.experiment to another name."
        )
    return experiment.experiment_id


def _present(client: "MlflowClient", experiment_id: str, study: str) -> dict[str, list[tuple[str, str | None]]]:
    """Return the run ids and fingerprints of the study's runs in the store, by cell."""
    by_cell: dict[str, list[tuple[str, str | None]]] = {}
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        for run in page:
            tags = run.data.tags
            if tags.get(STUDY) == study and CELL in tags:
                by_cell.setdefault(tags[CELL], []).append((run.info.run_id, tags.get(RECORD)))
        token = page.token
        if not token:
            return by_cell


def _write(client: "MlflowClient", experiment_id: str, study: str, run: TrackedRun) -> None:
    """Write one run to the store, with its fingerprint last."""
    from mlflow.entities import Param, RunTag

    end = run.record.stat().st_mtime if run.record else time.time()
    start = int((end - run.total_seconds) * 1000)
    tags = {CELL: run.cell, STUDY: study, OUTCOME: run.outcome, "mlflow.source.name": "fglbench"}
    created = client.create_run(experiment_id, start_time=start, tags=tags, run_name=run.name)
    run_id = created.info.run_id
    points = _points(run, start, int(end * 1000))
    parameters = [Param(name, value) for name, value in run.parameters.items()]
    for first in range(0, max(len(points), 1), PER_BATCH):
        client.log_batch(run_id, points[first : first + PER_BATCH], parameters if first == 0 else [])
    if run.record:
        _keep(created, run.record)
    client.set_terminated(run_id, "FINISHED" if run.outcome == "ok" else "FAILED", int(end * 1000))
    client.log_batch(run_id, tags=[RunTag(RECORD, run.fingerprint)])


def _points(run: TrackedRun, start: int, end: int) -> "list[Metric]":
    """Return the final metrics, and the curves as `round/<name>` with timestamps that follow the training time."""
    from mlflow.entities import Metric

    final = [Metric(name, value, end, 0) for name, value in run.metrics.items()]
    return final + [
        Metric(f"round/{name}", value, start + int(1000 * run.seconds.get(number, 0.0)), number)
        for name, points in run.curves.items()
        for number, value in points
    ]


def _is_kept(run: TrackedRun, artifacts: Path) -> bool:
    """Return whether the artifact that `_keep` writes exists, or the run has no record to keep."""
    return run.record is None or (artifacts / "artifacts" / run.record.name).exists()


def _keep(created: Any, record: Path) -> None:
    """Store the record of the run, with its full settings, versions and hardware, as an artifact."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    get_artifact_repository(created.info.artifact_uri).log_artifact(str(record))
