"""Results that were copied to another place are reused: nothing is trained again."""

import os
import random
import shutil
import time
from pathlib import Path

from .conftest import job_counts, run_snakemake, write_config


def test_results_copied_without_their_times_are_reused_by_the_documented_command(finished: Path, tmp_path: Path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    shutil.copytree(finished / "results", folder / "results")
    shutil.copy(finished / "my.yaml", folder)
    files = sorted(path for path in (folder / "results").rglob("[!.]*") if path.is_file())  # without locks
    stream = random.Random(0)
    for path in files:
        then = path.stat().st_mtime - stream.randrange(100_000)
        os.utime(path, (then, then))
    before = {path: path.read_bytes() for path in files}
    assert "train_cell" in run_snakemake(folder, "-n").stdout

    touched = run_snakemake(folder, "--cores", "1", "--touch")
    assert touched.returncode == 0, touched.stdout + touched.stderr
    planned = run_snakemake(folder, "-n")
    assert "Nothing to be done" in planned.stdout + planned.stderr
    assert {path: path.read_bytes() for path in files} == before


def test_a_graph_of_a_clock_that_was_ahead_serves_new_cells(finished: Path, tmp_path: Path):
    folder = tmp_path / "elsewhere"
    shutil.copytree(finished, folder)
    graph = folder / "results" / "download" / "karate" / "graph.npz"
    ahead = time.time() + 86_400
    os.utime(graph, (ahead, ahead))
    write_config(folder, methods=["fedavg", "fedprox"], partitions=["random"])
    done = run_snakemake(folder, "--cores", "2", "results/studies/grid/study.json")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "A file has a time in the future, probably from a faster clock, such as results/download/karate" in said
    assert job_counts(said)["train_cell"] == 1
    assert "clock skew" not in said
    assert graph.stat().st_mtime <= time.time()
