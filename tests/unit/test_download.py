"""The download stage: right data in, one clear refusal for anything else, and nothing half-made left behind."""

import http.server
import io
import os
import pickle
import shutil
import socket
import socketserver
import tarfile
import tempfile
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fglbench.datasets import catalogue, embedded, fetch, raw
from fglbench.datasets.base import canonical_edges, content_hash
from fglbench.datasets.spec import Counts
from fglbench.errors import DataError
from fglbench.records.graph import load_graph
from fglbench.stages import download as stage
from fglbench.stages.download import download

FROM_FILES = [
    name for name in catalogue.names() if catalogue.get(name).needs_files and not catalogue.get(name).announced
]
WITHOUT_FILES = [name for name in catalogue.names() if not catalogue.get(name).needs_files]
CLEANING = {  # stored entries, duplicates, self-loops, added reverse entries; known from the raw files
    "cora": (10_858, 302, 0, 0),
    "citeseer": (9_464, 112, 248, 0),
    "pubmed": (88_676, 22, 6, 0),
    "photo": (143_663, 0, 1, 94_500),
    "polblogs": (19_025, 0, 3, 14_408),
}
SPLITS = {
    "cora": {"train": 140, "val": 500, "test": 1_000},
    "citeseer": {"train": 120, "val": 500, "test": 1_000},
    "pubmed": {"train": 60, "val": 500, "test": 1_000},
    "cora-fedgta": {"train": 539, "val": 1_080, "test": 1_089},
    "citeseer-fedgta": {"train": 660, "val": 1_327, "test": 1_340},
}
DENSE = {"computers", "computers-lcc", "photo", "photo-lcc", "digits", "breast-cancer", "sbm"}


@pytest.fixture(autouse=True)
def private_temporary_folder(tmp_path_factory, monkeypatch):
    """Every test proves that the stage leaves nothing in the temporary folder."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.glob("fglbench*")) == []


@pytest.fixture(autouse=True)
def no_questions(monkeypatch):
    """Every test proves that nothing is read from standard input."""

    class Closed(io.StringIO):
        def read(self, *_):
            raise AssertionError("standard input was read")

        readline = read

    monkeypatch.setattr("sys.stdin", Closed())


def copy_of(mirror: Path, name: str, folder: Path) -> Path:
    for path in catalogue.get(name).raw_files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(mirror / path, folder / path)
    return folder


def files_in(folder: Path) -> list[str]:
    """All files but the empty ones that locks leave beside what they guard."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return sorted(str(path.relative_to(folder)) for path in found)


def point_at(monkeypatch, name: str, **changes) -> None:
    monkeypatch.setitem(catalogue.CATALOGUE, name, replace(catalogue.get(name), **changes))


def check_result(name: str, card: dict, folder: Path, origin: str) -> None:
    spec = catalogue.get(name)
    assert files_in(folder) == ["graph.json", "graph.npz"]
    assert [card[key] for key in ("nodes", "edges", "features", "classes")] == list(vars(spec.counts).values())
    assert card["content_hash"] == (spec.content_hash or card["content_hash"])
    assert card["origin"] == origin
    assert card["masks"] == SPLITS.get(name, {})
    graph = load_graph(folder)
    assert content_hash(graph) == card["content_hash"]
    again, changes = canonical_edges(graph.edges, graph.num_nodes)
    np.testing.assert_array_equal(again, graph.edges)
    assert sum(changes.values()) == changes["stored_entries"]
    assert set(np.unique(graph.labels)) == set(range(spec.classes))
    assert np.sum(list(graph.masks.values()), axis=0).max() == (1 if graph.masks else 0)
    assert (card["feature_storage"] == "dense") == (name in DENSE)
    if isinstance(graph.features, sp.csr_matrix):
        assert graph.features.has_sorted_indices
        assert np.all(graph.features.data != 0)
    if name in CLEANING:
        keys = ("stored_entries", "duplicates_removed", "self_loops_removed", "reverse_added")
        assert tuple(card["cleaning"][key] for key in keys) == CLEANING[name]


@pytest.mark.parametrize("name", FROM_FILES)
def test_datasets_of_the_mirror(name, mirror, tmp_path):
    lacking = [path for path in catalogue.get(name).raw_files if not (mirror / path).is_file()]
    if lacking:
        pytest.skip(f"{mirror} lacks {', '.join(lacking)}")
    check_result(name, download({"name": name}, tmp_path / name, mirror), tmp_path / name, "mirror")


@pytest.mark.parametrize("name", WITHOUT_FILES)
def test_datasets_that_need_no_files(name, tmp_path):
    origin = "generated" if name == "sbm" else "embedded"
    check_result(name, download({"name": name, "settings": {}}, tmp_path / name), tmp_path / name, origin)


def test_settings_reach_the_generator(tmp_path):
    card = download({"name": "sbm", "settings": {"nodes": 300, "homophily": 0.5}}, tmp_path)
    assert (card["nodes"], card["edges"], card["edge_homophily"]) == (300, 1_500, 0.5)
    assert card["settings"]["nodes"] == 300
    assert card["synthetic"] is True
    assert download({"name": "sbm", "settings": {"nodes": 301}}, tmp_path)["nodes"] == 301


def test_features_are_not_normalised(mirror, tmp_path):
    download({"name": "cora"}, tmp_path, mirror)
    features = load_graph(tmp_path).features
    assert set(np.unique(features.data)) == {1.0}
    assert features.sum(axis=1).max() > 1


def test_largest_component_is_connected(mirror, tmp_path):
    card = download({"name": "photo-lcc"}, tmp_path, mirror)
    assert (card["connected_components"], card["isolated_nodes"]) == (1, 0)
    assert (card["cleaning"]["nodes_removed"], card["cleaning"]["edges_removed"]) == (163, 38)


def test_neighbours_agree_with_a_library_search():
    from sklearn.datasets import load_breast_cancer
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    values, _ = load_breast_cancer(return_X_y=True)
    scaled = embedded.standardise(values)
    np.testing.assert_allclose(scaled, StandardScaler().fit_transform(values), atol=1e-10)
    found = embedded.nearest_neighbours(scaled, 10)[1].reshape(-1, 10)
    expected = NearestNeighbors(n_neighbors=10, algorithm="kd_tree").fit(scaled).kneighbors(return_distance=False)
    np.testing.assert_array_equal(np.sort(found), np.sort(expected))


def test_a_constant_column_becomes_zero():
    scaled = embedded.standardise(np.array([[1, 5], [3, 5]]))
    np.testing.assert_array_equal(scaled, [[-1, 0], [1, 0]])


def test_ties_go_to_the_lower_row():
    pairs = embedded.nearest_neighbours(np.array([[0.0], [1.0], [-1.0], [1.0]]), 1)
    np.testing.assert_array_equal(pairs, [[0, 1, 2, 3], [1, 3, 0, 1]])


def test_a_finished_download_is_returned_as_it_is(mirror, tmp_path):
    first = download({"name": "cora"}, tmp_path, mirror)
    before = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
    assert download({"name": "cora"}, tmp_path, tmp_path / "no mirror is looked for") == first
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())] == before


@pytest.mark.parametrize("damage", ["truncate", "other data", "old card"])
def test_a_damaged_result_is_made_again(damage, tmp_path):
    first = download({"name": "karate"}, tmp_path)
    archive, card = tmp_path / "graph.npz", tmp_path / "graph.json"
    if damage == "truncate":
        archive.write_bytes(archive.read_bytes()[:-100])
    elif damage == "other data":
        download({"name": "sbm", "settings": {"nodes": 100}}, tmp_path / "other")
        shutil.copyfile(tmp_path / "other/graph.npz", archive)
        shutil.rmtree(tmp_path / "other")
    else:
        card.write_text(card.read_text().replace('"version": 1', '"version": 0'))
    assert download({"name": "karate"}, tmp_path) == first
    check_result("karate", first, tmp_path, "embedded")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def altered_pickle(path: Path) -> None:
    with path.open("rb") as stream:
        matrix = raw._ArrayUnpickler(stream).load()
    matrix.data[0] = 3
    path.write_bytes(pickle.dumps(matrix, protocol=2))


def altered_archive(path: Path) -> None:
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["labels"][17] = (arrays["labels"][17] + 1) % 8
    np.savez(path, **arrays)


def altered_table(path: Path) -> None:
    path.write_text(path.read_text().replace("0\t22\n", "0\t23\n", 1))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("name", "file", "damage", "reason"),
    [
        ("cora", "Planetoid/Cora/raw/ind.cora.allx", truncated, "truncated, damaged or unsafe"),
        ("cora", "Planetoid/Cora/raw/ind.cora.graph", truncated, "truncated, damaged or unsafe"),
        ("cora", "Planetoid/Cora/raw/ind.cora.test.index", truncated, "holds other data"),
        ("cora", "Planetoid/Cora/raw/ind.cora.y", emptied, "truncated, damaged or unsafe"),
        ("cora", "Planetoid/Cora/raw/ind.cora.tx", altered_pickle, "holds other data"),
        ("photo-lcc", "Amazon/Photo/raw/amazon_electronics_photo.npz", truncated, "truncated, damaged or unsafe"),
        ("photo", "Amazon/Photo/raw/amazon_electronics_photo.npz", altered_archive, "holds other data"),
        ("polblogs", "PolBlogs/raw/adjacency.tsv", altered_table, "holds other data"),
        ("polblogs", "PolBlogs/raw/labels.tsv", emptied, "truncated, damaged or unsafe|holds other data"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_bad_file_is_refused_by_name(name, file, damage, reason, mirror, tmp_path):
    bad = copy_of(mirror, name, tmp_path / "mirror")
    damage(bad / file)
    content = (bad / file).read_bytes()
    folder = tmp_path / "result"
    with pytest.raises(DataError, match=reason) as caught:
        download({"name": name}, folder, bad)
    message = str(caught.value)
    assert file in message
    assert "The mirror was left as it is" in message
    assert str(folder / "refused" / Path(file).name) in message
    assert files_in(folder) == [f"refused/{Path(file).name}"]
    assert (folder / "refused" / Path(file).name).read_bytes() == content == (bad / file).read_bytes()
    (bad / file).unlink()
    shutil.copyfile(mirror / file, bad / file)
    assert download({"name": name}, folder, bad)["nodes"] == catalogue.get(name).nodes


def test_a_refusal_removes_the_result_of_another_version(mirror, tmp_path):
    download({"name": "karate"}, tmp_path / "result")
    bad = copy_of(mirror, "cora", tmp_path / "mirror")
    emptied(bad / "Planetoid/Cora/raw/ind.cora.x")
    with pytest.raises(DataError):
        download({"name": "cora"}, tmp_path / "result", bad)
    assert files_in(tmp_path / "result") == ["refused/ind.cora.x"]


class Attack:
    """A pickle that makes a folder when it is loaded by an ordinary unpickler."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("file", ["ind.cora.graph", "ind.cora.x"])
def test_a_malicious_pickle_is_refused_and_never_run(file, mirror, tmp_path):
    bad = copy_of(mirror, "cora", tmp_path / "mirror")
    target = tmp_path / "was run"
    attack = pickle.dumps(Attack(target), protocol=2)
    pickle.loads(attack)
    assert target.is_dir()  # the attack works against an ordinary unpickler
    target.rmdir()
    (bad / "Planetoid/Cora/raw" / file).write_bytes(attack)
    with pytest.raises(DataError, match=rf"{file}.*requests (posix|nt)\.mkdir, which no data file needs"):
        download({"name": "cora"}, tmp_path / "result", bad)
    assert not target.exists()
    assert files_in(tmp_path / "result") == [f"refused/{file}"]


def test_only_one_codec_is_offered(tmp_path):
    path = tmp_path / "ind.x"
    path.write_bytes(b"c_codecs\nencode\n(Vtext\nVrot13\ntR.")
    with pytest.raises(DataError, match="requests the codec 'rot13'"):
        raw.read_raw(path)


def test_what_is_no_matrix_is_refused(tmp_path):
    path = tmp_path / "ind.x"
    path.write_bytes(pickle.dumps({"a": 1}, protocol=2))
    with pytest.raises(DataError, match="contains a dict, not a numeric matrix"):
        raw.read_raw(path)
    np.savez(tmp_path / "graph.npz", labels=np.array([{}], dtype=object))
    with pytest.raises(DataError, match=r"graph\.npz cannot be read"):
        raw.read_raw(tmp_path / "graph.npz")


def test_equal_content_in_other_bytes_is_accepted(mirror, tmp_path):
    allx = tmp_path / "ind.cora.allx"
    with (mirror / "Planetoid/Cora/raw/ind.cora.allx").open("rb") as stream:
        matrix = raw._ArrayUnpickler(stream).load().tocoo()
    order = np.random.default_rng(0).permutation(matrix.nnz)
    rewritten = sp.coo_matrix(
        (matrix.data[order].astype(np.float64), (matrix.row[order], matrix.col[order])), shape=matrix.shape
    ).tocsr()
    allx.write_bytes(pickle.dumps(rewritten, protocol=4))
    assert raw.raw_content_hash(allx) == catalogue.get("cora").raw_files["Planetoid/Cora/raw/ind.cora.allx"]
    path = "Amazon/Photo/raw/amazon_electronics_photo.npz"
    with np.load(mirror / path) as archive:
        np.savez(tmp_path / "photo.npz", **archive, node_names=np.array(["not used"]))
    assert raw.raw_content_hash(tmp_path / "photo.npz") == catalogue.get("photo").raw_files[path]


def test_a_mirror_without_the_files_is_named(tmp_path):
    (tmp_path / "mirror/Planetoid/Cora/raw").mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        download({"name": "cora"}, tmp_path / "result", tmp_path / "mirror")
    message = str(caught.value)
    assert f"the mirror {tmp_path / 'mirror'} lacks Planetoid/Cora/raw/ind.cora.allx, Planetoid" in message
    assert not (tmp_path / "result").exists()
    with pytest.raises(DataError, match=r"nowhere is not a folder"):
        download({"name": "cora"}, tmp_path / "result", tmp_path / "nowhere")


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_without_network_and_mirror_the_error_says_what_to_do(monkeypatch, tmp_path):
    address = f"http://127.0.0.1:{closed_port()}/data"
    point_at(monkeypatch, "cora", url=address)
    with pytest.raises(DataError) as caught:
        download({"name": "cora"}, tmp_path / "result")
    message = str(caught.value)
    assert message.startswith(f"dataset 'cora' could not be downloaded ({address}/ind.cora.")
    for path in catalogue.get("cora").raw_files:
        assert f"\n  <mirror>/{path}" in message
    assert "data.mirror in config.yaml or in FGLBENCH_MIRROR" in message
    assert "Datasets that need no files: breast-cancer, digits, karate, sbm." in message
    assert not (tmp_path / "result").exists()


def test_nothing_is_downloaded_where_it_is_forbidden(monkeypatch, mirror, tmp_path):
    monkeypatch.setattr(stage, "fetch", lambda *_: pytest.fail("something was fetched"))
    setting = "my.yaml: data.download: false"
    with pytest.raises(DataError) as caught:
        download({"name": "cora"}, tmp_path / "result", forbidden=setting)
    message = str(caught.value)
    assert message.startswith(f"{setting}, so dataset 'cora' is not downloaded, and there is no mirror")
    assert "\n  <mirror>/Planetoid/Cora/raw/ind.cora.x\n" in message
    assert "name the folder <mirror> as data.mirror in config.yaml or in FGLBENCH_MIRROR" in message
    assert message.endswith("Or allow it: data.download: true.")
    assert not (tmp_path / "result").exists()
    assert download({"name": "karate"}, tmp_path / "embedded", forbidden=setting)["origin"] == "embedded"
    assert download({"name": "cora"}, tmp_path / "result", mirror, setting)["origin"] == "mirror"
    assert download({"name": "cora"}, tmp_path / "result", forbidden=setting)["origin"] == "mirror"  # it is there


def test_a_silent_server_is_given_up(monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        point_at(monkeypatch, "photo", url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        with pytest.raises(DataError, match="timed out"):
            download({"name": "photo"}, tmp_path / "result")
        assert time.monotonic() - started < 10


@pytest.fixture
def serve(monkeypatch):
    """Serves a folder over HTTP on this machine; returns its address."""
    servers = []

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    def start(folder: Path) -> str:
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_files_are_downloaded_and_checked(mirror, monkeypatch, serve, tmp_path):
    point_at(monkeypatch, "cora", url=serve(mirror / "Planetoid/Cora/raw"))
    check_result("cora", download({"name": "cora"}, tmp_path), tmp_path, "download")


def test_an_archive_is_downloaded_and_unpacked(mirror, monkeypatch, serve, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    with tarfile.open(served / "polblogs.tar.gz", "w:gz") as archive:
        for name in ("adjacency.tsv", "labels.tsv"):
            archive.add(mirror / "PolBlogs/raw" / name, arcname=f"polblogs/{name}")
    address = serve(served)
    point_at(monkeypatch, "polblogs", url=f"{address}/polblogs.tar.gz")
    check_result("polblogs", download({"name": "polblogs"}, tmp_path / "r"), tmp_path / "r", "download")
    with tarfile.open(served / "lacking.tar.gz", "w:gz") as archive:
        archive.add(mirror / "PolBlogs/raw/labels.tsv", arcname="labels.tsv")
    point_at(monkeypatch, "polblogs", url=f"{address}/lacking.tar.gz")
    with pytest.raises(DataError, match=r"the archive does not contain adjacency\.tsv"):
        download({"name": "polblogs"}, tmp_path / "lacking")
    truncated(served / "polblogs.tar.gz")
    point_at(monkeypatch, "polblogs", url=f"{address}/polblogs.tar.gz")
    with pytest.raises(DataError, match="not a readable archive"):
        download({"name": "polblogs"}, tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


def test_a_bad_downloaded_file_is_set_aside(mirror, monkeypatch, serve, tmp_path):
    served = copy_of(mirror, "cora", tmp_path / "served") / "Planetoid/Cora/raw"
    (served / "ind.cora.ally").write_text("<html>moved</html>")
    point_at(monkeypatch, "cora", url=serve(served))
    with pytest.raises(
        DataError, match=r"Planetoid/Cora/raw/ind\.cora\.ally from http://127\.0\.0\.1:\d+ is truncated"
    ):
        download({"name": "cora"}, tmp_path / "result")
    assert files_in(tmp_path / "result") == ["refused/ind.cora.ally"]
    (served / "ind.cora.ally").unlink()
    with pytest.raises(DataError, match=r"ind\.cora\.ally: File not found"):
        download({"name": "cora"}, tmp_path / "missing")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": Counts(34, 79, 33, 5)}, "edges 78 instead of 79; features 34 instead of 33; classes 4"),
        ({"content_hash": "0" * 64}, f"instead of {'0' * 64}"),
    ],
)
def test_a_graph_unlike_the_catalogue_is_refused(changes, message, monkeypatch, tmp_path):
    point_at(monkeypatch, "karate", **changes)
    with pytest.raises(DataError) as caught:
        download({"name": "karate"}, tmp_path / "result")
    assert message in str(caught.value)
    assert not (tmp_path / "result").exists()


def test_an_interrupted_write_leaves_nothing(monkeypatch, tmp_path):
    def full_disk(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("fglbench.records.graph.write_json", full_disk)
    with pytest.raises(OSError, match="No space left"):
        download({"name": "karate"}, tmp_path)
    assert files_in(tmp_path) == []


def test_unknown_dataset(tmp_path):
    with pytest.raises(DataError, match="Did you mean 'citeseer'"):
        download({"name": "citeser"}, tmp_path)


def test_the_loader_is_not_asked_for_a_refused_file(mirror, monkeypatch, tmp_path):
    bad = copy_of(mirror, "cora", tmp_path / "mirror")
    altered_pickle(bad / "Planetoid/Cora/raw/ind.cora.tx")
    monkeypatch.setattr(stage.importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    with pytest.raises(DataError, match="holds other data"):
        download({"name": "cora"}, tmp_path / "result", bad)
