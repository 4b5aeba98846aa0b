"""A user's component file that changed without a new VERSION is not served from the old record unnoticed."""

import json
from pathlib import Path
from typing import Any

import pytest
from own_files import read_again

from fglbench import registry
from fglbench.cli import main
from fglbench.config.expand import expand
from fglbench.config.load import load_config
from fglbench.config.schema import Components, Study
from fglbench.errors import ConfigError
from fglbench.records.component_files import changes, own_files
from fglbench.records.run import RunRecord
from fglbench.storage import hash_file, read_json, write_json
from fglbench.workflow.single import run_cell

PACKAGE = Path(registry.__file__).parent
SHIPPED = {"method": "fedavg", "backbone": "gcn", "scheme": "random", "dataset": "karate"}
PLACES = {
    "method": ("methods/mine.py", "methods/fedavg.py"),
    "aggregation": ("methods/mine.py", "methods/fedavg.py"),
    "backbone": ("backbones/mine.py", "backbones/gcn.py"),
    "scheme": ("partition/schemes/mine.py", "partition/schemes/random.py"),
}
DATASET = """
import numpy as np
from fglbench.datasets.own import from_arrays

VERSION = 1
COUNTS = {"nodes": 12, "edges": 12, "features": 2, "classes": 2}

def load(folder):
    nodes = np.arange(12)
    features = np.stack([nodes % 2, FIRST + nodes / 12], axis=1)
    return from_arrays(np.stack([nodes, (nodes + 1) % 12]), features, nodes % 2)
"""

pytestmark = pytest.mark.usefixtures("own_components")


def own(folder: Path, kind: str) -> Path:
    """A user's component called "mine": the shipped one, or a small graph, in a file of its own."""
    place, source = PLACES.get(kind, ("datasets/mine.py", None))
    path = folder / place
    path.parent.mkdir(parents=True)
    path.write_text((PACKAGE / source).read_text() if source else DATASET.replace("FIRST", "0"))
    return path


def values(folder: Path, kind: str, trust: str = "again") -> dict[str, Any]:
    names: dict[str, Any] = {**SHIPPED, kind: "mine"}
    if kind == "aggregation":
        names["method"] = {"name": "fedgl", "aggregation": "mine"}
    return {
        "datasets": [names["dataset"]],
        "partitions": [names["scheme"]],
        "clients": [2],
        "methods": [names["method"]],
        "backbones": [names["backbone"]],
        "seeds": [0],
        "training": {"rounds": 2, "local_epochs": 1, "hidden": 4},
        "components": {"folders": [str(folder)], "trust": trust},
    }


def edit(path: Path) -> None:
    """Another content, and for a graph other features."""
    text = path.read_text()
    path.write_text(text.replace("0 + nodes", "1 + nodes") if "COUNTS" in text else text + "\n# another line\n")
    read_again()


@pytest.mark.parametrize("kind", [*PLACES, "dataset"])
def test_a_changed_file_means_trained_again_or_a_warning(tmp_path: Path, kind: str) -> None:
    path, results = own(tmp_path / "mine", kind), tmp_path / "results"
    first = run_cell(values(tmp_path / "mine", kind), results)
    record = Path(first["folder"]) / "run.json"
    name = f"{'method' if kind == 'aggregation' else kind} mine"
    old = hash_file(path)
    assert read_json(record)["component_files"] == {name: old}
    before = record.read_bytes()
    read_again()
    again = run_cell(values(tmp_path / "mine", kind), results)
    assert (again["kept"], again["differences"]) == (True, [])

    edit(path)
    warned = run_cell(values(tmp_path / "mine", kind, trust="warn"), results)
    assert (warned["kept"], record.read_bytes()) == (True, before)
    assert warned["differences"] == [
        f"{path} changed and its VERSION did not: SHA-256 {hash_file(path)[:12]}, recorded {old[:12]}"
    ]
    trained = run_cell(values(tmp_path / "mine", kind), results)
    assert (trained["kept"], trained["cell"]) == (False, first["cell"])
    assert read_json(record)["component_files"] == {name: hash_file(path)}
    assert run_cell(values(tmp_path / "mine", kind), results)["kept"]


def test_other_features_of_a_changed_dataset_reach_the_prepared_federation(tmp_path: Path) -> None:
    """Its split stays the same, of which the federation was known until now."""
    path, results = own(tmp_path / "mine", "dataset"), tmp_path / "results"
    run_cell(values(tmp_path / "mine", "dataset"), results)
    (prepared,) = results.glob("preprocess/*/*/*/seed0/federation.npz")
    (split,) = results.glob("split/*/*/seed0/split.npz")
    before = prepared.read_bytes(), split.read_bytes()
    edit(path)
    run_cell(values(tmp_path / "mine", "dataset"), results)
    assert split.read_bytes() == before[1]
    assert prepared.read_bytes() != before[0]


def test_a_scheme_of_the_user_is_on_the_card_of_its_split(tmp_path: Path) -> None:
    path = own(tmp_path / "mine", "scheme")
    run_cell(values(tmp_path / "mine", "scheme"), tmp_path / "results")
    (card,) = (tmp_path / "results").glob("split/*/*/seed0/card.json")
    assert read_json(card)["component_files"] == {"scheme mine": hash_file(path)}


def test_records_of_older_versions_are_kept(tmp_path: Path) -> None:
    path, results = own(tmp_path / "mine", "method"), tmp_path / "results"
    record = Path(run_cell(values(tmp_path / "mine", "method"), results)["folder"]) / "run.json"
    write_json(record, {name: value for name, value in read_json(record).items() if name != "component_files"})
    edit(path)
    assert run_cell(values(tmp_path / "mine", "method"), results)["kept"]


def test_shipped_components_have_no_hash() -> None:
    study = {"datasets": ["cora"], "partitions": ["louvain"], "clients": [3], "methods": ["fedgl"]}
    (cell,) = expand(Study.model_validate({**study, "seeds": 1})).cells
    assert own_files(cell.specs) == {}
    assert changes({}, {}) == []


def test_another_mode_or_torch_is_said_of_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(mode: str | None, versions: dict[str, str]) -> RunRecord:
        return RunRecord(cell="", seed=0, settings={}, outcome={"state": "ok"}, mode=mode, versions=versions)

    monkeypatch.setattr("fglbench.records.run.version", {"torch": "2.8.0"}.__getitem__)
    assert record("fast", {"torch": "2.0.1"}).differences("deterministic", {}) == [
        "trained in mode fast with torch 2.0.1, now in mode deterministic with torch 2.8.0"
    ]
    assert record("fast", {"torch": "2.8.0"}).differences("fast", {}) == []
    assert record(None, {}).differences("fast", {}) == []  # it did not come as far


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    command = ["train", "--dataset", "karate", "--clients", "2", "--rounds", "1", "--results", str(tmp_path)]
    assert main(command) == 0
    assert main([*command, "--mode", "fast", *(["--json"] if as_json else [])]) == 0
    said = capsys.readouterr().out
    assert "kept (--force trains again)" in said
    assert "trained in mode deterministic with torch" in said
    if as_json:
        (line,) = json.loads(said.splitlines()[-1])["differences"]
        assert line.startswith("trained in mode deterministic with torch")


def test_a_list_of_folders_still_says_where_components_are(tmp_path: Path) -> None:
    def read(given: Any) -> Components:
        study = {"datasets": ["karate"], "partitions": ["random"], "clients": [2], "methods": ["local"]}
        return load_config({**study, "components": given}).components

    assert read([str(tmp_path)]) == Components(folders=[str(tmp_path)], trust="again")
    assert read({"folders": [str(tmp_path)], "trust": "warn"}) == Components(folders=[str(tmp_path)], trust="warn")
    for given in (["/nowhere"], {"folders": ["/nowhere"]}):
        with pytest.raises(ConfigError, match="components: '/nowhere' is not a folder"):
            read(given)
    with pytest.raises(ConfigError, match=r"components\.trust: 'agian' is not valid\. Did you mean 'again'\?"):
        read({"trust": "agian"})
