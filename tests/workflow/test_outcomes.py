"""A cell that does not end well is an outcome of the study, not its end."""

import re
from pathlib import Path

import pandas as pd
import pytest

from .conftest import job_counts, run_snakemake, write_config

METHOD = '''
"""FedAvg that brings its process down once, then takes too much memory, until both files are gone."""

import ctypes
from pathlib import Path

from fglbench.methods import fedavg
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    pass


class Method(fedavg.Method):
    def loss(self, step):
        if Path("broken").exists():
            Path("broken").rename("full")
            ctypes.string_at(0)
        if Path("full").exists():
            raise MemoryError
        return None
'''


@pytest.mark.slow
def test_a_method_that_crashes_is_an_error_and_tried_again_alone(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "crashes.py").write_text(METHOD)
    (tmp_path / "broken").touch()
    write_config(
        tmp_path,
        methods=["fedavg", "crashes"],
        partitions=["random"],
        components=["mine"],
        figures=[],
        tracking={"enabled": False},
    )
    results = tmp_path / "results"
    done = run_snakemake(tmp_path, "--cores", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "grid: 1 failed, 2 ok, 1 oom"
    runs = pd.read_parquet(results / "studies" / "grid" / "runs.parquet")
    (reason,) = set(runs.loc[runs["outcome"] == "failed", "reason"])
    log = re.search(r"was ended by SIGSEGV \(log: (.+)\)", reason).group(1)
    assert "in loss" in (tmp_path / log).read_text()  # where the method was
    job = str(Path(log).parent).replace("logs/", "")
    assert f"Failed with an error; all else is finished:\n  - {job}, seed 0: the training process" in done.stderr
    assert "¶" in (results / "tables" / "grid" / "accuracy.md").read_text()
    assert (results / "report" / "grid.html").exists()
    (tmp_path / "full").unlink()

    # Whoever takes failures as results has nothing to do but the missing page.
    (results / "report" / "grid.html").unlink()
    kept = run_snakemake(tmp_path, "--cores", "2", "--config", "jobs={failures: keep}")
    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert "Try the seeds again that ran out of memory or failed: snakemake --forcerun train_cell" in kept.stdout
    assert "train_cell" not in kept.stderr
    assert "train_cell" not in job_counts(run_snakemake(tmp_path, "-n", "--config", "only_finished=true").stdout)
    assert "Nothing to be done" in run_snakemake(tmp_path, "-n", "data").stdout

    records = {path: path.read_bytes() for path in (results / "train").rglob("run.json")}
    assert job_counts(run_snakemake(tmp_path, "-n").stdout)["train_cell"] == 1
    done = run_snakemake(tmp_path, "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "grid: 3 ok, 1 oom"
    changed = [path for path, content in records.items() if path.read_bytes() != content]
    assert [path.parts[-3].partition("-")[0] + path.parts[-2] for path in changed] == ["crashesseed0"]
    assert "Nothing to be done" in run_snakemake(tmp_path, "-n").stdout

    done = run_snakemake(tmp_path, "--cores", "2", "--forcerun", "train_cell")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "grid: 4 ok"
