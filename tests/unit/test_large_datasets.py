"""Datasets of GraphSAINT and OGB: readers on made-up files of their layouts, and the room that the real ones take."""

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from raw_files import NODES, Content, announce, content, write_graphsaint, write_ogb

from fglbench.datasets import catalogue
from fglbench.datasets import requirements as room
from fglbench.datasets.availability import why_unavailable
from fglbench.datasets.base import canonical_edges
from fglbench.errors import DataError, ResourceError
from fglbench.records.graph import load_graph
from fglbench.stages.download import download

SAINT = [("flickr", "Flickr"), ("reddit", "Reddit2")]
OGB = [
    ("arxiv", "ogbn_arxiv", "time", False),
    ("products", "ogbn_products", "sales_ranking", False),
    ("papers100m", "ogbn_papers100M", "time", True),
]
NAMES = [name for name, *_ in SAINT + OGB]
PRINTED = {  # nodes, edges, features, classes (FedGTA, table 2)
    "flickr": (89_250, 899_756, 500, 7),
    "reddit": (232_965, 11_606_919, 602, 41),
    "arxiv": (169_343, 2_315_598, 128, 40),
    "products": (2_449_029, 61_859_140, 100, 47),
    "papers100m": (111_059_956, 1_615_685_872, 128, 172),
}


@pytest.fixture(autouse=True)
def no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def readline(self, *_: object) -> str:
            raise AssertionError("standard input was read")

    monkeypatch.setattr("sys.stdin", Closed())


def check(made: Content, folder: Path) -> None:
    graph = load_graph(folder)
    edges, cleaning = canonical_edges(made.pairs, NODES)
    np.testing.assert_array_equal(graph.edges, edges)
    assert graph.cleaning == cleaning
    assert graph.features.dtype == np.float32
    np.testing.assert_allclose(graph.features, made.features, rtol=1e-6)
    np.testing.assert_array_equal(graph.labels, made.labels)
    assert {role: np.flatnonzero(mask).tolist() for role, mask in graph.masks.items()} == {
        role: ids.tolist() for role, ids in made.roles.items()
    }


@pytest.mark.parametrize(("name", "folder"), SAINT)
def test_graphsaint_files_are_read_as_pyg_reads_them(
    name: str, folder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch_geometric import datasets

    made = content(both=True)
    write_graphsaint(made, tmp_path / "mirror" / folder / "raw")
    announce(monkeypatch, name, made)
    card = download({"name": name}, tmp_path / "out", tmp_path / "mirror")
    check(made, tmp_path / "out")
    assert card["cleaning"]["reverse_added"] == 0
    graph = load_graph(tmp_path / "out")
    theirs = getattr(datasets, folder)(str(tmp_path / "mirror" / folder))[0]
    np.testing.assert_array_equal(canonical_edges(theirs.edge_index.numpy(), NODES)[0], graph.edges)
    np.testing.assert_array_equal(theirs.x.numpy(), graph.features)
    np.testing.assert_array_equal(theirs.y.numpy(), graph.labels)
    for role in ("train", "val", "test"):
        np.testing.assert_array_equal(theirs[f"{role}_mask"].numpy(), graph.masks[role])


@pytest.mark.parametrize(("name", "folder", "kind", "binary"), OGB)
def test_ogb_files_are_read_as_ogb_reads_them(
    name: str, folder: str, kind: str, *, binary: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ogb.io.read_graph_raw import read_binary_graph_raw, read_csv_graph_raw

    made = content(both=False, unlabelled=7 if binary else 0)
    write_ogb(made, tmp_path / "mirror" / folder, kind, binary=binary)
    announce(monkeypatch, name, made)
    card = download({"name": name}, tmp_path / "out", tmp_path / "mirror")
    check(made, tmp_path / "out")
    assert card["unlabelled"] == (7 if binary else 0)
    assert (card["cleaning"]["self_loops_removed"], card["cleaning"]["duplicates_removed"]) == (1, 1)
    reader = read_binary_graph_raw if binary else read_csv_graph_raw
    theirs = reader(str(tmp_path / "mirror" / folder / "raw"))[0]
    graph = load_graph(tmp_path / "out")
    np.testing.assert_array_equal(canonical_edges(theirs["edge_index"], theirs["num_nodes"])[0], graph.edges)
    np.testing.assert_array_equal(theirs["node_feat"], graph.features)


def test_an_archive_of_ogb_is_downloaded_and_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = content(both=False)
    write_ogb(made, tmp_path / "arxiv", "time", binary=False)
    archive = tmp_path / "arxiv.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in sorted((tmp_path / "arxiv").rglob("*.csv.gz")):
            zipped.write(path, path.relative_to(tmp_path))
    announce(monkeypatch, "arxiv", made, url=archive.as_uri())
    assert download({"name": "arxiv"}, tmp_path / "out")["origin"] == "download"
    check(made, tmp_path / "out")
    archive.write_bytes(archive.read_bytes()[:-300])
    with pytest.raises(DataError, match="not a readable archive"):
        download({"name": "arxiv"}, tmp_path / "cut")


def test_files_with_an_address_each_are_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = content(both=True)
    write_graphsaint(made, tmp_path / "there")
    addresses = {path.name: path.as_uri() for path in (tmp_path / "there").iterdir()}
    announce(monkeypatch, "flickr", made, url=addresses)
    download({"name": "flickr"}, tmp_path / "out")
    check(made, tmp_path / "out")
    announce(monkeypatch, "flickr", made, url=addresses | {"role.json": (tmp_path / "nothing").as_uri()})
    with pytest.raises(DataError, match=r"could not be downloaded \(file:.*nothing"):
        download({"name": "flickr"}, tmp_path / "lacking")


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("feats.npy", b"<html>quota</html>", r"feats\.npy cannot be read"),
        ("adj_full.npz", b"<html>quota</html>", r"adj_full\.npz cannot be read"),
        (
            "role.json",
            b'{"tr": [0, 99], "va": [1], "te": [2]}',
            "a file contains the node id 99; the graph has the nodes 0 to 39",
        ),
        ("role.json", b'{"tr": [0', r"role\.json cannot be read"),
    ],
)
def test_a_damaged_file_is_refused(
    file: str, text: bytes, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = content(both=True)
    write_graphsaint(made, tmp_path / "mirror/Flickr/raw")
    announce(monkeypatch, "flickr", made)
    (tmp_path / "mirror/Flickr/raw" / file).write_bytes(text)
    with pytest.raises(DataError, match=rf"dataset 'flickr': {reason}.*GraphSAINT"):
        download({"name": "flickr"}, tmp_path / "out", tmp_path / "mirror")
    assert not (tmp_path / "out/graph.json").exists()


def test_other_numbers_than_announced_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = content(both=True)
    write_graphsaint(made, tmp_path / "mirror/Flickr/raw")
    announce(monkeypatch, "flickr", replace(made, pairs=made.pairs[:, 1:]))
    entries = made.pairs.shape[1]
    with pytest.raises(DataError, match=rf"stored edges {entries} instead of {entries - 1}\. So its files are not the"):
        download({"name": "flickr"}, tmp_path / "out", tmp_path / "mirror")


# ---- room


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_the_printed_one(name: str) -> None:
    spec = catalogue.get(name)
    nodes, edges, features, classes = PRINTED[name]
    assert (spec.nodes, spec.features, spec.classes) == (nodes, features, classes)
    assert edges in (spec.edges, 2 * spec.edges)
    assert spec.has_public_split


def test_the_estimates_are_of_the_right_size() -> None:
    found = {name: room.requirements_of(catalogue.get(name)) for name in NAMES}
    gigabytes = {name: each.memory / 1e9 for name, each in found.items() if each}
    assert max(gigabytes["flickr"], gigabytes["arxiv"]) < 1 < gigabytes["reddit"] < 4 < gigabytes["products"] < 16
    assert 200 < gigabytes["papers100m"] < 400
    papers = found["papers100m"]
    assert papers is not None
    assert papers.temporary > 1.4e11
    assert papers.stored > 1e11
    assert room.requirements_of(catalogue.get("cora")) is None


def test_memory_that_does_not_suffice_is_known_before_any_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    papers = catalogue.get("papers100m")
    monkeypatch.setattr(room, "machine_memory", lambda: 64e9)
    reason = why_unavailable(papers, None, may_download=True)
    assert reason is not None
    assert reason.startswith("memory: making its graph takes about 256")
    assert reason.endswith("this machine has 64.0 GB")
    assert "lacks ogbn_papers100M/raw/data.npz" in (why_unavailable(papers, tmp_path, may_download=True) or "")
    with pytest.raises(ResourceError, match=r"dataset 'papers100m': memory: .*Nothing was downloaded"):
        download({"name": "papers100m"}, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(room, "machine_memory", lambda: 512e9)
    assert why_unavailable(papers, None, may_download=True) is None


def test_a_disk_that_does_not_suffice_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Usage:
        free = 100e9

    monkeypatch.setattr(room, "machine_memory", lambda: 512e9)
    monkeypatch.setattr("shutil.disk_usage", lambda place: Usage)
    with pytest.raises(ResourceError, match=r"disk: its raw files need about 145\.4 GB; .* has 100\.0 GB free"):
        download({"name": "papers100m"}, tmp_path / "out")
    Usage.free = 150e9
    with pytest.raises(DataError, match="is not a folder"):  # past the check: a mirror needs no archive
        download({"name": "papers100m"}, tmp_path / "out", tmp_path / "nowhere")


def test_this_machine_has_some_memory() -> None:
    assert 1e8 < room.machine_memory() < 1e15
