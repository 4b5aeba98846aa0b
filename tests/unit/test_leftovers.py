"""`fglbench verify --repair` removes what killed jobs left half-made, and no lock, which may be held."""

from pathlib import Path

from fglbench.cli import main
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
