"""What comes from elsewhere: configurations that want out of the results folder, pickles where arrays are expected."""

import ast
import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from fglbench.config.expand import expand
from fglbench.config.load import load_config
from fglbench.errors import ConfigError, StorageError
from fglbench.records.split import load_split
from fglbench.reporting.names import figure_files, table_files
from fglbench.stages.preprocess import load_federation
from fglbench.storage import hash_file, read_json, read_npz, write_json
from fglbench.workflow.plan import Plan

SOURCE = Path(__file__).parents[2] / "src" / "fglbench"
HOSTILE = ["../../../etc/passwd", "/etc/passwd", "..", "a/../../b", "x\0y", "~root", "$(reboot)", "a;b", "C:\\x", "\n"]
VALUES = {"datasets": ["karate"], "partitions": ["random"], "clients": [2], "methods": ["local"]}


@pytest.mark.parametrize("text", HOSTILE)
def test_labels_reach_no_path(text: str):
    named = {"methods": [{"name": "local", "label": text}], "datasets": [{"name": "karate", "label": text}]}
    config = load_config({**VALUES, **named, "backbones": [{"name": "gcn", "label": text}], "title": text})
    for cell in expand(config).cells:
        for stage in ("download", "split", "preprocess", "train", "evaluate"):
            assert re.fullmatch(r"[a-z]+(/[a-z0-9][a-z0-9.+-]*)+", cell.folder(stage))
    files = table_files(config.tables, config.reference) + figure_files(config.figures)
    assert all(re.fullmatch(r"[a-z0-9_-]+\.[a-z]+", name) for name in files)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "place",
    [
        lambda text: {"results": text},
        lambda text: {"datasets": [text]},
        lambda text: {"methods": [text]},
        lambda text: {"partitions": [text]},
        lambda text: {"studies": [text]},
        lambda text: {"tables": [{"name": text, "title": "T"}]},
        lambda text: {"figures": [{"name": text, "title": "T", "kind": "label_heatmap"}]},
    ],
)
def test_names_that_become_paths_are_refused(place, text: str, tmp_path: Path):
    with pytest.raises(ConfigError):
        load_config({**VALUES, **place(text)}, studies=tmp_path)


def test_a_reference_outside_its_folder_is_refused(tmp_path: Path):
    (tmp_path / "studies" / "reference").mkdir(parents=True)
    (tmp_path / "outside.csv").write_text("table\n1\n")
    with pytest.raises(ConfigError, match=r"'\.\./\.\./outside' is not a file of printed numbers"):
        Plan({**VALUES, "reference": "../../outside"}, "my.yaml", tmp_path / "studies")


class Attack:
    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.target),)


def test_no_stage_runs_a_pickle_that_lies_where_results_are_expected(tmp_path: Path):
    target = tmp_path / "harmed"
    attack = np.array([Attack(target)], dtype=object)
    np.savez(tmp_path / "split.npz", nodes=attack, ptr=attack, role=attack)
    write_json(tmp_path / "card.json", {"sha256": hash_file(tmp_path / "split.npz")})
    np.savez(tmp_path / "federation.npz", nodes=attack)
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Attack(target)))
    (tmp_path / "graph.json").write_bytes(pickle.dumps(Attack(target)))
    for read in (
        lambda: load_split(tmp_path),
        lambda: load_federation(tmp_path, tmp_path, {"hops": 0}),
        lambda: read_npz(tmp_path / "raw.npz"),
        lambda: read_json(tmp_path / "graph.json"),
    ):
        with pytest.raises(StorageError):
            read()
    assert not target.exists()
    pickle.loads((tmp_path / "raw.npz").read_bytes())
    assert target.exists()  # the attack works where a pickle is loaded


def test_only_the_readers_of_raw_files_know_pickles():
    """Every call that could load one is looked at in the source: imports, numpy's switch, torch's reader."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {"pickle", "joblib", "dill", "shelve", "marshal"} & {name.split(".")[0] for name in names}:
                found.add(path.relative_to(SOURCE).as_posix())
            if isinstance(node, ast.Attribute) and node.attr in ("read_pickle", "from_pickle"):
                found.add(path.relative_to(SOURCE).as_posix())
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load"):
                assert any(word.arg == "allow_pickle" and word.value.value is False for word in node.keywords), path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) != "torch.load", path
    assert found == {"datasets/raw.py", "datasets/torch_file.py"}
