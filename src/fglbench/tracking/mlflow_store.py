"""The only module that talks to MLflow. One process imports finished runs; nobody else writes to the store.

A run of MLflow stands for one cell of one study, found again by its tags. Its fingerprint is written last: a run
without it was interrupted and is made anew.
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
PER_BATCH = 1000  # what MLflow accepts in one call
LOCK_SECONDS = 10
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    # A server that is down is reported within a minute, not after eight tries of two minutes each.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}


def resolve_uri(uri: str | None, folder: Path) -> str:
    """The tracking URI: as given, else the environment's MLFLOW_TRACKING_URI, else SQLite in `folder`, relative where
    that is: records with it may move."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or _default_uri(folder)


def _default_uri(folder: Path) -> str:
    return f"sqlite:///{Path(folder) / 'mlflow.db'}"


def import_runs(runs: list[TrackedRun], study: str, experiment: str, uri: str, folder: Path) -> dict[str, int]:
    """Brings an experiment up to date with the finished runs of a study; doing it twice changes nothing.

    The store in `folder` may have moved with its project: what it says of artifacts is put right first.

    Args:
        runs: the finished runs.
        study: its name.
        experiment: created where it is missing.
        uri: tracking URI.
        folder: for artifacts, unless a server keeps them, and for the lock that keeps two imports apart.

    Returns:
        `imported` (new), `superseded` (their content had changed, or their artifact is gone; the old run is deleted)
        and `kept`.

    Raises:
        TrackingError: the store cannot be reached, is locked, or refuses; what was imported until then stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = uri == _default_uri(folder)
    with FileLock(folder / ".import.lock"), _reported(uri), _without_waiting_for_disk(own):
        _refuse_locked(uri)
        # MLflow keeps a connection for each address, so the one it gets is absolute.
        client = _client(_default_uri(folder.resolve()) if own else uri)
        experiment_id = _experiment(client, experiment, uri, folder)
        artifacts = (folder / "artifacts").resolve()
        if own and (moved := point_to(artifacts.with_name("mlflow.db"), artifacts)):
            print(
                f"the project has moved: {moved} runs find their artifacts in {folder / 'artifacts'} again", flush=True
            )
        present = _present(client, experiment_id, study)
        counts = {"imported": 0, "superseded": 0, "kept": 0}
        for run in runs:
            old = present.get(run.cell, [])
            whole = not own or all(_is_kept(run, artifacts / run_id) for run_id, _ in old)
            if whole and [digest for _, digest in old] == [run.fingerprint]:
                counts["kept"] += 1
                continue
            _write(client, experiment_id, study, run)
            for run_id, _ in old:
                client.delete_run(run_id)
            counts["superseded" if old else "imported"] += 1
    return counts


@contextmanager
def _without_waiting_for_disk(wanted: bool) -> Iterator[None]:
    """Lets SQLite leave the writing to the operating system: MLflow commits some ten times a run, each of which may
    wait tens of milliseconds for a disk. Only for the store below `results/`: the records can make it again."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def relax(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA synchronous=OFF")

    if wanted:
        event.listen(Engine, "connect", relax)
    try:
        yield
    finally:
        if wanted:
            event.remove(Engine, "connect", relax)


def _client(uri: str) -> "MlflowClient":
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


@contextmanager
def _reported(uri: str) -> Iterator[None]:
    """Turns what goes wrong in MLflow, its database or the network into a `TrackingError`."""
    try:
        yield
    except TrackingError:
        raise
    except Exception as error:
        # Drivers of databases and servers each raise their own types; a bug here is told by its type and cause.
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        message = (
            f"MLflow at {uri}: {type(error).__name__}: {reason}. The results are complete without it; repeat the "
            "command when the store is there again, or set tracking.enabled to false."
        )
        raise TrackingError(without_password(message, uri)) from error


def without_password(text: str, uri: str) -> str:
    """A text about a tracking URI that may be shown and stored."""
    password = urlsplit(uri).password
    return text.replace(f":{password}@", ":***@") if password else text


def _refuse_locked(uri: str) -> None:
    """Asks SQLite for its write lock once, since MLflow would try for minutes."""
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
    found = client.get_experiment_by_name(name)
    if found is None:
        # A server knows where it keeps artifacts; a database would put them below the working directory.
        local = uri.startswith(("sqlite:", "postgresql", "mysql", "mssql"))
        return client.create_experiment(name, (folder / "artifacts").resolve().as_uri() if local else None)
    if found.lifecycle_stage != "active":
        raise TrackingError(
            f"MLflow experiment '{name}' was deleted. Restore it with 'mlflow experiments restore -x "
            f"{found.experiment_id}', or choose another name as tracking.experiment."
        )
    return found.experiment_id


def _present(client: "MlflowClient", experiment_id: str, study: str) -> dict[str, list[tuple[str, str | None]]]:
    """Run ids and fingerprints of the study's runs, by cell."""
    found: dict[str, list[tuple[str, str | None]]] = {}
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], max_results=1000, page_token=token)
        for run in page:
            tags = run.data.tags
            if tags.get(STUDY) == study and CELL in tags:
                found.setdefault(tags[CELL], []).append((run.info.run_id, tags.get(RECORD)))
        token = page.token
        if not token:
            return found


def _write(client: "MlflowClient", experiment_id: str, study: str, run: TrackedRun) -> None:
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
    """Final metrics, and curves as `round/<name>` with a clock that runs by training time."""
    from mlflow.entities import Metric

    final = [Metric(name, value, end, 0) for name, value in run.metrics.items()]
    return final + [
        Metric(f"round/{name}", value, start + int(1000 * run.seconds.get(number, 0.0)), number)
        for name, points in run.curves.items()
        for number, value in points
    ]


def _is_kept(run: TrackedRun, artifacts: Path) -> bool:
    """Whether the artifact that `_keep` writes is there."""
    return run.record is None or (artifacts / "artifacts" / run.record.name).exists()


def _keep(created: Any, record: Path) -> None:
    """The full settings, versions and hardware of the run, as an artifact."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    get_artifact_repository(created.info.artifact_uri).log_artifact(str(record))
