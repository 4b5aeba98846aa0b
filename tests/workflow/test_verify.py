"""Damaged files are found by their checksums, named, and made again; what is unharmed stays."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from fglbench.cli import main
from fglbench.stages.verify import find_damage
from fglbench.storage import read_npz, write_npz
from fglbench.workflow.single import run_cell

from .conftest import job_counts, run_snakemake

FILES = {
    "graph": "download/karate/graph.npz",
    "data card": "download/karate/graph.json",
    "split": "split/karate/random-*/seed1/split.npz",
    "partition card": "split/karate/random-*/seed1/card.json",
    "prepared": "preprocess/karate/random-*/*/seed1/federation.npz",
    "checkpoint": "train/karate/random-*/fedavg-*/seed1/checkpoint.safetensors",
    "predictions": "train/karate/random-*/fedavg-*/seed1/predictions.npz",
    "history": "train/karate/random-*/fedavg-*/seed1/history.npz",
    "record": "train/karate/random-*/fedavg-*/seed1/run.json",
    "metrics": "evaluate/karate/random-*/fedavg-*/seed1/metrics.json",
    "list": "train/karate/random-*/fedavg-*/seeds-0-1.json",
    "collected records": "studies/grid/runs.parquet",
    "study": "studies/grid/study.json",
    "table": "tables/grid/accuracy.md",
    "figure": "figures/grid/label-heatmap.pdf",
    "page": "report/grid.html",
    "list of tables": "checksums/tables/grid.json",
}
LISTS = {"data card", "list", "list of tables"}


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "study")
    return tmp_path / "study"


def the(study: Path, what: str) -> Path:
    (path,) = (study / "results").glob(FILES[what])
    return path


def flip(path: Path) -> None:
    """One bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_finished_study_has_no_damage(finished: Path):
    assert list(find_damage(finished / "results")) == []


def test_a_cell_that_was_trained_again_by_itself_is_no_damage(study: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(study)
    values = yaml.safe_load((study / "my.yaml").read_text())
    run = json.loads(the(study, "record").read_text())
    cell = {"datasets": ["karate"], "partitions": ["random"], "methods": ["fedavg"], "seeds": [1]}
    record = run_cell({**values, **cell}, study / "results", force=True)
    assert record["cell"] == run["cell"] and json.loads(the(study, "record").read_text()) != run
    assert list(find_damage(study / "results")) == []
    counts = job_counts(run_snakemake(study, "-n").stdout)
    assert counts["evaluate_cell"] == counts["collect_study"] == 1
    assert "train_cell" not in counts


def test_a_list_that_names_no_seed_is_damaged(study: Path):
    path = the(study, "list")
    path.write_text(json.dumps({**json.loads(path.read_text()), "foo": "bar"}))
    (study / "results" / "split" / "karate" / the(study, "split").parents[1].name / "seed0-old").mkdir()
    assert [damage.reason for damage in find_damage(study / "results")] == ["lists a path that is not a file of a seed"]


@pytest.mark.parametrize("what", sorted(set(FILES) - LISTS))
def test_one_flipped_bit_is_found(study: Path, what: str):
    flip(the(study, what))
    assert [damage.path for damage in find_damage(study / "results")] == [the(study, what)]


@pytest.mark.parametrize("what", sorted(FILES))
def test_a_truncated_file_is_found(study: Path, what: str):
    path = the(study, what)
    path.write_bytes(path.read_bytes()[:-20])
    assert [damage.path for damage in find_damage(study / "results")] == [path]


def test_a_missing_file_is_found(study: Path):
    path = the(study, "checkpoint")
    path.unlink()
    assert [(damage.path, damage.reason) for damage in find_damage(study / "results")] == [(path, "is missing")]
    shutil.rmtree(path.parent)
    (found,) = find_damage(study / "results")
    assert found.path == path.parent / "run.json"


def test_damaged_files_are_made_again_with_the_same_content_and_the_rest_is_kept(
    study: Path, capsys: pytest.CaptureFixture[str]
):
    results = study / "results"
    damaged = [the(study, what) for what in ("split", "prepared", "checkpoint", "predictions", "metrics")]
    right = {path: path.read_bytes() for path in damaged}
    records = {path: path.stat().st_mtime_ns for path in results.glob("train/**/run.json")}
    for path in damaged:
        flip(path)
    half = results / "train" / "karate" / ".seed0.abc"
    half.mkdir()

    assert main(["verify", "--results", str(results)]) == 1
    said = capsys.readouterr().out
    assert all(f"damaged: {path} does not match its checksum" in said for path in damaged)
    assert "5 damaged files; 'fglbench verify --repair' removes them" in said
    assert main(["verify", "--repair", "--results", str(results)]) == 0
    assert not half.exists()
    assert "5 damaged files removed; the next 'snakemake' makes them again" in capsys.readouterr().out

    done = run_snakemake(study, "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path: path.read_bytes() for path in damaged} == right
    again = {path for path, time in records.items() if path.stat().st_mtime_ns != time}
    assert again == {the(study, "record")}
    assert main(["verify", "--results", str(results)]) == 0


def test_a_damaged_graph_is_made_again(study: Path):
    graph = the(study, "graph")
    right = graph.read_bytes()
    flip(graph)
    assert main(["verify", "--repair", "--results", str(study / "results")]) == 0
    assert not graph.exists()
    planned = run_snakemake(study, "-n").stdout
    assert "download_dataset" in planned
    assert run_snakemake(study, "--cores", "2", "data").returncode == 0
    assert graph.read_bytes() == right


def test_what_is_made_of_a_whole_study_is_made_again_without_a_cell(study: Path, capsys: pytest.CaptureFixture[str]):
    results = study / "results"
    damaged = [the(study, what) for what in ("collected records", "table", "figure", "page")]
    right = {path: path.read_bytes() for path in damaged}
    for path in damaged[:3]:
        flip(path)
    damaged[3].unlink()
    assert main(["verify", "--repair", "--results", str(results)]) == 0
    said = capsys.readouterr().out
    assert all(f"damaged: {path} does not match its checksum" in said for path in damaged[:3])
    assert f"damaged: {damaged[3]} is missing" in said
    assert main(["verify", "--results", str(results)]) == 0  # what was removed is known to be to make

    done = run_snakemake(study, "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "evaluate_cell" not in done.stdout + done.stderr
    assert {path: path.read_bytes() for path in damaged} == right
    assert main(["verify", "--results", str(results)]) == 0


def test_a_list_of_a_study_is_made_again_and_a_damaged_one_removes_nothing_else(study: Path):
    results, path = study / "results", the(study, "list of tables")
    right = path.read_text()
    path.write_text(right.replace("tables/grid/accuracy.md", "../my.yaml"))
    (found,) = find_damage(results)
    assert (found.path, found.made) == (path, (path,))
    assert main(["verify", "--repair", "--results", str(results)]) == 0
    assert not path.exists() and (study / "my.yaml").exists()
    assert run_snakemake(study, "--cores", "2").returncode == 0
    assert path.read_text() == right


def test_labels_altered_under_the_same_time_stamp_are_not_scored(study: Path):
    graph, right = the(study, "graph"), the(study, "graph").stat()
    arrays = read_npz(graph)
    arrays["labels"] = arrays["labels"][::-1]
    write_npz(graph, arrays)
    os.utime(graph, ns=(right.st_atime_ns, right.st_mtime_ns))
    config = yaml.safe_load((study / "my.yaml").read_text())
    (study / "my.yaml").write_text(yaml.safe_dump({**config, "methods": [*config["methods"], "fedprox"]}))
    done = run_snakemake(study, "--cores", "2")
    assert done.returncode != 0
    assert "results/download/karate/graph.npz does not match its checksum in" in done.stdout + done.stderr
    assert "'fglbench verify --repair' finds and removes" in done.stdout + done.stderr
    assert not list((study / "results").glob("*/karate/*/fedprox-*/seed*/*.json"))


def test_the_error_of_a_job_names_the_command(study: Path):
    flip(the(study, "predictions"))
    the(study, "metrics").parent.parent.joinpath("seeds-0-1.json").unlink()
    (study / "results" / "studies" / "grid" / "study.json").unlink()
    done = run_snakemake(study, "--cores", "2")
    assert done.returncode != 0
    assert re.search(r"predictions\.npz does not match its checksum in .*seed1/run\.json", done.stdout + done.stderr)
    assert "'fglbench verify --repair' finds and removes" in done.stdout + done.stderr
