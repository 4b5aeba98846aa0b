"""The command line: what it prints, what it refuses and with which words, and what it does not import."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from synthetic_records import full_study, write_study

from fglbench.cli import main
from fglbench.commands import doctor, overrides
from fglbench.errors import ConfigError
from fglbench.runtime import child

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--dataset", "sbm", "--set", "dataset.nodes=200", "--set", "dataset.features=8", "--set", "dataset.classes=3"]
SMALL += ["--scheme", "random", "--clients", "3", "--rounds", "4", "--local-epochs", "1", "--hidden", "8"]
KEYS = {
    "test_accuracy_pooled",
    "test_accuracy_macro",
    "val_accuracy_pooled",
    "selected_round",
    "train_seconds",
    "eval_seconds",
    "total_seconds",
    "peak_memory_mb",
    "bytes_up",
    "bytes_down",
    "outcome",
    "cell",
    "folder",
}


def fglbench(*arguments: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command as a user runs it, with its output in pipes."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", "fglbench", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def last_line(text: str) -> dict[str, Any]:
    return json.loads(text.splitlines()[-1])


def test_list_names_everything_and_imports_no_heavy_library(tmp_path: Path) -> None:
    script = "import sys; from fglbench.cli import main; main(['list']); print(sorted(sys.modules), file=sys.stderr)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    heavy = {"torch", "torch_geometric", "mlflow", "pandas", "scipy", "sklearn", "matplotlib", "snakemake"}
    assert not [name for name in heavy if f"'{name}'" in done.stderr]
    for name in ("cora", "fedavg", "gcn", "louvain", "grid"):
        assert f"\n  {name} " in done.stdout
    assert "\n  whole " not in done.stdout


@pytest.mark.parametrize("kind", ["methods", "method"])
def test_list_of_one_kind_shows_settings_on_request(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", kind]) == 0
    short = capsys.readouterr().out
    assert re.search(r"\n  fedprox +FedProx \(Li et al\.", short)
    assert "mu" not in short and "cora" not in short
    assert main(["list", kind, "--settings"]) == 0
    assert re.search(r"\n +mu +0.01 +float >= 0 +Weight of the proximal term.", capsys.readouterr().out)


def test_describe_a_component(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "gcn"]) == 0
    said = capsys.readouterr().out
    assert "Kipf and Welling" in said and "between the layers" in said
    assert re.search(r"\n  dropout +0\.5 +float >= 0, < 1 +Rate between the layers\.\n", said)


def test_describe_a_dataset_keeps_it_where_the_workflow_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    assert main(["describe", "karate", "--results", str(results)]) == 0
    said = capsys.readouterr().out
    assert "Karate Club (karate)" in said and "78 undirected" in said
    assert (results / "download" / "karate" / "graph.npz").exists()
    assert main(["describe", "sbm", "--set", "nodes=300", "--set", "features=4", "--results", str(results)]) == 0
    assert "nodes=300" in capsys.readouterr().out


def refuse_to_fetch(*_: Any) -> None:
    raise OSError("no network in tests")


def test_describe_says_what_the_catalogue_knows_without_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fglbench.stages.download.fetch", refuse_to_fetch)
    monkeypatch.delenv("FGLBENCH_MIRROR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["describe", "products"]) == 0
    said = capsys.readouterr().out
    for row in (
        "source +Open Graph Benchmark",
        "citation +Hu, Fey",
        "license +Amazon",
        "files +ogbn_products/raw/edge",
    ):
        assert re.search(f"^{row}", said, re.MULTILINE), row
    assert "about 1,500 MB, in an archive of 1,500 MB" in said
    assert (
        "the dataset is not in results/download/products, and there is no mirror. --download fetches the data." in said
    )
    assert not (tmp_path / "results").exists()
    assert main(["describe", "products", "--mirror", str(tmp_path)]) == 0
    assert f"the mirror {tmp_path} lacks ogbn_products/raw/edge.csv.gz and 5 more." in capsys.readouterr().out


def test_describe_downloads_only_when_told_to_and_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fglbench.stages.download.fetch", refuse_to_fetch)
    monkeypatch.delenv("FGLBENCH_MIRROR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["describe", "cora", "--download"]) == 1
    assert "'cora' could not be downloaded (no network in tests)" in capsys.readouterr().err
    (tmp_path / "config.yaml").write_text("data: {download: false}\n")
    assert main(["describe", "cora", "--download"]) == 1
    captured = capsys.readouterr()
    assert "config.yaml: data.download: false, so dataset 'cora' is not downloaded" in captured.err
    assert "Planetoid" in captured.out


def test_describe_has_the_numbers_of_what_is_in_the_mirror(
    tmp_path: Path, mirror: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", "cora", "--mirror", str(mirror), "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "edge homophily         0.8100" in said
    assert said.count("Planetoid (") == 1
    # Stored now, so the mirror is not needed any more.
    assert main(["describe", "cora", "--mirror", str(tmp_path), "--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out == said


def test_describe_leaves_a_stored_graph_that_it_cannot_make_anew(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FGLBENCH_MIRROR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["describe", "cora", "--mirror", str(mirror), "--results", "results"]) == 0
    card = tmp_path / "results" / "download" / "cora" / "graph.json"
    older = card.read_text().replace('"version": ', '"version": 9')
    card.write_text(older)
    capsys.readouterr()
    assert main(["describe", "cora"]) == 0
    assert "the files in results/download/cora are damaged or of another version" in capsys.readouterr().out
    assert card.read_text() == older and card.with_name("graph.npz").exists()


@pytest.mark.parametrize("option", [["--set", "dropout=0.1"], ["--download"]])
def test_describe_refuses_options_of_datasets_for_a_component(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", "gcn", *option]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{' '.join(option)}: this option is only for datasets, and 'gcn' is a backbone." in captured.err


def test_an_unknown_name_is_answered_with_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "fedporx"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "fglbench describe: 'fedporx' is not a dataset, method, backbone, task, scheme or sampler." in captured.err
    assert "Did you mean 'fedprox'?" in captured.err


def test_train_prints_json_last_and_no_bar_in_a_pipe_and_keeps_the_cell(tmp_path: Path) -> None:
    done = fglbench("train", *SMALL, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\r" not in done.stdout and "%|" not in done.stdout
    scores = last_line(done.stdout)
    assert scores.keys() >= KEYS
    assert scores["outcome"] == "ok"
    assert 0 <= scores["test_accuracy_pooled"] <= 1
    assert scores["total_seconds"] > scores["train_seconds"] + scores["eval_seconds"] > 0
    assert scores["bytes_up"] == scores["bytes_down"] > 0
    last = scores["selected_round"] + 1  # people count from 1
    assert f"ok, round {last} selected, trained in" in done.stdout
    assert f" pooled, round {last} of 4 selected\n" in done.stdout
    folder = tmp_path / scores["folder"]
    assert {path.name for path in folder.iterdir()} == {
        "checkpoint.safetensors",
        "history.npz",
        "predictions.npz",
        "run.json",
    }
    written = (folder / "run.json").stat().st_mtime_ns
    again = fglbench("train", *SMALL, "--json", folder=tmp_path)
    assert "kept (--force trains again)" in again.stdout
    assert last_line(again.stdout)["train_seconds"] == scores["train_seconds"]
    assert (folder / "run.json").stat().st_mtime_ns == written
    forced = fglbench("train", *SMALL, "--force", "--json", folder=tmp_path)
    assert (folder / "run.json").stat().st_mtime_ns > written
    same = ("test_accuracy_pooled", "val_accuracy_pooled", "selected_round", "cell")
    assert [last_line(forced.stdout)[key] for key in same] == [scores[key] for key in same]


def test_train_draws_a_bar_on_a_terminal(tmp_path: Path) -> None:
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    terminal, inside = pty.openpty()
    termios.tcsetwinsize(inside, (24, 120))  # a bar needs a width
    os.set_blocking(terminal, False)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fglbench", "train", *SMALL, "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=inside, text=True, check=False)
    shown = os.read(terminal, 100_000).decode()  # before the last writer closes, which discards what is unread
    os.close(inside)
    os.close(terminal)
    assert done.returncode == 0
    assert "4/4" in shown and "loss=" in shown and "val=" in shown
    assert last_line(done.stdout)["outcome"] == "ok"


def test_train_with_a_bad_outcome_prints_json_and_fails(tmp_path: Path) -> None:
    done = fglbench("train", *SMALL, "--lr", "1e12", "--optimiser", "sgd", "--json", folder=tmp_path)
    assert done.returncode == 1
    scores = last_line(done.stdout)
    assert scores["outcome"] == "diverged"
    assert scores["test_accuracy_pooled"] is None
    assert "Traceback" not in done.stderr


def test_train_uses_the_cells_of_the_workflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fglbench.config.expand import expand
    from fglbench.config.load import load_config

    assert main(["train", *SMALL, "--set", "mu=1e-3", "--method", "fedprox", "--results", str(tmp_path), "--json"]) == 0
    grid = load_config(
        {
            "datasets": [{"name": "sbm", "nodes": 200, "features": 8, "classes": 3}],
            "partitions": ["random"],
            "clients": [3],
            "methods": [{"name": "fedprox", "mu": 0.001}],
            "seeds": 1,
            "training": {"rounds": 4, "local_epochs": 1, "hidden": 8},
        }
    )
    (cell,) = expand(grid).cells
    scores = last_line(capsys.readouterr().out)
    assert scores["cell"] == cell.id
    assert Path(scores["folder"]) == tmp_path / cell.folder("train")


@pytest.mark.parametrize(
    ("assignment", "where", "value"),
    [
        ("mu=1e-3", ("methods", 0, "mu"), 0.001),
        ("depth=3", ("backbones", 0, "depth"), 3),
        ("lr=0.1", ("training", "lr"), 0.1),
        ("backbone.dropout=0", ("backbones", 0, "dropout"), 0),
        ("training.participation=0.5", ("training", "participation"), 0.5),
        ("dataset.nodes=1000000", ("datasets", 0, "nodes"), 1_000_000),
        ("scheme.alpha=0.1", ("partitions", 0, "alpha"), 0.1),
        ("protocol.split.train=0.6", ("protocol", "split", "train"), 0.6),
        ("protocol.reading=last", ("protocol", "reading"), "last"),
        ("protocol.task=feature_reconstruction", ("protocol", "task"), "feature_reconstruction"),
    ],
)
def test_set_finds_the_section_of_a_key(assignment: str, where: tuple[Any, ...], value: Any) -> None:
    values: Any = {
        "datasets": [{"name": "sbm"}],
        "partitions": [{"name": "dirichlet"}],
        "methods": [{"name": "fedprox"}],
        "backbones": [{"name": "gcn"}],
        "training": {},
        "protocol": {},
    }
    overrides.apply([assignment], values)
    for key in where:
        values = values[key]
    assert values == value and type(values) is type(value)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["muu=1"], r"--set muu=1: 'muu' is not a setting here\. Did you mean 'mu'\?"),
        (["scheme.alfa=1"], r"'scheme\.alfa' is not a setting here\. Did you mean 'scheme\.alpha'\?"),
        (["dept=1", "protocol.split.trian=1"], r"2 problems.*\n.*'depth'\?.*\n.*'protocol\.split\.train'\?"),
        (["mu"], r"--set mu: write key=value"),
    ],
)
def test_an_unknown_key_is_answered_with_the_closest(assignments: list[str], message: str) -> None:
    values = {"datasets": [{"name": "sbm"}], "partitions": [{"name": "dirichlet"}]}
    values |= {"methods": [{"name": "fedprox"}], "backbones": [{"name": "gcn"}]}
    with pytest.raises(ConfigError, match=message):
        overrides.apply(assignments, values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "corra"], "Did you mean 'cora'?"),
        (["--dataset", "karate", "--method", "fedavgg"], "Did you mean 'fedavg'?"),
        (["--dataset", "karate", "--clients", "35"], "35 clients cannot share the 34 nodes of 'karate'"),
        (["--dataset", "karate", "--set", "protocol.split.train=0.9"], "it must be 1"),
        (["--dataset", "karate", "--mirror", "nowhere"], "'nowhere' is not a readable folder"),
    ],
)
def test_train_refuses_before_it_makes_anything(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments, "--results", str(tmp_path / "results")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_an_error_of_the_preparing_process_is_one_message(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    done = fglbench("train", "--dataset", "cora", "--mirror", str(mirror), folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("fglbench train: dataset 'cora': the mirror")
    assert "Traceback" not in done.stderr


def test_compare_prints_ours_beside_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(full_study(), tmp_path / "studies" / "small")
    assert main(["compare", "small", "--results", str(tmp_path)]) == 0
    by_name = capsys.readouterr().out
    assert "ours and printed" in by_name and "difference" in by_name and "match" in by_name
    assert main(["compare", str(tmp_path / "studies" / "small")]) == 0
    assert capsys.readouterr().out == by_name


def test_compare_of_an_unknown_study_names_those_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(full_study(), tmp_path / "studies" / "small")
    assert main(["compare", "smal", "--results", str(tmp_path)]) == 1
    assert "Did you mean 'small'?" in capsys.readouterr().err


def test_doctor_names_what_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FGLBENCH_MIRROR", raising=False)
    assert main(["doctor", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for name in ("python", "torch", "torch-geometric", "snakemake", "optuna", "pyyaml", "igraph", "cores", "memory"):
        assert f"OK       {name} " in said
    assert "torch-scatter" in said and "(not needed)" in said
    assert said.endswith("no problems\n")


def test_doctor_fails_where_something_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "needed", lambda: ["numpy", "no-such-package"])
    assert main(["doctor", "--results", str(tmp_path), "--mirror", str(tmp_path / "nowhere")]) == 1
    said = capsys.readouterr().out
    assert "PROBLEM  no-such-package" in said
    assert "PROBLEM  mirror" in said
    assert "2 problems: no-such-package, mirror" in said


def test_doctor_tries_what_the_commands_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    occupied = tmp_path / "a file"
    occupied.touch()
    monkeypatch.delenv("FGLBENCH_MIRROR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(occupied))
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))
    monkeypatch.setattr(child, "COMMAND", [sys.executable, "-c", "raise SystemExit(3)"])
    assert main(["doctor", "--results", str(occupied)]) == 1
    said = capsys.readouterr().out
    assert "4 problems: results, temporary, child process, cache" in said
    assert "name another folder in TMPDIR" in said and "name another folder in XDG_CACHE_HOME" in said
    assert re.search(r"PROBLEM +child process +ended with exit status 3\n", said)


def test_doctor_asks_for_what_the_package_requires_and_not_for_its_extras() -> None:
    needed = doctor.needed()
    assert {"filelock", "jinja2", "optuna", "pyyaml", "rapidfuzz", "rich", "tqdm"} <= set(needed)
    assert not {"pytest", "ruff", "snakemake-executor-plugin-slurm"} & set(needed)


def test_a_method_in_a_folder_of_the_users_own_is_trained(tmp_path):
    source = Path(__file__).parents[2] / "src" / "fglbench" / "methods" / "fedprox.py"
    (tmp_path / "mine" / "methods").mkdir(parents=True)
    (tmp_path / "mine" / "methods" / "nearby.py").write_text(source.read_text())
    command = [sys.executable, "-m", "fglbench", "train", "--dataset", "karate", "--clients", "2", "--rounds", "2"]
    command += ["--method", "nearby", "--set", "mu=0.5", "--components", str(tmp_path / "mine"), "--json"]
    command += ["--chunk-clients", "1"]
    done = subprocess.run(
        [*command, "--results", str(tmp_path / "results")], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["outcome"] == "ok"
    record = json.loads((Path(told["folder"]) / "run.json").read_text())
    assert (record["chunk_clients"], record["threads"]) == (1, 1)


def test_a_broken_file_of_a_user_is_named_and_the_rest_is_listed(tmp_path, capsys, own_components):
    (tmp_path / "broken.py").write_text("class Settings(:\n")
    (tmp_path / "unreadable.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.py").write_text("")
    assert main(["list", "--settings", "--components", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"cannot be used: {tmp_path}/broken.py:1: is not valid Python" in shown
    assert f"cannot be used: {tmp_path}/unreadable.py: cannot be read as Python" in shown
    assert f"cannot be used: {tmp_path}/empty.py declares no class 'Settings(ComponentSettings)'" in shown
    assert "fedavg" in shown
    assert "louvain" in shown


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--dataset", "karate", "--clients", "2", "--rounds", "1", "--results", "{file}/x"],
        ["tune", "fedgta-tuned", "--results", "{file}/x"],
        ["pack", "tiny", "--results", "{file.parent}/results", "--to", "{file}/x"],
    ],
)
def test_a_folder_that_cannot_be_written_is_named_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    record = tmp_path / "results" / "studies" / "tiny" / "study.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    assert main([word.format(file=file) for word in command]) == 1
    assert re.search(rf"fglbench {command[0]}: {file}/x\S* cannot be written: ", capsys.readouterr().err)
    assert file.read_text() == "precious"
