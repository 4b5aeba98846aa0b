"""A cell that does not end well is an outcome of the study, not its end."""

import re
from pathlib import Path

import pandas as pd
import pytest

from .conftest import run_snakemake, write_config

METHOD = '''
"""FedAvg that brings its process down while the file `broken` is there."""

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
            ctypes.string_at(0)
        return None
'''


@pytest.mark.slow
def test_a_method_that_crashes_is_shown_and_tried_again_alone(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "crashes.py").write_text(METHOD)
    (tmp_path / "broken").touch()
    write_config(
        tmp_path,
        methods=["fedavg", "crashes"],
        partitions=["louvain"],
        components=["mine"],
        tracking={"enabled": False},
    )
    done = run_snakemake(tmp_path, "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "grid: 2 failed, 2 ok"
    assert "snakemake --forcerun train_cell" in done.stdout
    runs = pd.read_parquet(tmp_path / "results" / "studies" / "grid" / "runs.parquet")
    (reason,) = set(runs.loc[runs["outcome"] == "failed", "reason"])
    log = tmp_path / re.search(r"was ended by SIGSEGV \(log: (.+)\)", reason).group(1)
    assert "in loss" in log.read_text()  # where the method was
    table = (tmp_path / "results" / "tables" / "grid" / "accuracy.md").read_text()
    assert "¶" in table
    kept = {path: path.read_bytes() for path in (tmp_path / "results" / "train").rglob("fedavg-*/seed*/run.json")}
    assert len(kept) == 2

    (tmp_path / "broken").unlink()
    assert "Nothing to be done" in "".join(run_snakemake(tmp_path, "-n").stdout)
    done = run_snakemake(tmp_path, "--cores", "2", "--forcerun", "train_cell")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "grid: 4 ok"
    assert {path: path.read_bytes() for path in kept} == kept
