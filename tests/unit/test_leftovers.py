"""What killed jobs left half-made is removed, by the next holder of the lock and by `fglbench verify --repair`; no lock
is, which may be held."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fglbench.cli import main
from fglbench.stages.download import download
from fglbench.stages.verify import leftovers
from fglbench.storage import exclusive, replacing, replacing_directory


def test_locks_are_no_half_made_files(tmp_path: Path) -> None:
    kept = [
        ".workflow",
        ".workflow.lock",
        "download/.cora.lock",
        "train/cora/.seed0.lock",
        "tune/mine/.cora-gcn-fedprox-12ab.turn.lock",
        "tune/mine/cora-gcn-fedprox-12ab.json",
    ]
    half_made = ["tune/mine/.cora-gcn-fedprox-12ab.json.x1y2z3ab.json", "train/cora/.seed0.x1y2z3ab/history.npz"]
    for name in (*kept, *half_made):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert leftovers(tmp_path) == [tmp_path / "train/cora/.seed0.x1y2z3ab", tmp_path / half_made[0]]
    assert main(["verify", "--repair", "--results", str(tmp_path)]) == 0
    assert leftovers(tmp_path) == []
    assert all((tmp_path / name).exists() for name in kept)


def test_what_a_process_is_at_is_no_leftover(tmp_path: Path) -> None:
    folder, text = tmp_path / "train" / "seed0", tmp_path / "studies" / "study.json"
    with exclusive(folder), replacing_directory(folder) as half, exclusive(text), replacing(text) as other:
        (half / "history.npz").touch()
        assert leftovers(tmp_path) == []
        assert main(["verify", "--repair", "--results", str(tmp_path)]) == 0
        assert half.exists() and other.exists()


@pytest.mark.parametrize("killed_in", ["replacing_directory", "replacing"])
def test_the_next_holder_of_a_lock_removes_what_a_killed_one_left(tmp_path: Path, killed_in: str) -> None:
    target = tmp_path / ("seed0" if killed_in == "replacing_directory" else "federation.npz")
    code = f"""
import os, signal, sys
from pathlib import Path
from fglbench.storage import {killed_in}, exclusive
target = Path(sys.argv[1])
with exclusive(target), {killed_in}(target):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(leftovers(tmp_path)) == 1
    others = [tmp_path / name for name in (".seed1.x1y2z3ab", ".seed0.journal", "seed0.x1y2z3ab", ".seed0.1.x1y2z3ab")]
    for other in others:
        other.touch()
    with exclusive(target):
        assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / f".{target.name}.lock"])


def test_a_download_removes_the_half_graph_of_a_killed_one(tmp_path: Path) -> None:
    half = tmp_path / "karate" / ".graph.npz.x1y2z3ab.npz"
    half.parent.mkdir()
    half.touch()
    download({"name": "karate"}, tmp_path / "karate")
    assert not half.exists()
