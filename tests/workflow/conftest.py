"""A small study run by the real workflow in a folder of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fglbench.storage import exclusive

ROOT = Path(__file__).parents[2]

SMALL = {
    "datasets": ["karate"],
    "partitions": ["louvain", "random"],
    "clients": [3],
    "methods": ["global", "local", "fedavg", "fedper"],
    "backbones": ["gcn"],
    "seeds": 2,
    "training": {"rounds": 4, "local_epochs": 2, "hidden": 8},
    "device": "cpu",
}

Snakemake = Callable[..., subprocess.CompletedProcess[str]]


def run_snakemake(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`snakemake` on the repository's workflow, in `folder`, with its `my.yaml`."""
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder),
        "--workflow-profile", str(ROOT / "profiles" / "default"), "--configfile", str(folder / "my.yaml"), *arguments,
    ]  # fmt: skip
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("FGLBENCH_", "MLFLOW_"))}
    return subprocess.run(
        command, cwd=folder, env={**clean, "OMP_NUM_THREADS": "1", **environment}, capture_output=True, text=True
    )


def job_counts(output: str) -> dict[str, int]:
    """Rule -> number of jobs, from the statistics that a dry run prints."""
    table = output.split("Job stats:")[1].split("total")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, flags=re.M)}


def write_config(folder: Path, **changes: object) -> None:
    (folder / "my.yaml").write_text(yaml.safe_dump({**SMALL, **changes}))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small study that ran to its end: made once, and each worker of pytest-xdist has a copy."""
    base = tmp_path_factory.getbasetemp()
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "finished"
    with exclusive(made):
        if not (made / "ended").exists():
            made.mkdir(exist_ok=True)
            write_config(made)
            done = run_snakemake(made, "--cores", "2", "--resources", "gpu=2")
            assert done.returncode == 0, done.stdout + done.stderr
            (made / "ended").touch()
    return moved(made, tmp_path_factory.mktemp("study") / "finished")


def moved(study: Path, folder: Path) -> Path:
    """A copy of a finished study, after the run in which its MLflow store learns its new place."""
    shutil.copytree(study, folder)
    done = run_snakemake(folder, "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
