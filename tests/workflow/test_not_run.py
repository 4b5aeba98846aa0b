"""What cannot be had or made leaves the rest of a study alone."""

import json
from pathlib import Path

import pandas as pd
import pytest

from fglbench.datasets import catalogue

from .conftest import run_snakemake, write_config

IMPOSSIBLE = {"name": "dirichlet", "alpha": 0.001, "tries": 2, "label": "skewed"}


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A study whose mirror lacks one dataset and one of whose partitions cannot be made, and what was printed."""
    folder = tmp_path_factory.mktemp("partial")
    (folder / "mirror").mkdir()
    write_config(
        folder,
        datasets=["karate", "cora"],
        partitions=["random", IMPOSSIBLE],
        clients=[12],
        methods=["fedavg"],
        data={"mirror": "mirror"},
        tracking={"enabled": False},
    )
    done = run_snakemake(folder, "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


def test_cells_without_data_or_partition_are_shown_as_not_run_and_the_others_run(partial: tuple[Path, str]):
    results = partial[0] / "results"
    runs = pd.read_parquet(results / "studies" / "grid" / "runs.parquet")
    outcomes = runs.groupby(["dataset", "scheme"])["outcome"].unique().map(list).to_dict()
    assert outcomes == {
        ("karate", "random"): ["ok"],
        ("karate", "skewed"): ["not_run"],
        ("cora", "random"): ["not_run"],
        ("cora", "skewed"): ["not_run"],
    }
    reasons = {key: set(rows["reason"]) for key, rows in runs.groupby(["dataset", "scheme"])}
    assert reasons["cora", "random"] == {"the mirror mirror lacks Planetoid/Cora/raw/ind.cora.allx and 7 more"}
    assert all("none of 2 draws gave every client" in reason for reason in reasons["karate", "skewed"])
    for name in ("tables/grid/accuracy.md", "figures/grid/label-heatmap.png", "report/grid.html"):
        assert (results / name).stat().st_size > 0, name
    assert "the mirror mirror lacks" in (results / "tables" / "grid" / "accuracy.md").read_text()
    assert not (results / "download" / "cora").exists()


def test_the_terminal_says_what_was_not_run_why_and_what_helps(partial: tuple[Path, str]):
    output = partial[1]
    assert output.count("not run: cora: the mirror mirror lacks") == 1  # by the main process, by none of its jobs
    assert "not run: karate, dirichlet-k12-" in output
    assert "snakemake --forcerun split_dataset" in output
    assert "6 not_run, 2 ok" in output


def test_the_reason_is_passed_on_from_the_split_to_the_metrics(partial: tuple[Path, str]):
    results = partial[0] / "results"
    for stage in ("split", "preprocess", "train"):
        (marker,) = (results / stage).glob("karate/dirichlet-*/**/seeds-0-1.json")
        assert set(json.loads(marker.read_text())["not_run"]) == {"0", "1"}, stage
    metrics = sorted((results / "evaluate").glob("karate/dirichlet-*/*/seed*/metrics.json"))
    assert [json.loads(path.read_text())["outcome"]["state"] for path in metrics] == ["not_run", "not_run"]


def test_a_dataset_whose_files_appear_in_the_mirror_is_picked_up(partial: tuple[Path, str]):
    folder = partial[0]
    assert "Nothing to be done" in run_snakemake(folder, "-n").stdout
    for path in catalogue.get("cora").raw_files:
        (folder / "mirror" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mirror" / path).touch()
    planned = run_snakemake(folder, "-n")
    assert "download_dataset" in planned.stdout
    assert "collect_study" in planned.stdout


def test_a_job_downloads_nothing_either_where_it_is_forbidden(tmp_path: Path):
    """A data card whose graph is gone lets the plan count on the dataset."""
    write_config(tmp_path, datasets=["cora"], data={"download": False})
    (tmp_path / "results" / "download" / "cora").mkdir(parents=True)
    (tmp_path / "results" / "download" / "cora" / "graph.json").write_text("{}")
    done = run_snakemake(tmp_path, "--cores", "1", "train")
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "my.yaml: data.download: false, so dataset 'cora' is not downloaded" in output
    assert "Or allow it: data.download: true." in output
    assert "Traceback" not in output


def test_a_study_of_which_nothing_can_be_had_is_an_error_that_says_what_to_do(tmp_path: Path):
    write_config(tmp_path, datasets=["cora"], data={"download": False})
    done = run_snakemake(tmp_path, "-n")
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "study 'grid': none of its datasets is available on this machine" in output
    assert "cora: there is no mirror, and data.download is false" in output
    assert "choose datasets that need no files: breast-cancer, digits" in output
    assert "Traceback" not in output
