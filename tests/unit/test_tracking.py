"""Importing a study into MLflow: once per cell, again without a change, anew when a cell changed, never half."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fglbench.records.study import read_study
from fglbench.stages.track import track
from fglbench.storage import read_json, write_json
from fglbench.tracking import TrackingError, mlflow_store
from fglbench.tracking.postponed import failed_imports, postpone
from fglbench.tracking.runs import run_records, tracked_runs

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 4


def run_rows(
    cell: str, *, scheme: str = "louvain", accuracy: float = 0.8, outcome: str = "ok", **place: Any
) -> list[dict]:
    """Rows of runs.parquet for one placement of a cell."""
    common = {"dataset": "cora", "scheme": scheme, "clients": 10, "method": "fedavg", "backbone": "gcn", "seed": 0}
    common |= {"label": "FedAvg", "cell": cell, "outcome": outcome, "outcome_round": np.nan, "reason": "", **place}
    whole = {**common, "split": "", "reading": "", "mean": ""}
    if outcome != "ok":
        return [{**whole, "metric": "outcome", "value": np.nan}]
    costs = {"train_seconds": 1.5, "total_seconds": 2.0, "selected_round": 2.0}
    rows = [{**whole, "metric": metric, "value": value} for metric, value in costs.items()]
    for reading in ("val", "last"):
        for mean in ("pooled", "macro"):
            at = {"split": "test", "reading": reading, "mean": mean, "metric": "accuracy"}
            rows.append({**common, **at, "value": accuracy - 0.1 * (reading == "last")})
    return rows


def curve_rows(cell: str) -> pd.DataFrame:
    """Rows of curves.parquet for one placement; nobody trained in the second round."""
    rounds = np.arange(ROUNDS)
    columns = dict.fromkeys(("val_score", "test_score", "train_seconds"), rounds / ROUNDS)
    loss = np.where(rounds == 1, np.nan, 1.0 / (rounds + 1))
    return pd.DataFrame({"cell": cell, "round": rounds, **columns, "train_loss": loss, "bytes_up": 100 * rounds})


SETTINGS = {
    "dataset": {"settings": {}},
    "partition": {"settings": {"resolution": 1.0}, "split": {"train": 0.2}},
    "prepared": {"features": "raw"},
    "method": {
        "settings": {"mu": 0.01},
        "backbone": {"settings": {"hidden": 64}},
        "training": {"rounds": ROUNDS, "lr": 0.01},
        "evaluate": "aggregated",
    },
}


def write_records(results: Path, rows: list[dict], curves: list[pd.DataFrame], study: str = "grid") -> Path:
    """The four files of a study, and the `run.json` of each cell."""
    folder = results / "studies" / study
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / "runs.parquet")
    pd.concat(curves).to_parquet(folder / "curves.parquet")
    pd.DataFrame({"client": [0]}).to_parquet(folder / "partitions.parquet")
    write_json(folder / "study.json", {"name": study, "training": {"lr": 0.01}, "protocol": {"reading": "val"}})
    for cell in {row["cell"] for row in rows if row["outcome"] != "not_run"}:
        path = results / "train" / "cora" / "louvain-k10-0" / "fedavg-gcn-0" / f"seed{cell}" / "run.json"
        write_json(path, {"cell": cell, "seed": 0, "settings": SETTINGS, "outcome": {"state": "ok"}})
    return folder


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder with a study of four cells: two ok, one of them in two columns, one diverged, one not run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    rows = [
        *run_rows("aa", seed=0),
        *run_rows("cc", method="global", label="Global", scheme="louvain"),
        *run_rows("cc", method="global", label="Global", scheme="metis"),
        *run_rows("dd", seed=1, outcome="diverged"),
        *run_rows("ee", seed=2, outcome="not_run"),
    ]
    write_records(tmp_path / "results", rows, [curve_rows("aa"), curve_rows("cc"), curve_rows("cc")])
    return tmp_path / "results"


def import_(
    results: Path, uri: str | None = None, experiment: str | None = None, study: str = "grid"
) -> dict[str, Any]:
    return track(results / "studies" / study, results, results / "tracking" / f"{study}.json", uri, experiment)


def experiment_id(client: Any) -> str:
    """Of the experiment `grid`."""
    return client.get_experiment_by_name("grid").experiment_id


def stored(results: Path) -> dict[str, Any]:
    """The store's active runs by cell; two runs of one cell are an error."""
    client = mlflow_store.client_of(f"sqlite:///{results.resolve()}/tracking/mlflow.db")
    runs = client.search_runs([experiment_id(client)])
    by_cell = {run.data.tags["fglbench.cell"]: run for run in runs}
    assert len(by_cell) == len(runs)
    return by_cell


def test_every_finished_cell_is_one_run_with_parameters_metrics_and_curves(results: Path) -> None:
    done = import_(results)
    assert (done["imported"], done["superseded"], done["kept"]) == (3, 0, 0)
    runs = stored(results)
    assert set(runs) == {"aa", "cc", "dd"}
    run = runs["aa"].data
    assert run.params["dataset"] == "cora"
    assert (run.params["method.mu"], run.params["backbone.hidden"], run.params["training.rounds"]) == (
        "0.01",
        "64",
        "4",
    )
    assert len(run.params["config_hash"]) == 16
    assert run.metrics["test_accuracy_pooled"] == 0.8
    assert run.metrics["train_seconds"] == 1.5
    assert runs["aa"].info.status == "FINISHED"
    assert runs["aa"].info.end_time - runs["aa"].info.start_time == pytest.approx(2000, abs=1)
    assert runs["dd"].info.status == "FAILED"
    assert runs["dd"].data.tags["fglbench.outcome"] == "diverged"
    client = mlflow_store.client_of(done["uri"])
    history = client.get_metric_history(runs["aa"].info.run_id, "round/val_accuracy")
    assert [(point.step, point.value) for point in history] == [(1, 0.0), (2, 0.25), (3, 0.5), (4, 0.75)]
    losses = client.get_metric_history(runs["aa"].info.run_id, "round/train_loss")
    assert [point.step for point in losses] == [1, 3, 4]
    assert run.metrics["selected_round"] == 3, "rounds count from 1"
    assert [file.path for file in client.list_artifacts(runs["aa"].info.run_id)] == ["run.json"]


@pytest.mark.parametrize("content", ["", "{}", "null", "[1]"])
def test_a_damaged_record_of_another_study_is_passed_over(results: Path, content: str) -> None:
    broken = results / "train" / "a" / "b" / "c" / "seed0" / "run.json"
    broken.parent.mkdir(parents=True)
    broken.write_text(content)
    assert len(list(run_records(results))) == len(list(results.glob("train/*/*/*/seed*/run.json"))) - 1


def test_a_centralised_cell_is_one_run_that_names_all_its_columns(results: Path) -> None:
    import_(results)
    run = stored(results)["cc"].data
    assert (run.params["scheme"], run.params["clients"]) == ("louvain, metis", "10")
    (tracked,) = (run for run in tracked_runs(read_study(results / "studies/grid"), results) if run.cell == "cc")
    assert len(tracked.curves["val_accuracy"]) == ROUNDS


def test_cells_that_did_not_run_here_have_the_parameters_of_their_specification(results: Path) -> None:
    ran = {run.cell: run for run in tracked_runs(read_study(results / "studies/grid"), results)}
    for path in (results / "train").rglob("run.json"):
        path.unlink()
    other = {**SETTINGS, "method": {**SETTINGS["method"], "training": {"rounds": 7, "lr": 0.01}}}
    found = tracked_runs(read_study(results / "studies/grid"), results, {"aa": SETTINGS, "cc": other})
    taken = {run.cell: run for run in found}
    assert taken["aa"].parameters == ran["aa"].parameters
    assert taken["cc"].parameters["training.rounds"] == "7"
    assert taken["cc"].parameters["config_hash"] != ran["cc"].parameters["config_hash"]
    assert set(taken["dd"].parameters) == {"dataset", "scheme", "clients", "method", "backbone", "label", "seed"}


def test_twice_is_the_same_number_of_runs(results: Path) -> None:
    import_(results)
    before = {cell: run.info.run_id for cell, run in stored(results).items()}
    again = import_(results)
    assert (again["imported"], again["superseded"], again["kept"]) == (0, 0, 3)
    assert {cell: run.info.run_id for cell, run in stored(results).items()} == before


def test_a_changed_cell_supersedes_its_run(results: Path) -> None:
    import_(results)
    before = {cell: run.info.run_id for cell, run in stored(results).items()}
    write_records(
        results, [*run_rows("aa", accuracy=0.9), *run_rows("dd", outcome="diverged", seed=1)], [curve_rows("aa")]
    )
    again = import_(results)
    assert (again["imported"], again["superseded"], again["kept"]) == (0, 1, 1)
    after = stored(results)
    assert after["aa"].data.metrics["test_accuracy_pooled"] == 0.9
    assert after["aa"].info.run_id != before["aa"]
    assert after["dd"].info.run_id == before["dd"]


def test_an_interrupted_import_is_made_anew(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(mlflow_store, "_keep", interrupted)
    with pytest.raises(TrackingError, match="disk full"):
        import_(results)
    monkeypatch.undo()
    assert not (results / "tracking" / "grid.json").exists()
    done = import_(results)
    assert (done["imported"], done["superseded"]) == (2, 1)
    assert set(stored(results)) == {"aa", "cc", "dd"}


def test_two_studies_in_one_experiment_leave_each_other_alone(results: Path) -> None:
    write_records(results, run_rows("aa", label="Baseline"), [curve_rows("aa")], study="other")
    import_(results, experiment="shared")
    done = import_(results, experiment="shared", study="other")
    assert done["imported"] == 1
    assert import_(results, experiment="shared")["kept"] == 3
    assert import_(results, experiment="shared", study="other")["kept"] == 1


def test_more_points_than_one_call_takes(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_store, "PER_BATCH", 7)
    import_(results)
    client = mlflow_store.client_of(f"sqlite:///{results.resolve()}/tracking/mlflow.db")
    run = stored(results)["aa"]
    assert len(client.get_metric_history(run.info.run_id, "round/bytes_up")) == ROUNDS
    assert run.data.params["training.rounds"] == "4"


def artifact_of(client: Any, run: Any, folder: Path) -> str:
    """The cell named by the run's artifact, fetched as any reader of the store does."""
    folder.mkdir(exist_ok=True)
    return read_json(Path(client.download_artifacts(run.info.run_id, "run.json", str(folder))))["cell"]


def test_a_store_that_moved_with_its_project_keeps_its_artifacts(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project, moved = tmp_path / "old place", tmp_path / "new_%place"
    project.mkdir()
    results.rename(project / "results")
    monkeypatch.chdir(project)
    import_(Path("results"))
    before = {cell: run.info.run_id for cell, run in stored(project / "results").items()}
    old = mlflow_store.client_of(f"sqlite:///{project}/results/tracking/mlflow.db")
    theirs = old.create_run(old.create_experiment("theirs", "s3://bucket/tracking/artifacts")).info
    project.rename(moved)
    project.write_text("a folder cannot be made here")
    monkeypatch.chdir(moved)
    capsys.readouterr()
    rows = [*run_rows("aa", seed=0), *run_rows("cc", method="global", label="Global", scheme="louvain")]
    rows += [
        *run_rows("cc", method="global", label="Global", scheme="metis"),
        *run_rows("dd", seed=1, outcome="diverged"),
    ]
    write_records(
        Path("results"), [*rows, *run_rows("ff", seed=3)], [curve_rows(cell) for cell in ("aa", "cc", "cc", "ff")]
    )
    done = import_(Path("results"))
    assert (done["imported"], done["superseded"], done["kept"]) == (1, 0, 3)
    assert (
        "the project has moved: the artifacts of 3 runs are now read from results/tracking/artifacts"
        in capsys.readouterr().out
    )
    runs = stored(moved / "results")
    assert {cell: runs[cell].info.run_id for cell in before} == before
    client = mlflow_store.client_of(f"sqlite:///{moved}/results/tracking/mlflow.db")
    assert {cell: artifact_of(client, run, tmp_path / "fetched") for cell, run in runs.items()} == {
        cell: cell for cell in runs
    }
    assert client.get_run(theirs.run_id).info.artifact_uri == theirs.artifact_uri
    assert client.get_experiment_by_name("theirs").artifact_location == "s3://bucket/tracking/artifacts"
    assert project.is_file()
    for path in (moved / "results").rglob("*"):
        assert path.suffix == ".db" or path.is_dir() or str(project).encode() not in path.read_bytes(), path
    assert import_(Path("results"))["kept"] == 4
    assert "moved" not in capsys.readouterr().out


def test_a_run_whose_artifact_is_gone_is_made_anew(results: Path) -> None:
    import_(results)
    run = stored(results)["aa"]
    (results / "tracking" / "artifacts" / run.info.run_id / "artifacts" / "run.json").unlink()
    done = import_(results)
    assert (done["imported"], done["superseded"], done["kept"]) == (0, 1, 2)
    assert import_(results)["kept"] == 3


def test_a_locked_store_fails_this_job_alone_and_writes_nothing(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_(results)
    (results / "tracking" / "grid.json").unlink()
    monkeypatch.setattr(mlflow_store, "LOCK_SECONDS", 0.1)
    holder = sqlite3.connect(results / "tracking" / "mlflow.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(TrackingError, match=r"database is locked\. The results are complete without it"):
            import_(results)
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert not (results / "tracking" / "grid.json").exists()
    assert import_(results)["kept"] == 3


def test_an_unreachable_server_is_named_without_its_password(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackingError, match=r"MLflow at http://me:\*\*\*@127\.0\.0\.1:9") as caught:
        import_(results, uri="http://me:secret@127.0.0.1:9")
    assert "secret" not in str(caught.value)
    assert not (results / "tracking" / "grid.json").exists()


def test_a_deleted_experiment_says_how_to_restore_it(results: Path) -> None:
    done = import_(results)
    client = mlflow_store.client_of(done["uri"])
    client.delete_experiment(experiment_id(client))
    with pytest.raises(TrackingError, match="mlflow experiments restore -x"):
        import_(results)


def test_the_environment_names_the_store(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{results.parent}/elsewhere.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert import_(results)["uri"] == uri
    assert not (results / "tracking" / "mlflow.db").exists()
    assert (results.parent / "elsewhere.db").exists()


def test_a_job_is_quiet_and_leaves_no_folder_of_mlflow(results: Path) -> None:
    script = "\n".join(
        [
            "import sys; from pathlib import Path; from fglbench.stages.track import track",
            "assert 'mlflow' not in sys.modules and 'torch' not in sys.modules",
            "r = Path('results'); track(r / 'studies/grid', r, r / 'tracking/grid.json', None, None)",
        ]
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=results.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert sorted(path.name for path in results.parent.iterdir()) == ["results"]
    written = read_json(results / "tracking" / "grid.json")
    assert written["command"] == "mlflow ui --backend-store-uri sqlite:///results/tracking/mlflow.db"
    assert written["command"] in done.stdout


def test_concurrent_imports_make_no_run_twice(results: Path) -> None:
    script = "\n".join(
        [
            "from pathlib import Path; from fglbench.stages.track import track",
            "r = Path('results'); track(r / 'studies/grid', r, r / 'tracking/grid.json', None, None)",
        ]
    )
    jobs = [subprocess.Popen([sys.executable, "-c", script], cwd=results.parent) for _ in range(3)]
    assert [job.wait() for job in jobs] == [0, 0, 0]
    assert sorted(stored(results)) == ["aa", "cc", "dd"]


def test_a_postponed_import_counts_until_it_is_done(tmp_path: Path) -> None:
    output = tmp_path / "grid.json"
    assert failed_imports(output) == 0
    postpone(output, TrackingError("down"), 0)
    assert failed_imports(output) == 1
    postpone(output, TrackingError("down"), 1)
    assert failed_imports(output) == 2
    output.write_text("{")
    assert failed_imports(output) == 0
