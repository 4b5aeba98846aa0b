"""The workflow as users run it: from a configuration to tables, figures, report and tracking."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import yaml
from disks import make_read_only

from fglbench.cli import main
from fglbench.commands.new import write_component
from fglbench.datasets import catalogue

from .conftest import ROOT, job_counts, moved, run_snakemake, write_config


def test_a_study_ends_in_tables_figures_report_and_tracking(finished: Path):
    results = finished / "results"
    for name in ("tables/grid/accuracy.csv", "tables/grid/accuracy.md", "tables/grid/accuracy.tex",
                 "tables/grid/accuracy.html", "figures/grid/label-heatmap.png", "figures/grid/label-heatmap.pdf",
                 "report/grid.html", "tracking/grid.json"):  # fmt: skip
        assert (results / name).stat().st_size > 0, name
    runs = pd.read_parquet(results / "studies" / "grid" / "runs.parquet")
    assert set(runs["outcome"]) == {"ok"}
    cells = runs.groupby(["dataset", "scheme", "clients", "label", "seed"]).size()
    assert len(cells) == 2 * 1 * 4 * 2
    assert runs.loc[runs["label"] == "global", "cell"].nunique() == 2
    scores = runs[(runs["metric"] == "accuracy") & (runs["split"] == "test")]
    assert scores["value"].between(0, 1).all()


def test_the_printed_table_holds_the_means_of_the_metrics_files(finished: Path):
    expected = {}
    for path in (finished / "results" / "evaluate").glob("karate/random-k3-*/fedavg-gcn-*/seed*/metrics.json"):
        metrics = json.loads(path.read_text())
        expected[path.parent.name] = metrics["readings"]["val"]["test"]["accuracy"]["pooled"]
    assert len(expected) == 2
    mean = 100 * sum(expected.values()) / 2
    table = (finished / "results" / "tables" / "grid" / "accuracy.md").read_text()
    assert f"{mean:.1f}" in table


def test_a_second_run_has_nothing_to_do(finished: Path):
    again = run_snakemake(finished, "--cores", "2")
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr


def test_named_targets_are_complete_after_a_full_run(finished: Path):
    again = run_snakemake(finished, "-n", "data", "train", "tables", "figures", "report", "grid")
    assert again.returncode == 0
    assert "Nothing to be done" in again.stdout + again.stderr


def test_another_mirror_or_folder_of_components_makes_nothing_anew(finished: Path, tmp_path: Path):
    folder = moved(finished, tmp_path / "study")
    for name in ("mirror", "own"):
        (folder / name).mkdir()
    write_config(folder, data={"mirror": "mirror"}, components=["own"])
    assert "Nothing to be done" in run_snakemake(folder, "-n").stdout


def test_a_changed_method_repeats_itself_alone(finished: Path, tmp_path: Path):
    shutil.copytree(finished, tmp_path / "study")
    folder = tmp_path / "study"
    write_config(folder, methods=["global", "local", "fedavg", {"name": "fedprox", "mu": 0.1}])
    counts = job_counts(run_snakemake(folder, "-n").stdout)
    assert counts["train_cell"] == 2
    assert counts["evaluate_cell"] == 2
    assert "split_dataset" not in counts
    assert "preprocess_partition" not in counts


def test_more_seeds_keep_the_finished_ones(finished: Path, tmp_path: Path):
    folder = tmp_path / "study"
    shutil.copytree(finished, folder)
    before = {path: path.read_bytes() for path in (folder / "results" / "train").rglob("run.json")}
    write_config(folder, seeds=3, methods=["fedavg"], datasets=["karate"], partitions=["random"])
    done = run_snakemake(folder, "--cores", "2", "train")
    assert done.returncode == 0, done.stdout + done.stderr
    after = {path: path.read_bytes() for path in (folder / "results" / "train").rglob("run.json")}
    assert all(after[path] == content for path, content in before.items())
    assert len(after) == len(before) + 1


def test_archived_records_take_the_place_of_runs(finished: Path, tmp_path: Path):
    archived = tmp_path / "published"
    assert main(["archive", "grid", "--results", str(finished / "results"), "--to", str(archived)]) == 0
    write_config(tmp_path, published="all", methods=["global", "local", "fedavg", "fedper", "fedprox"])
    done = run_snakemake(tmp_path, "--cores", "2", "tables", FGLBENCH_PUBLISHED=str(archived))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.parent.name.split("-")[0] for path in (tmp_path / "results" / "train").rglob("seed0")} == {"fedprox"}
    ours, theirs = (
        pd.read_csv(folder / "results" / "tables" / "grid" / "accuracy.csv") for folder in (tmp_path, finished)
    )
    pd.testing.assert_frame_equal(ours[ours["label"] != "fedprox"].reset_index(drop=True), theirs)
    partitions = pd.read_parquet(tmp_path / "results" / "studies" / "grid" / "partitions.parquet")
    assert set(partitions["scheme"]) == {"louvain", "random"}
    study = json.loads((tmp_path / "results" / "studies" / "grid" / "study.json").read_text())
    assert (study["name"], study["published"]) == ("grid", 4 * study["cells"] // 5)
    assert "Nothing to be done" in run_snakemake(tmp_path, "-n", "tables", FGLBENCH_PUBLISHED=str(archived)).stdout
    runs = archived / "grid" / "runs.parquet"
    pd.read_parquet(runs).assign(value=0.25).to_parquet(runs)
    again = run_snakemake(tmp_path, "-n", "tables", FGLBENCH_PUBLISHED=str(archived))
    assert "collect_study" in again.stdout and "train_cell" not in again.stdout


def test_a_study_on_the_command_line_is_the_one_that_is_told_of_and_tracked(tmp_path: Path):
    write_config(tmp_path, datasets=["karate", "cora"], data={"mirror": "."})
    done = run_snakemake(tmp_path, "--cores", "2", "fedgta-gcn")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fedgta-gcn: 100 ok" in done.stdout
    (made,) = (
        line
        for line in run_snakemake(tmp_path, "--detailed-summary", "fedgta-gcn").stdout.splitlines()
        if line.startswith("results/tables/fedgta-gcn/table3-compared.csv")
    )
    assert "reference/fedgta.csv" in made  # an input: corrected numbers make the tables anew
    assert "Report: " in done.stdout
    assert "not run: cora" not in done.stdout + done.stderr  # of the configuration, which nobody asked for
    assert not (tmp_path / "results" / "studies" / "grid").exists()
    assert json.loads((tmp_path / "results" / "tracking" / "fedgta-gcn.json").read_text())["imported"] == 100


def test_only_what_is_finished_is_shown(finished: Path, tmp_path: Path):
    shutil.copytree(finished / "results", tmp_path / "results", ignore=shutil.ignore_patterns("tables", "studies"))
    runs = sorted((tmp_path / "results" / "train").rglob("run.json"))
    methods = ["global", "local", "fedavg", "fedper", "fedprox"]
    write_config(tmp_path, methods=methods, only_finished=True)
    done = run_snakemake(tmp_path, "--cores", "2", "tables")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted((tmp_path / "results" / "train").rglob("run.json")) == runs
    assert "without only_finished=true to train" in done.stdout and "missing files" not in done.stdout
    rows = pd.read_parquet(tmp_path / "results" / "studies" / "grid" / "runs.parquet")
    assert set(rows.loc[rows["label"] == "fedprox", "outcome"]) == {"not_run"}
    assert set(rows.loc[rows["label"] == "fedprox", "reason"]) == {"not finished"}
    assert set(rows.loc[rows["label"] != "fedprox", "outcome"]) == {"ok"}


def test_two_runs_give_the_same_bytes_in_metrics(finished: Path, tmp_path: Path):
    write_config(tmp_path, datasets=["karate"], methods=["fedavg"], partitions=["louvain"])
    done = run_snakemake(tmp_path, "--cores", "2", "results/studies/grid/study.json", PYTHONHASHSEED="77")
    assert done.returncode == 0, done.stdout + done.stderr
    files = sorted((tmp_path / "results" / "evaluate").rglob("metrics.json"))
    assert len(files) == 2
    for path in files:
        assert path.read_bytes() == (finished / path.relative_to(tmp_path)).read_bytes()


def test_the_documented_configuration_plans_the_expected_jobs(tmp_path: Path):
    for name in ("cora", "citeseer"):
        for path in catalogue.get(name).raw_files:
            (tmp_path / "mirror" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "mirror" / path).touch()
    (tmp_path / "my.yaml").write_text(
        """
datasets: [cora, citeseer]
partitions: [louvain, metis]
clients: [5, 10]
methods: [global, local, fedavg, fedprox]
backbones: [gcn]
seeds: 3
training: {rounds: 100, local_epochs: 3, hidden: 64, lr: 0.01, weight_decay: 0.0005, dropout: 0.5}
data: {mirror: mirror}
"""
    )
    planned = run_snakemake(tmp_path, "-n")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    counts = job_counts(planned.stdout)
    assert counts["download_dataset"] == 2
    assert counts["split_dataset"] == counts["preprocess_partition"] == 2 * (2 * 2 + 1)
    assert counts["train_cell"] == counts["evaluate_cell"] == 2 * (2 * 2 * 3 + 1)


def test_a_bad_configuration_stops_before_any_job(tmp_path: Path):
    write_config(tmp_path, methods=["fedavgg", "local"], clients=[0])
    done = run_snakemake(tmp_path, "--cores", "1")
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "'fedavgg' is not a method. Did you mean 'fedavg'?" in output
    assert "a federation has at least 1 client" in output
    assert "Traceback" not in output
    assert not (tmp_path / "results").exists()


def test_a_bad_value_of_the_command_line_is_said_to_be_there(tmp_path: Path):
    write_config(tmp_path)
    done = run_snakemake(tmp_path, "-n", "--config", "device=gpu", "training={lr_rate: 0.1}")
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "--config: device: 'gpu' is not valid. Did you mean 'cuda'?" in output
    assert "--config: training.lr_rate: unknown key. Did you mean 'lr'?" in output


def test_only_what_the_command_line_gives_is_read_as_yaml_again(tmp_path: Path):
    """Quoted text of a file stays text; entries of lists and mappings after `--config`, which come as text, do not."""
    table = {"name": "t", "title": "5", "reference": {"table": "3"}}
    write_config(tmp_path, title="2", reference="fedgta", tables=[table])
    text = (tmp_path / "my.yaml").read_text()
    assert "title: '2'" in text and "title: '5'" in text and "table: '3'" in text
    planned = run_snakemake(tmp_path, "-n")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    planned = run_snakemake(tmp_path, "-n", "--config", "clients=[2]", "training={lr: 0.5, rounds: 7}")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "random-k2-" in planned.stdout and "random-k3-" not in planned.stdout


def test_an_own_method_scheme_and_dataset_from_a_folder_run_in_the_workflow(tmp_path: Path):
    folder = tmp_path / "mine"
    write_component("dataset", "rings", folder)
    (folder / "partition" / "schemes").mkdir(parents=True)
    scheme = (ROOT / "src" / "fglbench" / "partition" / "schemes" / "random.py").read_text()
    (folder / "partition" / "schemes" / "dice.py").write_text(scheme)
    source = (ROOT / "src" / "fglbench" / "methods" / "fedavg.py").read_text()
    (folder / "copycat.py").write_text(source)
    write_config(
        tmp_path,
        datasets=["karate", "rings"],
        partitions=["dice"],
        methods=["fedavg", "copycat"],
        components=["mine"],
        seeds=1,
    )
    done = run_snakemake(tmp_path, "--cores", "2", "tables")
    assert done.returncode == 0, done.stdout + done.stderr
    runs = pd.read_parquet(tmp_path / "results" / "studies" / "grid" / "runs.parquet")
    shown = runs[(runs["metric"] == "accuracy") & (runs["reading"] == "val")]
    values = {label: part["value"].tolist() for label, part in shown.groupby("label")}
    assert values["copycat"] == values["fedavg"]
    assert set(shown["dataset"]) == {"karate", "rings"}


def test_parsing_imports_neither_torch_nor_mlflow(tmp_path: Path):
    write_config(tmp_path)
    planned = run_snakemake(tmp_path, "-n", "--quiet", PYTHONPROFILEIMPORTTIME="1")
    assert planned.returncode == 0
    imported = set(re.findall(r"\| +([\w.]+)$", planned.stderr, flags=re.M))
    assert "fglbench.workflow.plan" in imported
    assert not {"torch", "mlflow", "torch_geometric", "matplotlib"} & imported


def test_every_rule_has_what_a_cluster_needs():
    listed = subprocess.run(
        [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--list-rules"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert {"data", "train", "tables", "figures", "report", "grid", "train_cell"} <= set(listed)
    for path in (ROOT / "workflow" / "rules").glob("*.smk"):
        for rule in re.split(r"^ *rule ?\w*:$", path.read_text(), flags=re.M)[1:]:
            if "script:" not in rule:
                continue
            for directive in (
                "output:",
                "log:",
                "benchmark:",
                "threads:",
                "resources:",
                "mem_mb=",
                "runtime=",
                "conda:",
            ):
                assert directive in rule, (path.name, directive)


def test_shipped_configuration_is_what_the_schema_describes():
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    from fglbench.config.schema import Config

    assert set(config) <= set(Config.model_fields)


def test_a_results_folder_that_cannot_be_written_is_found_before_any_job(tmp_path: Path, disk: Path):
    write_config(tmp_path)
    (tmp_path / "results").symlink_to(disk)
    make_read_only(disk)
    done = run_snakemake(tmp_path, "--cores", "1")
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "results cannot be written: Read-only file system. Make the folder writable" in output
    assert "Finished jobid" not in output
    assert "Traceback" not in output
    assert run_snakemake(tmp_path, "-n").returncode == 0


def test_searches_are_jobs_and_their_settings_come_in_one_file(tmp_path: Path):
    lists = {"methods": ["fedprox"], "settings": {"mu": [0.001, 0.1]}}
    tune = {"seeds": [50], "partition": "random", "clients": 3, "trials": 4, "searches": [lists]}
    write_config(tmp_path, datasets=["karate"], methods=["local", "fedprox"], tune=tune)
    done = run_snakemake(tmp_path, "--cores", "2", "tune")
    assert done.returncode == 0, done.stdout + done.stderr
    found = yaml.safe_load((tmp_path / "results" / "tune" / "grid.yaml").read_text())
    (override,) = found["overrides"]
    assert override["methods"] == ["fedprox"] and override["settings"]["mu"] in (0.001, 0.1)
    assert [record["trials"] for record in found["searches"]] == [{"complete": 2}]
    assert "Nothing to be done" in run_snakemake(tmp_path, "-n", "tune").stdout


def test_a_terminal_that_cannot_show_a_sign_is_no_failure(finished: Path, tmp_path: Path):
    folder = tmp_path / "study"
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "results" / "report")
    done = run_snakemake(folder, "--cores", "2", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\| fedavg +\| +\d+\.\d \? \d+\.\d \|", done.stdout), done.stdout
    assert (folder / "results" / "report" / "grid.html").exists()
