"""Records in JSON: what is written is read again, records of earlier versions are read, damaged ones are named."""

import json
from pathlib import Path

import pandas as pd
import pytest

from fglbench.errors import StorageError
from fglbench.records.metrics import METRICS, Metrics, Reading
from fglbench.records.run import RUN, Device, Outcome, RunRecord
from fglbench.records.study import StudyRecord
from fglbench.stages.job import finish
from fglbench.storage import write_json

EARLIER = {
    "cell": "0123456789abcdef",
    "seed": 3,
    "settings": {"method": {"method": "fedavg"}},
    "outcome": {"state": "ok", "round": None, "reason": None},
    "rounds_run": 2,
    "selected_round": 1,
    "train_seconds": 1.5,
    "device": {"type": "cpu", "name": "Xeon", "card": None},
    "split": "ab",
    "versions": {"torch": "2.0.1"},
    "files": {"history.npz": "cd"},
    "a key that went away": 1,
}
"""A record of a version without phases, rounds of clients, seconds of the server and hashes of component files."""


def test_a_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / RUN, EARLIER)
    record = RunRecord.read(tmp_path)
    assert (record.cell, record.seed, record.outcome.state, record.train_seconds) == ("0123456789abcdef", 3, "ok", 1.5)
    assert (record.phases, record.client_rounds, record.server_seconds, record.component_files) == ([], [], 0.0, None)
    assert str(record.device) == "cpu: Xeon"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    device = Device(type="cuda", name="H100", card="GPU-1")
    record = RunRecord(cell="c", seed=0, settings={}, outcome=Outcome(state="diverged", round=4), device=device)
    record.write(tmp_path)
    assert RunRecord.read(tmp_path) == record
    scores = {"accuracy": {"pooled": 0.5}}
    reading = Reading(round=1, train=scores, val=scores, test=scores)
    metrics = Metrics(cell="c", outcome=Outcome(state="ok"), bytes_up=1, bytes_down=2, readings={"val": reading})
    metrics.write(tmp_path)
    assert Metrics.read(tmp_path) == metrics
    stored = json.loads((tmp_path / METRICS).read_text())
    assert stored["outcome"] == {"state": "ok", "round": None, "reason": None}
    assert set(stored["readings"]["val"]) == {"round", "train", "val", "test"}  # no global test was asked for
    assert [name for name, _ in Metrics.read(tmp_path).readings["val"].splits()] == ["test", "train", "val"]


def test_a_seed_that_could_not_be_run_has_its_outcome_alone(tmp_path: Path) -> None:
    Metrics(outcome=Outcome(state="not_run", reason="no data"), readings={}).write(tmp_path)
    assert set(json.loads((tmp_path / METRICS).read_text())) == {"outcome", "readings"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": "three"}, r"run\.json: seed: Input should be a valid integer"),
        ({"outcome": None}, "run.json: outcome"),
    ],
)
def test_a_record_of_another_form_is_named_with_its_key(tmp_path: Path, change: dict, said: str) -> None:
    write_json(tmp_path / RUN, EARLIER | change)
    with pytest.raises(StorageError, match=said):
        RunRecord.read(tmp_path)


def test_of_an_altered_record_the_checksum_is_told_first(tmp_path: Path) -> None:
    path = tmp_path / "seed3" / RUN
    write_json(path, EARLIER)
    finish(tmp_path / "seeds-3.json", [path])
    write_json(path, EARLIER | {"seed": "three"})
    with pytest.raises(StorageError, match="does not match its checksum"):
        RunRecord.read(path.parent)


def study_with(**settings: list[dict]) -> StudyRecord:
    """A study with tables or figures and without records."""
    empty = pd.DataFrame()
    return StudyRecord({"name": "s", "metric": "auc", **settings}, empty, empty, empty)


def test_tables_of_an_earlier_version_get_the_defaults_of_later_keys() -> None:
    earlier = {"name": "t", "title": "Means.", "rows": ["label"], "metric": None, "reading": None, "gone": 1}
    (table,) = study_with(tables=[earlier]).tables
    assert (table.metric, table.reading, table.mean, table.targets) == ("auc", "val", "pooled", "nodes")
    assert (table.heading, table.digits, table.axes) == ("Means", 1, ["label", "dataset", "scheme", "clients"])
    (figure,) = study_with(figures=[{"name": "f", "title": "", "kind": "graph"}]).figures
    assert (figure.heading, figure.metric) == ("f", "auc")


def test_an_invalid_entry_of_a_study_is_named_with_its_key() -> None:
    with pytest.raises(StorageError, match=r"study\.json: figure 'f': kind: Input should be 'accuracy_per_round'"):
        _ = study_with(figures=[{"name": "f", "title": "F", "kind": "pie"}]).figures
