"""The evaluate stage from files to files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fglbench.errors import StorageError
from fglbench.stages.evaluate import evaluate
from fglbench.storage import hash_file, read_json, write_json, write_npz

LABELS = np.array([0, 1, 2, 0, 1, 2])
NODES = np.array([0, 3, 4, 1, 2, 5])  # client 0 has nodes 0, 3, 4; client 1 has 1, 2, 5
ROLE = np.array([1, 3, 3, 2, 3, 0], dtype=np.int8)


SPLIT = {"nodes": NODES, "ptr": np.array([0, 3, 6]), "role": ROLE}


def make_run(
    root: Path,
    seed: int = 0,
    outcome: dict | None = None,
    method: dict | None = None,
    parts: dict[str, np.ndarray] = SPLIT,
    **more: np.ndarray,
) -> tuple[Path, Path, Path]:
    """Args: method, more settings in the run's specification; parts, the split; more, further arrays of the
    predictions."""
    graph, split, train = root / "graph", root / "split", root / "train"
    write_npz(graph / "graph.npz", {"labels": LABELS, "edges": np.zeros((2, 0), np.int64)})
    write_json(graph / "graph.json", {"sha256": hash_file(graph / "graph.npz")})
    write_npz(split / f"seed{seed}" / "split.npz", parts)
    sha256 = hash_file(split / f"seed{seed}" / "split.npz")
    write_json(split / f"seed{seed}" / "card.json", {"sha256": sha256})
    folder = train / f"seed{seed}"
    right = LABELS[NODES].astype(np.int32)
    worse = right.copy()
    worse[1] = 2  # a test node of client 0
    arrays = {"val": worse, "last": right, "test": right}
    rounds = {f"{name}_round": np.int64(i) for i, name in enumerate(arrays)}
    write_npz(folder / "predictions.npz", arrays | rounds | more)
    run = {
        "cell": "cell-1",
        "seed": seed,
        "settings": {"method": method or {}},
        "split": sha256,
        "outcome": outcome or {"state": "ok", "round": None, "reason": None},
        "bytes_up": 12,
        "bytes_down": 34,
        "train_seconds": 1.25 + seed,
        "host": "somewhere",
        "files": {"predictions.npz": hash_file(folder / "predictions.npz")},
    }
    write_json(folder / "run.json", run)
    return train, split, graph


def test_readings_and_roles(tmp_path):
    evaluate(*make_run(tmp_path), [0], tmp_path / "out")
    metrics = read_json(tmp_path / "out" / "seed0" / "metrics.json")
    assert metrics["cell"] == "cell-1"
    assert (metrics["bytes_up"], metrics["bytes_down"]) == (12, 34)
    assert {name: reading["round"] for name, reading in metrics["readings"].items()} == {"val": 0, "last": 1, "test": 2}
    chosen = metrics["readings"]["val"]
    assert chosen["test"]["accuracy"]["clients"] == [0.5, 1.0]
    assert chosen["test"]["accuracy"]["pooled"] == pytest.approx(2 / 3)
    assert chosen["test"]["accuracy"]["macro"] == 0.75
    assert chosen["val"]["accuracy"] == {
        "pooled": 1.0,
        "macro": 1.0,
        "clients": [None, 1.0],
        "evaluated": 1,
        "of": 2,
        "nodes": 1,
    }
    assert chosen["train"]["accuracy"]["nodes"] == 1
    assert metrics["readings"]["last"]["test"]["accuracy"]["pooled"] == 1.0


def test_equal_predictions_give_equal_bytes_without_timings(tmp_path):
    first = make_run(tmp_path / "a")
    second = make_run(tmp_path / "b")
    run = read_json(second[0] / "seed0" / "run.json")
    write_json(second[0] / "seed0" / "run.json", run | {"train_seconds": 99.0, "host": "elsewhere"})
    evaluate(*first, [0], tmp_path / "out-a")
    evaluate(*second, [0], tmp_path / "out-b")
    one, other = ((tmp_path / f"out-{name}" / "seed0" / "metrics.json").read_bytes() for name in "ab")
    assert one == other
    assert b"seconds" not in one
    assert b"host" not in one


def test_a_run_that_did_not_end_well_has_no_readings(tmp_path):
    outcome = {"state": "diverged", "round": 4, "reason": "loss is not finite"}
    train, split, graph = make_run(tmp_path, outcome=outcome)
    (train / "seed0" / "predictions.npz").unlink()
    evaluate(train, split, graph, [0], tmp_path / "out")
    metrics = json.loads((tmp_path / "out" / "seed0" / "metrics.json").read_text())
    assert metrics["outcome"] == outcome
    assert metrics["readings"] == {}


def test_altered_predictions_are_refused_by_name(tmp_path):
    train, split, graph = make_run(tmp_path)
    path = train / "seed0" / "predictions.npz"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(
        StorageError, match=r"seed0/predictions\.npz does not match its checksum.*'fglbench verify --repair'"
    ):
        evaluate(train, split, graph, [0], tmp_path / "out")
    assert not (tmp_path / "out" / "seed0" / "metrics.json").exists()


def test_missing_predictions_are_refused_by_name(tmp_path):
    train, split, graph = make_run(tmp_path)
    (train / "seed0" / "predictions.npz").unlink()
    with pytest.raises(StorageError, match=r"predictions\.npz is missing although run\.json says 'ok'"):
        evaluate(train, split, graph, [0], tmp_path / "out")


def test_a_split_of_another_size_is_refused(tmp_path):
    smaller = make_run(tmp_path / "a", parts={"nodes": NODES[:5], "ptr": np.array([0, 3, 5]), "role": ROLE[:5]})
    with pytest.raises(StorageError, match="'val' has 6 entries, but the split has 5"):
        evaluate(*smaller, [0], tmp_path / "out")
    other = make_run(tmp_path / "b", parts={**SPLIT, "nodes": NODES + 1})
    with pytest.raises(StorageError, match="names node 6, but the graph has 6 nodes"):
        evaluate(*other, [0], tmp_path / "out")


def test_several_seeds_each_get_a_file(tmp_path):
    make_run(tmp_path, seed=0)
    train, split, graph = make_run(tmp_path, seed=3)
    evaluate(train, split, graph, [0, 3], tmp_path / "out")
    assert sorted(path.parent.name for path in tmp_path.glob("out/*/metrics.json")) == ["seed0", "seed3"]


def test_evaluation_and_reporting_import_no_torch():
    modules = "fglbench.stages.evaluate, fglbench.stages.tables, fglbench.stages.figures, fglbench.stages.report"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_file_names_are_known_without_pandas():
    code = "import sys, fglbench.reporting.names; sys.exit(bool({'pandas', 'numpy', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_a_split_made_anew_is_not_scored_with_old_predictions(tmp_path):
    train, split, graph = make_run(tmp_path)
    write_npz(split / "seed0" / "split.npz", {"nodes": NODES, "ptr": np.array([0, 2, 6]), "role": ROLE})
    write_json(split / "seed0" / "card.json", {"sha256": hash_file(split / "seed0" / "split.npz")})
    with pytest.raises(StorageError, match="trained on another split"):
        evaluate(train, split, graph, [0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def readings_of(value: np.ndarray, name: str) -> dict[str, np.ndarray]:
    return {f"{reading}_{name}": value for reading in ("val", "last", "test")}


@pytest.mark.parametrize("kind", ["whole", "held_out"])
def test_the_global_test_scores_every_model_on_the_same_nodes(tmp_path, kind):
    """Test nodes of the clients: 2, 3 and 4, of classes 2, 0, 1; the first model has one of them right, the second
    two."""
    predicted = np.array([[2, 1, 2], [2, 0, 2]], dtype=np.int32)
    parts = SPLIT | ({"held_out": np.array([2, 3, 4])} if kind == "held_out" else {})
    folders = make_run(tmp_path, method={"global_test": kind}, parts=parts, **readings_of(predicted, "global"))
    evaluate(*folders, [0], tmp_path / "out")
    found = read_json(tmp_path / "out" / "seed0" / "metrics.json")["readings"]["last"]["global_test"]
    assert found["accuracy"] == {
        "pooled": 0.5,
        "macro": pytest.approx(0.5),
        "clients": [pytest.approx(1 / 3), pytest.approx(2 / 3)],
        "evaluated": 2,
        "of": 2,
        "nodes": 6,
    }


def test_a_model_that_all_clients_share_is_predicted_once_and_counts_for_each(tmp_path):
    predicted = np.array([[2, 1, 1]], dtype=np.int32)
    folders = make_run(tmp_path, method={"global_test": "whole"}, **readings_of(predicted, "global"))
    evaluate(*folders, [0], tmp_path / "out")
    found = read_json(tmp_path / "out" / "seed0" / "metrics.json")["readings"]["val"]["global_test"]["accuracy"]
    assert found["clients"] == [pytest.approx(2 / 3)] * 2
    assert (found["evaluated"], found["of"], found["nodes"]) == (2, 2, 6)


def test_a_global_test_of_other_nodes_is_refused(tmp_path):
    folders = make_run(tmp_path, method={"global_test": "whole"}, **readings_of(np.zeros((1, 2), np.int32), "global"))
    with pytest.raises(StorageError, match="'val_global' has 2 entries, but the split has 3"):
        evaluate(*folders, [0], tmp_path / "out")


def test_logits_add_auc_average_precision_and_loss(tmp_path):
    certain = np.log(np.array([0.2, 0.3, 0.5]))
    logits = np.stack([certain] * 6).astype(np.float32)
    more = readings_of(logits, "logits") | readings_of(logits[None, :3], "global_logits")
    more |= readings_of(np.full((1, 3), 2, dtype=np.int32), "global")
    folders = make_run(tmp_path, method={"logits": True, "global_test": "whole"}, **more)
    evaluate(*folders, [0], tmp_path / "out")
    reading = read_json(tmp_path / "out" / "seed0" / "metrics.json")["readings"]["val"]
    # Client 0 tests nodes of classes 0 and 1, client 1 one node of class 2, where nothing can be ranked.
    assert reading["test"]["loss"]["clients"] == [
        pytest.approx(-(np.log(0.2) + np.log(0.3)) / 2, abs=1e-6),
        pytest.approx(-np.log(0.5), abs=1e-6),
    ]
    assert reading["test"]["auc"]["clients"] == [0.5, None]
    assert reading["test"]["auc"]["evaluated"] == 1
    assert reading["global_test"]["ap"]["clients"] == [pytest.approx(1 / 3)] * 2


def test_shared_nodes_have_a_mean_over_nodes(tmp_path):
    """Node 3 is tested at both clients and wrong at the first; node 4 is right at the first."""
    parts = {"nodes": np.array([0, 3, 4, 1, 3, 5]), "ptr": np.array([0, 3, 6]), "role": np.array([1, 3, 3, 2, 3, 0])}
    right = LABELS[parts["nodes"]].astype(np.int32)
    wrong = right.copy()
    wrong[1] = 2
    train, split, graph = make_run(tmp_path, parts=parts, val=wrong, last=right, test=right)
    evaluate(train, split, graph, [0], tmp_path / "out")
    readings = read_json(tmp_path / "out" / "seed0" / "metrics.json")["readings"]
    entry = readings["val"]["test"]["accuracy"]
    assert (entry["pooled"], entry["macro"], entry["node_mean"]) == (pytest.approx(2 / 3), 0.75, 0.75)
    assert readings["last"]["test"]["accuracy"]["node_mean"] == 1.0


def test_stored_weights_give_a_weighted_mean_of_every_score(tmp_path):
    """Client 0 has one of its two test nodes right, client 1 its only one; on the global test a third and two."""
    predicted = np.array([[2, 1, 2], [2, 0, 2]], dtype=np.int32)
    arrays = readings_of(predicted, "global") | readings_of(np.array([3.0, 1.0], dtype=np.float32), "weights")
    evaluate(*make_run(tmp_path, method={"global_test": "whole"}, **arrays), [0], tmp_path / "out")
    found = read_json(tmp_path / "out" / "seed0" / "metrics.json")["readings"]["val"]
    assert found["test"]["accuracy"]["weighted"] == 0.625
    assert found["val"]["accuracy"]["weighted"] == 1.0  # client 0 has no validation node
    assert found["global_test"]["accuracy"]["weighted"] == pytest.approx((3 / 3 + 2 / 3) / 4)
