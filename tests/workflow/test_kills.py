"""`kill -9` at random moments, of jobs, of Snakemake and of everything: the same command ends as if undisturbed."""

import random
from pathlib import Path

import pytest
from killing import run_with_kills

from fglbench.cli import main

from .conftest import write_config

KILLS = 30
TARGET = "results/studies/grid/study.json"


def contents(folder: Path, names: tuple[str, ...]) -> dict[Path, bytes]:
    found = (path for name in names for path in (folder / "results").rglob(name))
    return {path.relative_to(folder): path.read_bytes() for path in found}


def identities(folder: Path) -> dict[Path, tuple[int, int]]:
    """Which files hold the finished runs: another one has another inode or time."""
    found = (folder / "results" / "train").glob("*/*/*/seed[0-9]*/run.json")
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


@pytest.mark.slow
def test_thirty_kills_change_no_result_and_repeat_no_finished_run(finished: Path, tmp_path: Path):
    names = ("metrics.json", "predictions.npz", "checkpoint.safetensors", "split.npz", "federation.npz", "graph.npz")
    undisturbed = contents(finished, names)
    choice = random.Random(20)
    kills, attempt = 0, 0
    while kills < KILLS:
        attempt += 1
        folder = tmp_path / str(attempt)
        folder.mkdir()
        write_config(folder)
        seen: list[dict[Path, tuple[int, int]]] = []

        def note(at: Path = folder, noted: list[dict[Path, tuple[int, int]]] = seen) -> None:
            noted.append(identities(at))

        arguments = ("--cores", "2", TARGET)
        kills += run_with_kills(folder, choice, KILLS - kills, (0.2, 2.5), *arguments, after_each=note)
        final = identities(folder)
        assert all(final[path] == identity for earlier in seen for path, identity in earlier.items())
        assert contents(folder, names) == undisturbed
        assert main(["verify", "--results", str(folder / "results")]) == 0
        outputs = "\n".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
        logs = "\n".join(path.read_text(errors="replace") for path in (folder / "results" / "logs").rglob("*.log"))
        for half_read in ("cannot be read", "does not match", "is missing", "Directory cannot be locked"):
            assert half_read not in outputs + logs
