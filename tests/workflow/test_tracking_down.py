"""A tracking store that is down costs the study nothing."""

import json
import shutil
from pathlib import Path

from .conftest import run_snakemake


def test_the_study_is_complete_without_the_store_and_the_next_run_imports_it(finished: Path, tmp_path: Path):
    folder = tmp_path / "study"
    shutil.copytree(finished, folder)
    output = folder / "results" / "tracking" / "grid.json"
    output.unlink()
    shutil.rmtree(folder / "results" / "report")
    down = run_snakemake(folder, "--cores", "2", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    assert down.returncode == 0, down.stdout + down.stderr
    assert "Not imported into MLflow: MLflow at http://127.0.0.1:9" in down.stdout + down.stderr
    assert "Runs: not imported yet, the next run of the workflow tries again." in down.stdout
    assert (folder / "results" / "report" / "grid.html").exists()
    assert "command" not in json.loads(output.read_text())

    up = run_snakemake(folder, "--cores", "2")
    assert up.returncode == 0, up.stdout + up.stderr
    done = json.loads(output.read_text())
    assert done["imported"] + done["kept"] == 14  # global once, three methods on two partitions, two seeds each
    assert "Nothing to be done" in run_snakemake(folder, "-n").stdout
