"""A training job outlives whatever a method does to its process, and its process does not outlive the job."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from fglbench import registry
from fglbench.records.run import Outcome, RunRecord
from fglbench.stages.supervise import TrainingError, train_supervised
from fglbench.storage import hash_arrays, read_json, read_npz
from fglbench.workflow.single import one_cell, prepare

SEEDS, CLIENTS, ROUNDS, EPOCHS = 2, 4, 3, 1
METHOD = '''
"""FedAvg that does harm in its second round, as long as the file `harm` is there."""

import ctypes
import os
import signal
import time
from pathlib import Path

import torch

from fglbench.methods import fedavg
from fglbench.settings import ComponentSettings

VERSION = 1
HARM = Path({marker!r})
BLOCKS = []


class Settings(ComponentSettings):
    pass


class Method(fedavg.Method):
    def loss(self, step):
        if step.round == 1 and HARM.exists() and len(step.clients) > {spared}:
            if {once}:
                HARM.unlink()
            {harm}
        return None
'''


class Job:
    """Two seeds of a tiny cell; the method does `harm` once, or always with more than `spared` clients at once."""

    def __init__(self, folder: Path, harm: str, once: bool = True, spared: int = 0):
        self.marker = folder / "harm"
        self.marker.touch()
        mine = folder / "mine"
        mine.mkdir()
        (mine / "harmful.py").write_text(METHOD.format(marker=str(self.marker), harm=harm, once=once, spared=spared))
        registry.use_folders([mine])
        values: dict[str, Any] = {
            "datasets": ["karate"],
            "partitions": ["louvain"],
            "clients": [CLIENTS],
            "methods": ["harmful"],
            "training": {"rounds": ROUNDS, "local_epochs": EPOCHS, "hidden": 4},
            "components": [str(mine)],
        }
        singles = [one_cell(values | {"seeds": [seed]}, folder / "results") for seed in range(SEEDS)]
        for single in singles:
            prepare(single)
        first = singles[0]
        self.folder = first.folder("train")
        self.arguments: dict[str, Any] = {
            "graph_folder": first.folder("download"),
            "preprocessed_folder": first.folder("preprocess"),
            "specs": first.cell.specs,
            "cells": {single.cell.seed: single.cell.id for single in singles},
            "folder": self.folder,
            "components": [str(mine)],
            "device": "cpu",
            "log": "some.log",
        }

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """The records of the seeds after a run of the job."""
        train_supervised(**self.arguments, **options)
        return [read_json(self.folder / f"seed{seed}" / "run.json") for seed in range(SEEDS)]

    def predictions(self) -> list[str]:
        return [hash_arrays(read_npz(self.folder / f"seed{seed}" / "predictions.npz")) for seed in range(SEEDS)]


# Every test has its own method of the same name.
pytestmark = pytest.mark.usefixtures("own_components")


def states(records: list[dict[str, Any]]) -> list[str]:
    return [record["outcome"]["state"] for record in records]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("raise ValueError('no such thing')", "ValueError: no such thing (log: some.log)"),
        ("raise ValueError('out of memory?')", "ValueError: out of memory? (log: some.log)"),
        ("ctypes.string_at(0)", "the training process was ended by SIGSEGV (log: some.log)"),
        ("os._exit(0)", "the training process ended with exit status 0 (log: some.log)"),
    ],
)
def test_a_crash_is_an_outcome_and_is_tried_again_alone(tmp_path: Path, harm: str, reason: str):
    job = Job(tmp_path, harm)
    first, second = job.run()
    assert states([first, second]) == ["failed", "ok"]
    assert first["outcome"]["reason"] == reason
    assert first["peak_memory_mb"] > 50
    assert first["device"]["type"] == "cpu"
    again = job.run()
    assert states(again) == ["ok", "ok"]
    assert again[1] == second


@pytest.mark.parametrize("on_gpu", [True, False])
def test_after_a_failure_on_a_card_the_next_seed_has_another_process(tmp_path: Path, on_gpu: bool):
    """A failed assertion on the card would fail it as well; here the failure is said to be of a card."""
    seen = tmp_path / "seen"
    says = f"import fglbench.stages.train as t; t.gpu_may_have_failed = lambda record: {on_gpu}"
    harm = f"{says}; open({str(seen)!r}, 'a').write(f'{{os.getpid()}} '); raise RuntimeError('assert')"
    assert states(Job(tmp_path, harm, once=False).run()) == ["failed", "failed"]
    assert len(set(seen.read_text().split())) == (2 if on_gpu else 1)


def test_a_seed_that_takes_too_long_is_ended(tmp_path: Path):
    job = Job(tmp_path, "time.sleep(600)")
    first, second = job.run(timeout_min=0.4)
    assert states([first, second]) == ["timeout", "ok"]
    assert "not done after 0.4 min (jobs.train_timeout_min)" in first["outcome"]["reason"]
    assert 24 <= first["total_seconds"] < 300
    assert states(job.run(timeout_min=0.4)) == ["ok", "ok"]


@pytest.mark.parametrize("harm", ["BLOCKS.append(torch.ones(2**30))", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_where_memory_runs_out_fewer_clients_at_once_give_the_same_numbers(tmp_path: Path, harm: str):
    job = Job(tmp_path, harm, once=False, spared=2)
    records = job.run(memory_limit_mb=1000)
    assert states(records) == ["ok", "ok"]
    assert [record["chunk_clients"] for record in records] == [2, 2]
    found = job.predictions()
    job.marker.unlink()
    for seed in range(SEEDS):
        (job.folder / f"seed{seed}" / "run.json").unlink()
    assert [record["chunk_clients"] for record in job.run()] == [None, None]
    assert job.predictions() == found


def test_where_one_client_at_a_time_is_too_much_the_cell_is_out_of_memory(tmp_path: Path):
    job = Job(tmp_path, "BLOCKS.append(torch.ones(2**30))", once=False)
    records = job.run(memory_limit_mb=1000)
    assert states(records) == ["oom", "oom"]
    assert [record["chunk_clients"] for record in records] == [1, 1]
    assert "allocate memory" in records[0]["outcome"]["reason"]
    job.marker.unlink()
    assert job.run(memory_limit_mb=1000, retried=("failed",)) == records
    assert states(job.run(memory_limit_mb=1000)) == ["ok", "ok"]


def test_being_told_to_stop_is_no_outcome(tmp_path: Path):
    job = Job(tmp_path, "os.kill(os.getpid(), signal.SIGTERM)")
    with pytest.raises(TrainingError, match="was ended by SIGTERM"):
        job.run()
    assert not list(job.folder.rglob("run.json"))
    assert states(job.run()) == ["ok", "ok"]


def test_an_error_that_is_no_cells_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = Job(tmp_path, "pass")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TrainingError, match="no GPU is visible to this job"):
        job.run(**(job.arguments.pop("device") and {"device": "cuda"}))
    assert not list(job.folder.rglob("run.json"))


@pytest.mark.parametrize("how", [psutil.Process.kill, psutil.Process.terminate])
def test_the_training_process_ends_with_its_job(tmp_path: Path, how: Any):
    job = Job(tmp_path, "(HARM.parent / str(os.getpid())).touch(), time.sleep(600)")
    code = f"""
from pathlib import PosixPath
from fglbench.stages.supervise import train_supervised
train_supervised(**{job.arguments!r})
"""
    parent = psutil.Process(subprocess.Popen([sys.executable, "-c", code]).pid)
    deadline = time.monotonic() + 120
    while job.marker.exists() or not (found := [path for path in tmp_path.iterdir() if path.name.isdigit()]):
        assert time.monotonic() < deadline and parent.is_running()
        time.sleep(0.05)
    child = psutil.Process(int(found[0].name))
    assert child.ppid() == parent.pid != os.getpid()
    how(parent)
    parent.wait()
    child.wait(timeout=30)
    assert not list(job.folder.rglob("run.json"))


def test_a_line_about_a_run_counts_rounds_from_1():
    ok = RunRecord(cell="", seed=0, settings={}, outcome=Outcome(state="ok"), selected_round=0, train_seconds=1.5)
    assert str(ok) == "ok, round 1 selected, trained in 1.50 s"
    diverged = Outcome(state="diverged", round=2, reason="why")
    assert str(ok.model_copy(update={"outcome": diverged})) == "diverged in round 3: why"
    assert str(ok.model_copy(update={"outcome": Outcome(state="oom", reason="why")})) == "oom: why"
