"""What a stage reads is what was written: a file that was altered stops it, by name and with the remedy."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fglbench.config.expand import Expansion, expand
from fglbench.config.schema import Study
from fglbench.errors import StorageError
from fglbench.records.checksums import check_file, check_listed, check_made
from fglbench.records.federation import FEDERATION
from fglbench.records.graph import load_graph
from fglbench.records.study import read_study
from fglbench.stages.collect import collect
from fglbench.stages.download import download
from fglbench.stages.evaluate import evaluate
from fglbench.stages.job import finish, list_checksums
from fglbench.stages.preprocess import load_federation, preprocess
from fglbench.stages.split import split
from fglbench.stages.train import train_seeds
from fglbench.stages.verify import find_damage
from fglbench.storage import hash_file, read_json, read_npz, write_json, write_npz
from fglbench.workflow.single import run_cell

CELL: dict[str, Any] = {
    "datasets": ["karate"],
    "partitions": ["random"],
    "clients": [2],
    "methods": ["fedavg"],
    "seeds": [0],
    "training": {"rounds": 2, "local_epochs": 1, "hidden": 4},
}


class Results:
    """The stages of one cell, as the workflow runs them."""

    def __init__(self, root: Path):
        self.root = root
        self.expansion: Expansion = expand(Study.model_validate(CELL))
        (self.cell,) = self.expansion.cells

    def folder(self, stage: str) -> Path:
        return self.root / (f"download/{self.cell.dataset.slug}" if stage == "download" else self.cell.folder(stage))

    def run(self, stage: str) -> None:
        folders = {name: self.folder(name).parent for name in ("split", "preprocess", "train", "evaluate")}
        graph, made = self.folder("download"), folders.get(stage)
        names = {"split": "card.json", "preprocess": FEDERATION, "train": "run.json", "evaluate": "metrics.json"}
        if stage == "download":
            download(self.cell.dataset.spec, graph)
        elif stage == "split":
            split(graph, self.cell.partition.spec, [0], folders["split"])
        elif stage == "preprocess":
            preprocess(graph, folders["split"], self.cell.preprocessed.spec, [0], folders["preprocess"])
        elif stage == "train":
            train_seeds(
                graph, folders["preprocess"], self.cell.specs, {0: self.cell.id}, folders["train"], device="cpu"
            )
        elif stage == "evaluate":
            evaluate(folders["train"], folders["split"], graph, [0], folders["evaluate"])
        else:
            collect(self.expansion, "mine", self.root, self.root / "studies" / "mine")
        if made:
            finish(made / "seeds-0.json", [made / "seed0" / names[stage]])


STAGES = ("download", "split", "preprocess", "train", "evaluate", "collect")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Results(tmp_path_factory.mktemp("finished") / "results")
    for stage in STAGES[:-1]:
        made.run(stage)
    return made.root


@pytest.fixture
def results(finished: Path, tmp_path: Path) -> Results:
    shutil.copytree(finished, tmp_path / "results")
    return Results(tmp_path / "results")


def alter_arrays(path: Path, name: str) -> None:
    """Another value in the first entry of an array, all else as it was, the time stamp too."""
    before, arrays = path.stat(), read_npz(path)
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] = 1 - arrays[name].flat[0]
    write_npz(path, arrays)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def alter_text(path: Path, name: str) -> None:
    before, found = path.stat(), json.loads(path.read_text())
    write_json(path, found | {name: "altered"})
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("stage", "of", "file", "alter", "name"),
    [
        ("split", "download", "graph.npz", alter_arrays, "labels"),
        ("preprocess", "download", "graph.npz", alter_arrays, "labels"),
        ("preprocess", "split", "split.npz", alter_arrays, "role"),
        ("preprocess", "split", "card.json", alter_text, "test"),
        ("train", "download", "graph.npz", alter_arrays, "labels"),
        ("train", "preprocess", "federation.npz", alter_arrays, "labels"),
        ("evaluate", "download", "graph.npz", alter_arrays, "labels"),
        ("evaluate", "split", "split.npz", alter_arrays, "role"),
        ("evaluate", "train", "predictions.npz", alter_arrays, "val"),
        ("evaluate", "train", "run.json", alter_text, "bytes_up"),
        ("collect", "evaluate", "metrics.json", alter_text, "bytes_up"),
        ("collect", "train", "run.json", alter_text, "train_seconds"),
        ("collect", "train", "history.npz", alter_arrays, "test_correct"),
        ("collect", "split", "card.json", alter_text, "test"),
    ],
)
def test_a_stage_stops_at_an_altered_file_of_another(
    results: Results, stage: str, of: str, file: str, alter: Callable[[Path, str], None], name: str
) -> None:
    for later in STAGES[STAGES.index(stage) : -1]:
        for path in results.folder(later).glob("[!.]*"):
            path.unlink()
    path = results.folder(of) / file
    expected = "" if file == FEDERATION else hash_file(path)  # a federation holds a checksum of its content
    alter(path, name)
    with pytest.raises(StorageError) as caught:
        results.run(stage)
    said = str(caught.value)
    assert f"{path} does not match its checksum in " in said
    assert f"(expected {expected}" in said
    assert "'fglbench verify --repair'" in said
    assert not list(results.folder(stage).glob("[!.]*"))


def test_graphs_and_federations_of_older_versions_are_checked_by_what_they_have(results: Results) -> None:
    """A card without a checksum of the file, and a federation without one of its content."""
    card = results.folder("download") / "graph.json"
    write_json(card, {name: value for name, value in read_json(card).items() if name != "sha256"})
    prepared = results.folder("preprocess") / FEDERATION
    write_npz(prepared, read_npz(prepared, skipped=("content", "graph")))
    finish(prepared.parents[1] / "seeds-0.json", [prepared])
    record = (results.folder("train") / "run.json").read_bytes()
    for stage in STAGES:
        results.run(stage)
    load_federation(results.folder("download"), prepared.parent, results.cell.preprocessed.spec)
    assert (results.folder("train") / "run.json").read_bytes() == record  # nothing was trained again

    alter_arrays(prepared, "labels")
    with pytest.raises(StorageError, match=r"federation\.npz does not match its checksum in .*seeds-0\.json"):
        load_federation(results.folder("download"), prepared.parent, results.cell.preprocessed.spec)
    alter_arrays(card.with_name("graph.npz"), "labels")
    with pytest.raises(StorageError, match=r"graph\.npz does not match its checksum in .*graph\.json"):
        load_graph(card.parent)


def test_an_altered_federation_is_made_again_by_its_own_stage(results: Results) -> None:
    path = results.folder("preprocess") / FEDERATION
    right = path.read_bytes()
    alter_arrays(path, "labels")
    path.parents[1].joinpath("seeds-0.json").unlink()  # `fglbench train` writes none
    assert [(damage.path, damage.reason) for damage in find_damage(results.root)] == [
        (path, "does not match its checksum")
    ]
    results.run("preprocess")
    assert path.read_bytes() == right


def test_a_cell_trained_again_by_itself_agrees_with_the_lists_of_the_workflow(results: Results) -> None:
    run_cell(CELL, results.root, force=True)
    results.run("collect")
    alter_text(results.folder("train") / "run.json", "host")
    with pytest.raises(StorageError, match=r"run\.json does not match"):
        run_cell(CELL, results.root)


def test_a_file_in_several_lists_may_be_what_any_of_them_says(tmp_path: Path) -> None:
    path = tmp_path / "seed3" / "run.json"
    write_json(path, {"tried": 1})
    check_listed(path)  # `fglbench train` lists nothing
    finish(tmp_path / "seeds-0-4.json", [path])
    write_json(path, {"tried": 2})
    with pytest.raises(StorageError):
        check_listed(path)
    finish(tmp_path / "seeds-3.json", [path])
    check_listed(path)


def test_a_file_is_read_once_while_it_stays_as_it_is(tmp_path: Path) -> None:
    read: list[Path] = []

    def digest(path: Path) -> str:
        read.append(path)
        return hash_file(path)

    path = tmp_path / "a"
    path.write_bytes(b"one")
    for _ in range(3):
        check_file(path, hash_file(path), tmp_path / "record", digest)
    assert read == [path]
    state = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(StorageError, match=r"a does not match its checksum in .*record"):
        check_file(path, "one", tmp_path / "record", digest)
    path.unlink()
    with pytest.raises(StorageError, match="a cannot be read"):
        check_file(path, "one", tmp_path / "record", digest)


def test_collected_records_tables_and_figures_are_checked_where_a_list_names_them(results: Results) -> None:
    results.run("collect")
    folder = results.root / "studies" / "mine"
    assert read_study(folder).settings["versions"]["mode"] == "deterministic"
    list_checksums(results.root / "checksums/studies/mine.json", [str(path) for path in folder.iterdir()])
    read_study(folder)
    alter_text(folder / "study.json", "title")
    with pytest.raises(
        StorageError, match=r"study\.json does not match its checksum in .*checksums/studies/mine\.json"
    ):
        read_study(folder)
    table = results.root / "tables" / "mine" / "accuracy.html"
    table.parent.mkdir(parents=True)
    table.write_text("79.4")
    list_checksums(results.root / "checksums/tables/mine.json", [str(table)])
    check_made(table)
    table.write_text("80.4")
    with pytest.raises(StorageError, match=r"accuracy\.html does not match"):
        check_made(table)
