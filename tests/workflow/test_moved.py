"""Results that were copied to another place are adopted: nothing is trained again."""

import os
import random
import shutil
from pathlib import Path

from .conftest import run_snakemake


def test_results_copied_without_their_times_are_adopted_by_the_documented_command(finished: Path, tmp_path: Path):
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
