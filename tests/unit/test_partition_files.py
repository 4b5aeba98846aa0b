"""Partition files: the layouts of docs/partitions.md, what is refused and with which words, and cells made of one."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fglbench.cli import main
from fglbench.config.expand import expand
from fglbench.config.load import load_config
from fglbench.errors import ConfigError, PartitionError
from fglbench.partition.files import read_partition, write_partition
from fglbench.partition.stored import StoredPartition
from fglbench.stages.collect import collect
from fglbench.storage import read_json, read_npz
from fglbench.workflow.single import run_cell

FORMATS = (".npz", ".csv", ".json")
EVERYTHING = StoredPartition(
    nodes=np.array([0, 3, 4, 1, 3, 7]),
    ptr=np.array([0, 3, 5, 6]),
    role=np.array([1, 2, 3, 0, 2, 3], dtype=np.int8),
    copy=np.array([False, True, False, False, False, False]),
    held_out=np.array([2, 9]),
    held_out_clients=(2,),
)
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "partitions.md").read_text(encoding="utf-8")
AS_CSV, AS_JSON = (
    re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0] for language in ("csv", "json")
)
AS_NPZ = {
    name: [*map(int, numbers.split())]
    for name, numbers in re.findall(r"^\| `(\w+)` \| .* \| ([\d ]+) \|$", PAGE, re.MULTILINE)
}


def stored(folder: Path, content: Any) -> Path:
    """A file: text as csv, a mapping with `ptr` as npz, any other value as json."""
    if isinstance(content, str):
        (path := folder / "parts.csv").write_text(content, encoding="utf-8")
    elif "ptr" in content or "nodes" in content:
        np.savez(path := folder / "parts.npz", **content)
    else:
        (path := folder / "parts.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def assert_same(one: StoredPartition, other: StoredPartition) -> None:
    for name in ("nodes", "ptr", "role", "copy", "held_out"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None), name
        assert mine is None or (mine.dtype == theirs.dtype and np.array_equal(mine, theirs)), name
    assert one.held_out_clients == other.held_out_clients


@pytest.mark.parametrize("content", [AS_CSV, json.loads(AS_JSON), AS_NPZ], ids=["csv", "json", "npz"])
def test_each_layout_of_the_page_says_everything_in_any_order(content: Any, tmp_path: Path) -> None:
    assert_same(read_partition(stored(tmp_path, content)), EVERYTHING)


@pytest.mark.parametrize(
    "content",
    ["client,node\n0,5\n1,2\n", {"clients": [{"nodes": [5]}, {"nodes": [2]}]}, {"nodes": [5, 2], "ptr": [0, 1, 2]}],
    ids=["csv", "json", "npz"],
)
def test_node_ids_of_each_client_are_enough(content: Any, tmp_path: Path) -> None:
    found = read_partition(stored(tmp_path, content))
    assert_same(found, StoredPartition(np.array([5, 2]), np.array([0, 1, 2])))


@pytest.mark.parametrize("suffix", FORMATS)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.booleans(), st.booleans(), st.integers(0, 10**6))
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, clients: int, owners: bool, roles: bool, seed: int
) -> None:
    stream = np.random.default_rng(seed)
    parts = [np.sort(stream.choice(30, stream.integers(1, 20), replace=False)) for _ in range(clients)]
    nodes = np.concatenate(parts)
    first = np.zeros(len(nodes), dtype=bool)
    first[np.unique(nodes, return_index=True)[1]] = True
    partition = StoredPartition(
        nodes,
        np.cumsum([0, *map(len, parts)]),
        stream.integers(0, 4, 30)[nodes].astype(np.int8) if roles else None,
        ~first if owners else None,
        np.setdiff1d(np.arange(35), nodes)[:: stream.integers(1, 4)],
    )
    path = tmp_path_factory.mktemp("file") / f"parts{suffix}"
    write_partition(path, partition)
    assert_same(read_partition(path), partition)


def test_everything_is_written_and_read_back(tmp_path: Path) -> None:
    for suffix in FORMATS:
        write_partition(tmp_path / f"parts{suffix}", EVERYTHING)
        assert_same(read_partition(tmp_path / f"parts{suffix}"), EVERYTHING)


TWO = {"nodes": [0, 1], "ptr": [0, 1, 2]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("node,client\n0,0\n1,0\n0,0\n", "line 4: client 0 has node 0 a second time"),
        ("node,client\n0,0\n1,2\n", "client 1 has no node; clients count from 0 without a gap"),
        ("node,client\n0,0\n1.5,0\n", "line 3: column 'node': '1.5' is not a whole number from 0"),
        ("node,client\n0,0\n1\n", "line 3: column 'client': '' is not a whole number from 0"),
        ("node,client\n0,0,1\n", "line 2 has more fields than the first line"),
        ("node,client,role\n0,0,training\n", "line 2: column 'role': 'training' is not train, val, test or empty"),
        ("node,client,copy\n0,0,yes\n", "line 2: column 'copy': 'yes' is not 0 or 1"),
        ("node,klient\n0,0\n", "column 'klient' is not valid. Did you mean 'client'?"),
        ("node\n0\n", "column 'client' is missing"),
        ("", "column 'node' is missing"),
        ("node,client\n", "client 0 has no node"),
        ("node,client,role\n0,0,train\n0,1,test\n", "line 3: node 0 has another role at line 2; give it one role"),
        ("node,client,copy\n0,0,0\n0,1,0\n", "line 2: node 0 is owned by 2 clients"),
        ("node,client,copy\n0,0,1\n1,0,0\n", "line 2: node 0 is owned by 0 clients"),
        ("node,client,held_out\n0,0,0\n0,,1\n", "line 2: node 0 belongs to a client and is also held out"),
        ("node,client,held_out\n0,0,1\n", r"held-out clients are \[0\].* at least one client that trains"),
        ("node,client,held_out\n0,0,1\n1,0,1\n1,1,0\n", "line 3: client 0 is held out and shares node 1"),
        ({"clients": {"0": [1]}}, "'clients' must be a list with one mapping per client"),
        ({"parts": [[0]]}, "'clients' must be a list"),
        ({"clients": [{"nodes": [0]}, {"ids": [1]}]}, r"clients\[1\]: key 'ids' is not valid"),
        ({"clients": [{"nodes": [0, "1"]}]}, r"clients\[0\].nodes must be a list of node ids"),
        ({"clients": [{"nodes": [0], "roles": ["train", "val"]}]}, r"clients\[0\].roles .* for each of 1 nodes"),
        ({"clients": [{"nodes": [0], "copies": [2]}]}, r"clients\[0\].copies contains node 2"),
        ({"clients": [{"nodes": [3, -1]}]}, r"clients\[0\].nodes\[1\]: -1 is not a node id"),
        ({"clients": [{"nodes": [0]}], "heldout": [1]}, "key 'heldout' is not valid. Did you mean 'held_out'?"),
        ({"clients": [{"nodes": [0], "held_out": "no"}]}, r"clients\[0\].held_out must be true or false"),
        ({"nodes": [0, 1]}, "array 'ptr' is missing"),
        ({**TWO, "ptr": [0, 1, 3]}, "array 'ptr' must start at 0, never decrease, and end at 2"),
        ({**TWO, "nodes": [0.0, 1.0]}, r"array 'nodes' is float64 \[2\]; expected a 1-D integer array"),
        ({**TWO, "role": [1]}, "array 'role' has 1 entries; 'nodes' has 2"),
        ({**TWO, "role": [1, 4]}, "array 'role' contains 4; roles are 0 to 3"),
        ({**TWO, "rolle": [1, 2]}, "array 'rolle' is not valid. Did you mean 'role'?"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused_with_the_place(content: Any, message: str, tmp_path: Path) -> None:
    path = stored(tmp_path, content)
    with pytest.raises(PartitionError, match=f"{path}: .*{message}"):
        read_partition(path)


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_file_in_another_format_than_its_name_says_is_refused(suffix: str, tmp_path: Path) -> None:
    (path := tmp_path / f"parts{suffix}").write_text("node,client\n0,0\n")
    with pytest.raises(PartitionError, match=rf"parts{suffix} cannot be read as {suffix[1:]} .*docs/partitions\.md"):
        read_partition(path)
    (huge := tmp_path / "huge.csv").write_text(f"node,client\n{2**70},0\n")
    with pytest.raises(PartitionError, match=r"huge\.csv cannot be read as csv"):
        read_partition(huge)
    with pytest.raises(PartitionError, match=r"parts\.txt: the name .* ends in one of \.npz, \.csv, \.json"):
        read_partition(tmp_path / "parts.txt")
    with pytest.raises(PartitionError, match=r"none\.csv is missing"):
        read_partition(tmp_path / "none.csv")


def config(path: Path | str, **changes: Any) -> dict[str, Any]:
    entry = {"name": "file", "path": str(path), **changes.pop("file", {})}
    return {
        "datasets": ["karate"],
        "partitions": [entry],
        "clients": [2],
        "methods": ["fedavg"],
        "seeds": 1,
        "device": "cpu",
        "training": {"rounds": 4, "hidden": 8},
        **changes,
    }


def halves(folder: Path, *, roles: bool = True, held_out: bool = True, last: int = 33) -> Path:
    """Two clients of karate's nodes 0 to `last`, of which 3 are held out and 3 left out."""
    rows = ["node,client,role,held_out"]
    words = ("train", "val", "test") if roles else ("",)
    rows += [f"{node},{node % 2},{words[node // 2 % len(words)]}," for node in range(last - 5)]
    rows += [f"{node},,,1" for node in range(last - 5, last - 2) if held_out]
    rows += [f"{last},0,,"]
    text = "\n".join(rows) + "\n"
    (path := folder / "halves.csv").write_text(text if roles else text.replace(",role", "").replace(",,", ","))
    return path


def test_a_cell_is_known_by_what_the_file_holds_and_not_by_where_it_lies(tmp_path: Path) -> None:
    path = halves(tmp_path)
    shutil.copy(path, tmp_path / "copy.csv")
    ids = [expand(load_config(config(at))).cells[0].id for at in (path, tmp_path / "copy.csv")]
    assert ids[0] == ids[1]
    cell = expand(load_config(config(path))).cells[0]
    assert cell.partition.file == str(path)
    assert str(tmp_path) not in json.dumps(cell.specs)
    path.write_text(path.read_text().replace("0,0,train,", "0,0,test,"))
    assert expand(load_config(config(path))).cells[0].id != ids[0]


@pytest.mark.parametrize(
    ("changes", "kept", "message"),
    [
        ({"clients": [2, 5]}, {}, r"clients\[1\]: 5: '.*halves.csv' contains 2 clients; with the scheme 'file', give"),
        ({}, {"last": 34}, r"partitions: .*halves.csv names node 34, and 'karate' has the nodes 0 to 33"),
        ({"protocol": {"split": {"kind": "file"}}}, {"roles": False}, "'file': .*halves.csv has no roles; use ratios"),
        (
            {"protocol": {"global_test": "held_out"}},
            {"held_out": False},
            "global_test: 'held_out': .*halves.csv has no held-out nodes; use whole",
        ),
        (
            {"protocol": {"split": {"held_out": 0.2}}},
            {},
            "split.held_out: .*halves.csv already lists the held-out nodes",
        ),
        ({"file": {"sha256": "0" * 64}}, {}, "halves.csv has the SHA-256 .* and the setting sha256 expects 0000"),
        (
            {"protocol": {"split": {"kind": "file"}}, "methods": ["fedavg", "global"]},
            {},
            "'global' trains on the whole graph; leave out 'global', or use another kind",
        ),
        (
            {"protocol": {"global_test": "held_out"}, "methods": ["global"]},
            {},
            "'global' trains on the whole graph, also on the nodes that the scheme holds out",
        ),
    ],
)
def test_a_study_asks_of_a_file_what_it_has(
    changes: dict[str, Any], kept: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(config(halves(tmp_path, **kept), **changes))


def test_the_file_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="partitions: the scheme 'file' needs the 'path' of a partition file"):
        load_config(config(""))
    with pytest.raises(ConfigError, match=r"none\.csv cannot be read \(No such file or directory\)"):
        load_config(config(tmp_path / "none.csv"))
    with pytest.raises(ConfigError, match=r"'file' reads the roles from .* 'random' has no file; use ratios"):
        load_config(config(halves(tmp_path)) | {"partitions": ["random"], "protocol": {"split": {"kind": "file"}}})
    with pytest.raises(ConfigError, match=r"partitions\[0\].sha256"):
        load_config(config(halves(tmp_path), file={"sha256": ["0"]}))
    broken = tmp_path / "broken.csv"
    broken.write_text("node,client\n0,zero\n")
    with pytest.raises(ConfigError, match="line 2: column 'client': 'zero'"):
        load_config(config(broken))


def test_roles_held_out_nodes_and_what_is_left_out_are_those_of_the_file(tmp_path: Path) -> None:
    values = config(halves(tmp_path), protocol={"split": {"kind": "file"}, "global_test": "held_out"})
    done = run_cell(values, tmp_path / "results")
    assert done["outcome"] == "ok", done["reason"]
    (card,) = (tmp_path / "results" / "split").glob("*/*/seed0/card.json")
    numbers = read_json(card)
    assert (numbers["nodes"], numbers["train"], numbers["test"]) == ([15, 14], [5, 5], [4, 4])
    assert (numbers["held_out"], numbers["left_out"]) == (3, 2)
    (metrics,) = (tmp_path / "results" / "evaluate").glob("*/*/*/seed0/metrics.json")
    reading = read_json(metrics)["readings"]["val"]
    assert reading["test"]["accuracy"]["nodes"] == 8
    assert reading["global_test"]["accuracy"]["nodes"] == 2 * 3


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_exported_partition_gives_the_very_same_predictions(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", f"mine{suffix}", "--dataset", "karate", "--scheme", "louvain", "--clients", "2"]) == 0
    assert f"mine{suffix}: 2 clients with 34 nodes and their roles" in capsys.readouterr().out
    values = config(f"mine{suffix}", protocol={"split": {"kind": "file"}})
    again = run_cell(values, tmp_path / "results")
    first = run_cell({**values, "partitions": ["louvain"], "protocol": {}}, tmp_path / "results")
    assert again["cell"] != first["cell"]
    one, other = (read_npz(Path(done["folder"]) / "predictions.npz") for done in (first, again))
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_what_is_held_out_of_an_exported_partition_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--dataset", "karate", "--scheme", "random", "--clients", "2", "--set", "protocol.split.held_out=0.2"]
    assert main(["export", "mine.csv", *options]) == 0
    (split,) = (tmp_path / "results" / "split").glob("*/*/seed0/split.npz")
    arrays = read_npz(split)
    found = read_partition(tmp_path / "mine.csv")
    assert len(found.held_out) == 7
    assert all(np.array_equal(getattr(found, name), arrays[name]) for name in arrays)


def test_export_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--results", str(tmp_path)]
    assert main(["export", str(tmp_path / "mine.txt"), "--dataset", "karate", *where]) == 1
    assert "mine.txt: the name of a partition file ends in one of .npz, .csv, .json" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "mine.csv"), "--dataset", "karate", "--clients", "40", *where]) == 1
    assert "40 clients cannot share the 34 nodes of 'karate'" in capsys.readouterr().err
    assert not list(tmp_path.glob("mine*"))


def test_shared_nodes_have_a_mean_of_their_own_in_records_and_in_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node 0 is a copy at client 1; beside it a partition without shared nodes."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{node},{node % 2},0" for node in range(34)] + ["0,1,1"]
    (tmp_path / "shared.csv").write_text("\n".join(["node,client,copy", *rows]))
    values = config("shared.csv", protocol={"mean": "nodes"})
    options = ["--dataset", "karate", "--scheme", "file", "--set", "path=shared.csv", "--clients", "2", "--rounds", "4"]
    assert main(["train", *options, "--hidden", "8", "--set", "protocol.mean=nodes"]) == 0
    assert " every node once" in capsys.readouterr().out
    shared = run_cell(values, tmp_path / "results")
    assert shared["kept"]
    disjoint = run_cell({**values, "partitions": ["random"]}, tmp_path / "results")
    assert "test_accuracy_nodes" in shared
    assert "test_accuracy_nodes" not in disjoint
    both = load_config({**values, "partitions": [*values["partitions"], "random"]})
    collect(expand(both), "mine", tmp_path / "results", tmp_path / "records")
    runs = pd.read_parquet(tmp_path / "records" / "runs.parquet")
    means = runs[runs["metric"] == "accuracy"].groupby("scheme")["mean"].unique()
    assert {scheme: set(found) for scheme, found in means.items()} == {
        "file": {"pooled", "macro", "nodes"},
        "random": {"pooled", "macro"},
    }
    curves = pd.read_parquet(tmp_path / "records" / "curves.parquet")
    assert curves.groupby("scheme")["val_score"].count().to_dict() == {"file": 4, "random": 4}
