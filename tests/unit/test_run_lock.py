"""The run lock: one workflow at a time on a results folder, and removal of the locks of a killed Snakemake."""

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fglbench.storage import read_json, write_json
from fglbench.workflow import run_lock
from fglbench.workflow.run_lock import BusyError, claim, look, set_back_times

HOLD = "import sys, time; from pathlib import Path\n"
HOLD += "from fglbench.workflow.run_lock import claim; claim(Path(sys.argv[1])); "


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that works on `results`, with Snakemake's locks of it beside."""
    code = HOLD + "print('ready', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, str(tmp_path / "results")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "0.input.lock").touch()
    yield process
    process.kill()
    process.wait()


def test_the_second_is_told_who_works_and_what_to_do(
    holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_lock, "_PATIENCE_S", 0.1)
    with pytest.raises(BusyError, match=rf"process {holder.pid} on .* end it with 'kill {holder.pid}'; then"):
        claim(tmp_path / "results")
    said = look(tmp_path / "results", tmp_path / "locks")
    assert said is not None
    assert f"process {holder.pid}" in said
    assert (tmp_path / "locks" / "0.input.lock").exists()


def test_what_a_killed_one_left_is_removed(holder: subprocess.Popen[str], tmp_path: Path):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    said = look(tmp_path / "results", tmp_path / "locks")
    assert said is not None
    assert "was killed. Its locks were removed" in said
    assert list((tmp_path / "locks").iterdir()) == []
    assert look(tmp_path / "results", tmp_path / "locks") is None
    claim(tmp_path / "results")
    assert read_json(tmp_path / "results" / ".workflow")["process"] == os.getpid()


def test_locks_are_removed_if_snakemake_was_killed_before_it_made_the_results_folder(tmp_path: Path):
    lock = tmp_path / "locks" / "0.output.lock"
    lock.parent.mkdir()
    lock.write_text(f"{tmp_path}/results/download/karate/graph.json\n")
    message = look(tmp_path / "results", tmp_path / "locks")
    assert message is not None
    assert "was killed. Its locks were removed" in message
    assert not lock.exists()


def test_locks_for_other_results_are_left(holder: subprocess.Popen[str], tmp_path: Path):
    own, others = tmp_path / "locks" / "0.output.lock", tmp_path / "locks" / "1.output.lock"
    others.write_text(f"README.md\n{tmp_path}/results/studies/grid/study.json\n")
    (tmp_path / "locks" / "0.input.lock").write_text(f"{tmp_path}/results/train/seeds-0.json\n")
    (tmp_path / "other").mkdir()
    assert look(tmp_path / "other", tmp_path / "locks") is None
    own.write_text(f"{tmp_path}/other/studies/grid/study.json\n")
    said = look(tmp_path / "other", tmp_path / "locks")
    assert said is not None
    assert "was killed. Its locks were removed" in said
    assert sorted(path.name for path in (tmp_path / "locks").iterdir()) == ["0.input.lock", "1.output.lock"]


def test_locks_of_another_machine_are_left(tmp_path: Path):
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "0.input.lock").touch()
    write_json(tmp_path / "results" / ".workflow", {"process": 1, "host": f"not-{platform.node()}", "since": "today"})
    said = look(tmp_path / "results", tmp_path / "locks")
    assert said is not None
    assert said.endswith("If it no longer runs there: snakemake --unlock")
    assert (tmp_path / "locks" / "0.input.lock").exists()


def test_one_that_only_looks_for_an_instant_stops_nobody(tmp_path: Path):
    code = HOLD + "time.sleep(1)"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    while not (tmp_path / ".workflow").exists():
        time.sleep(0.01)
    claim(tmp_path)
    assert process.wait() == 0


def test_times_in_the_future_are_set_to_the_present_and_others_stay(tmp_path: Path):
    results = tmp_path / "results"
    names = {
        "read": ["download/cora/graph.npz", "train/cora/random/fedavg/seeds-0-1.json"],
        "unread": ["train/cora/random/fedavg/seed0/run.json", "logs/train.log"],
        "past": ["download/cora/graph.json"],
    }
    began, ahead, past = time.time(), time.time() + 86_400, time.time() - 86_400
    for kind, found in names.items():
        for name in found:
            path = results / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (past, past) if kind == "past" else (ahead, ahead))
    outside = tmp_path / "elsewhere.npz"
    outside.touch()
    os.utime(outside, (ahead, ahead))
    (results / "download" / "linked.npz").symlink_to(outside)
    said = set_back_times(results)
    assert said is not None
    assert said.startswith("2 files have a time in the future")
    assert any(str(results / name) in said for name in names["read"])
    assert all(began - 1 <= (results / name).stat().st_mtime <= time.time() for name in names["read"])
    assert outside.stat().st_mtime == pytest.approx(ahead)
    assert (results / names["past"][0]).stat().st_mtime == pytest.approx(past)
    assert set_back_times(results) is None
    assert set_back_times(tmp_path / "absent") is None
