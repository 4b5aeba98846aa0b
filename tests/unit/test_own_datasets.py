"""A user's own dataset: a file in a components folder, read without importing it, and a graph that is checked."""

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from own_files import read_again

from fglbench import registry
from fglbench.cli import main
from fglbench.commands.new import write_component
from fglbench.config.expand import expand
from fglbench.config.load import load_config
from fglbench.datasets import catalogue
from fglbench.datasets.availability import why_unavailable
from fglbench.datasets.own import from_arrays
from fglbench.errors import ComponentError, ConfigError, DataError
from fglbench.records.graph import load_graph
from fglbench.stages.download import download
from fglbench.storage import read_npz
from fglbench.workflow.single import run_cell

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-dataset.md"


@pytest.fixture
def mine(tmp_path: Path, own_components: None) -> Path:
    """A components folder with the page's dataset in it."""
    folder = tmp_path / "mine"
    (folder / "datasets").mkdir(parents=True)
    (shown,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (folder / "datasets" / "roads.py").write_text(shown, encoding="utf-8")
    registry.use_folders([folder])
    return folder


def write_roads(mine: Path) -> dict[str, np.ndarray]:
    """60 crossings on a ring, and 30 roads across its three districts."""
    nodes = np.arange(60)
    labels = nodes // 20
    near = nodes[nodes % 20 < 10]
    ring, across = np.stack([nodes, (nodes + 1) % 60]), np.stack([near, near + 10])
    features = np.eye(4)[labels] + np.random.default_rng(0).normal(0, 0.3, (60, 4))
    arrays = {"edges": np.concatenate([ring, across], axis=1), "features": features, "labels": labels}
    np.savez(mine / "datasets" / "roads.npz", **arrays)
    return arrays


def change(mine: Path, old: str, new: str) -> None:
    path = mine / "datasets" / "roads.py"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    read_again()


def values_of(mine: Path, **changes: object) -> dict:
    return {
        "datasets": ["roads"],
        "partitions": ["louvain"],
        "clients": [3],
        "methods": ["fedavg"],
        "backbones": [{"name": "gcn", "hidden": 16}],
        "seeds": [0],
        "training": {"rounds": 20, "local_epochs": 2},
        "components": [str(mine)],
        "device": "cpu",
        **changes,
    }


def test_the_pages_dataset_is_a_row_of_the_catalogue(mine: Path) -> None:
    assert "roads" in catalogue.names()
    spec = catalogue.get("roads")
    assert (spec.title, spec.nodes, spec.edges, spec.features, spec.classes) == ("Roads", 60, 90, 4, 3)
    assert spec.about.startswith("Nodes are crossings")
    assert not spec.needs_files
    assert "roads" not in catalogue.free()


def test_it_trains_like_any_other(mine: Path, tmp_path: Path) -> None:
    write_roads(mine)
    done = run_cell(values_of(mine), tmp_path / "results", own_process=True)
    assert done["outcome"] == "ok", done["reason"]
    assert done["test_accuracy_pooled"] > 0.5  # a third by chance


def test_the_graph_is_canonical_and_described(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = write_roads(mine)
    card = download({"name": "roads"}, tmp_path / "roads")
    graph = load_graph(tmp_path / "roads")
    assert graph.num_edges == 90
    np.testing.assert_array_equal(graph.features, arrays["features"].astype(np.float32))
    assert (card["origin"], card["title"], card["cleaning"]["reverse_added"]) == ("own", "Roads", 90)
    assert main(["describe", "roads", "--components", str(mine), "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "60 nodes, 90 edges, 4 features, 3 classes" in said
    assert str(mine / "datasets" / "roads.npz") in said
    assert card["content_hash"] in said


def test_without_its_file_it_is_not_run(mine: Path, tmp_path: Path) -> None:
    path = mine / "datasets" / "roads.npz"
    assert why_unavailable(catalogue.get("roads"), None, may_download=True) == f"its file {path} is missing"
    with pytest.raises(DataError, match=r"'roads': its file .*roads\.npz is missing\. .* correct FILES in"):
        download({"name": "roads"}, tmp_path / "roads")
    assert not (tmp_path / "roads" / "graph.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"edges": 90', '"edges": 91', r"than .*roads\.py describes: edges 90 instead of 91\. Correct its constants"),
        ('"classes": 3', '"classes": 4', r"classes 3 instead of 4"),
        ('TITLE = "Roads"', "SPLIT = True", r"no masks, and SPLIT is True"),
        ('TITLE = "Roads"', f'CONTENT_HASH = "{"0" * 64}"', r"content hash [0-9a-f]{64} instead of 0000"),
        ("return from_arrays(", "return list((", r"'load' returned a list"),
        ("def load(", "def read(", r"no function 'load\(folder\)'"),
        ('arrays["labels"])', 'arrays["labels"] + 1)', r"labels: classes count from 0.*class 0 has no node\. Correct"),
        ('arrays["labels"])', 'arrays["label"])', r"'roads': .*roads\.py:18: KeyError: .*label"),
        ("import numpy as np", "import numpy as np\nimport nothing_of_this_name", r"roads\.py:6: ModuleNotFoundError"),
        ('arrays["edges"]', "[[0, 1], [1]]", r"roads\.py:18: ValueError: setting an array element"),
    ],
)
def test_another_graph_than_described_or_none_is_refused_by_name(
    mine: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    write_roads(mine)
    change(mine, old, new)
    if "list((" in new:
        change(mine, 'arrays["labels"])', 'arrays["labels"]))')
    with pytest.raises(DataError, match=message):
        download({"name": "roads"}, tmp_path / "roads")
    assert not (tmp_path / "roads" / "graph.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("VERSION = 1", "", r"roads\.py declares no integer 'VERSION'; see docs/adding-a-dataset\.md"),
        ("COUNTS = {", "COUNT = {", r"roads\.py: COUNTS: Field required"),
        ('"nodes": 60', '"nodes": 0', r"COUNTS\.nodes: Input should be greater than or equal to 1"),
        ('FILES = ["roads.npz"]', 'FILES = "roads.npz"', r"FILES: Input should be a valid list"),
        (
            "VERSION = 1",
            "VERSION = 1\nfrom fglbench.settings import *\nclass Settings(ComponentSettings):\n    k: int = 5",
            r"has no 'Settings'",
        ),
    ],
)
def test_a_file_that_says_too_little_is_refused_by_name(mine: Path, old: str, new: str, message: str) -> None:
    change(mine, old, new)
    with pytest.raises(ComponentError, match=message):
        catalogue.get("roads")


def test_constants_may_have_types(mine: Path) -> None:
    change(mine, "FILES = [", "FILES: list[str] = [")
    assert catalogue.get("roads").own_files == (mine / "datasets" / "roads.npz",)


def test_a_shipped_name_is_refused(mine: Path) -> None:
    (mine / "datasets" / "roads.py").rename(mine / "datasets" / "cora.py")
    registry.use_folders([])
    with pytest.raises(ComponentError, match=r"cora\.py: the dataset 'cora' comes with fglbench\. Rename the file"):
        catalogue.get("cora")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("VERSION = 1", "VERSION = 2"),
        ('"edges": 90', '"edges": 91'),
        ('TITLE = "Roads"', 'CONTENT_HASH = "another"'),
    ],
)
def test_another_graph_is_another_cell_in_another_folder(mine: Path, old: str, new: str) -> None:
    (first,) = expand(load_config(values_of(mine), "test")).cells
    change(mine, old, new)
    (second,) = expand(load_config(values_of(mine), "test")).cells
    assert second.id != first.id
    assert second.dataset.slug != first.dataset.slug


def test_going_back_to_a_version_goes_back_to_its_graph(mine: Path, tmp_path: Path) -> None:
    write_roads(mine)
    clean, results = tmp_path / "clean", tmp_path / "results"
    expected = run_cell(values_of(mine, methods=["local"]), clean)
    run_cell(values_of(mine), results)
    arrays = write_roads(mine)
    np.savez(mine / "datasets" / "roads.npz", **{**arrays, "labels": np.roll(arrays["labels"], 7)})
    change(mine, "VERSION = 1", "VERSION = 2")
    run_cell(values_of(mine), results)
    write_roads(mine)
    change(mine, "VERSION = 2", "VERSION = 1")
    back = run_cell(values_of(mine, methods=["local"]), results)
    assert back["cell"] == expected["cell"]
    assert back["test_accuracy_pooled"] == expected["test_accuracy_pooled"]
    trained = [Path(done["folder"]) / "predictions.npz" for done in (back, expected)]
    first, second = map(read_npz, trained)
    assert all((first[name] == second[name]).all() for name in first)


def test_a_mistake_in_a_listed_dataset_is_one_problem_among_all(mine: Path) -> None:
    change(mine, "COUNTS = {", "COUNT = {")
    with pytest.raises(ConfigError) as raised:
        load_config(values_of(mine, datasets=["roads", "coraa"], clients=[0]), "my.yaml")
    said = str(raised.value)
    assert "my.yaml: datasets[0]: " in said and "COUNTS: Field required" in said
    assert "'coraa' is not a dataset" in said
    assert "a federation has at least 1 client" in said


def test_rows_of_negative_features_are_refused_before_any_job(mine: Path) -> None:
    change(mine, 'TITLE = "Roads"', "NEGATIVE_FEATURES = True")
    with pytest.raises(ConfigError, match=r"protocol\.features: 'roads' has negative features; use raw"):
        load_config(values_of(mine, protocol={"features": "row"}), "my.yaml")


def test_an_unfinished_file_stops_nobody_who_does_not_name_it(mine: Path) -> None:
    (mine / "methods").mkdir()
    (mine / "methods" / "wip.py").write_text("class Method(", encoding="utf-8")
    (mine / "datasets" / "wip.py").write_text("COUNTS = {", encoding="utf-8")
    registry.use_folders([])
    load_config(values_of(mine, methods=[{"name": "fedsage", "aggregation": "fedprox"}]), "my.yaml")
    with pytest.raises(ConfigError, match=r"datasets\[0\]: .*wip\.py:1: is not valid Python"):
        load_config(values_of(mine, datasets=["wip"]), "my.yaml")


def test_a_folder_may_be_named_twice(mine: Path) -> None:
    registry.use_folders([mine / ".." / mine.name])
    assert catalogue.get("roads").nodes == 60


def test_arrays_become_what_scipy_makes_of_them() -> None:
    edges = np.array([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])  # one edge twice, one in one direction, one self-loop
    features = sp.coo_matrix(([1.0, 2.0, 0.0], ([0, 0, 2], [1, 1, 0])), shape=(3, 2))  # one entry twice, one zero
    masks = {role: np.arange(3) == place for place, role in enumerate(("train", "val", "test"))}
    graph = from_arrays(edges, features, np.array([1, 0, -1]), masks)
    dense = sp.coo_matrix((np.ones(5), edges), shape=(3, 3)).toarray()
    expected = ((dense + dense.T) > 0) & ~np.eye(3, dtype=bool)
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected)
    np.testing.assert_array_equal(graph.features.toarray(), [[0, 3], [0, 0], [0, 0]])
    assert graph.features.nnz == 1
    assert (graph.classes, graph.labels.tolist(), graph.cleaning["self_loops_removed"]) == (2, [1, 0, -1], 1)
    assert {role: mask.tolist() for role, mask in graph.masks.items()} == {r: m.tolist() for r, m in masks.items()}


EDGES, FEATURES, LABELS = np.array([[0, 1], [1, 2]]), np.ones((3, 2)), np.array([0, 1, 0])
HALF = np.array([True, False, False])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((EDGES.T[:1], FEATURES, LABELS), r"edges: expected \[2, num_entries\] integers, not int64 \[1, 2\]"),
        ((EDGES + 0.0, FEATURES, LABELS), r"edges: .* not float64"),
        ((EDGES + 1, FEATURES, LABELS), r"edges: node ids range from 1 to 3; labels has 3 nodes"),
        ((EDGES, FEATURES[:2], LABELS), r"features: expected \[3, num_features\] numbers, .* \[2, 2\]"),
        ((EDGES, FEATURES.astype(str), LABELS), r"features: .* not <U32"),
        ((EDGES, FEATURES * np.nan, LABELS), r"features: 6 values are not finite"),
        ((EDGES, sp.csr_matrix(FEATURES * 1e300), LABELS), r"features: 6 values are not finite"),
        ((EDGES, FEATURES, LABELS + 0.0), r"labels: expected \[num_nodes\] integers, not float64 \[3\]"),
        ((EDGES, FEATURES, LABELS * 2), r"labels: .* class 1 has no node"),
        ((EDGES, FEATURES, LABELS.astype(np.uint32) - 1), r"of 3 nodes range from 0 to 4294967295"),
        ((EDGES, FEATURES, LABELS, (HALF,)), r"masks: expected a mapping from .*, not a tuple"),
        ((EDGES, FEATURES, LABELS - 2), r"labels: .* range from -2 to -1"),
        ((EDGES, FEATURES, LABELS, {"train": HALF}), r"masks: expected 'train', 'val' and 'test', not 'train'"),
        ((EDGES, FEATURES, LABELS, dict.fromkeys(("train", "val", "test"), HALF)), r"masks: 1 nodes have two roles"),
        ((EDGES, FEATURES, LABELS, dict.fromkeys(("train", "val", "test"), HALF * 1)), r"'train' must be \[3\] bool"),
    ],
)
def test_arrays_that_are_no_graph_are_refused_by_name(arrays: tuple, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(*arrays)


def test_a_new_dataset_needs_a_folder_and_a_free_name(tmp_path: Path) -> None:
    with pytest.raises(ComponentError, match=r"name one with --folder DIR"):
        write_component("dataset", "graph", None)
    with pytest.raises(ComponentError, match=r"the dataset 'cora' already exists\. Choose"):
        write_component("dataset", "cora", tmp_path)
