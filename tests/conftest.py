"""Fixtures shared by all tests."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from chosen_pairs import choose
from disks import mount
from own_files import read_again

from fglbench import registry
from fglbench.datasets.base import Graph, canonical_edges

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/golden.json; of all pairs")
    parser.addoption("--pairs", default="core", help="of components: core, all, or a part such as 3/10")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = "all" if config.getoption("--update-golden") else config.getoption("--pairs")
    items[:], left_out = choose(items, wanted)
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The offline mirror of raw datasets; without it, the tests that need it are skipped."""
    folder = Path(os.environ.get("FGLBENCH_MIRROR") or ROOT / "../shared/datasets/raw").resolve()
    if not folder.is_dir():
        pytest.skip(f"no dataset mirror at {folder}; set FGLBENCH_MIRROR to a folder laid out as docs/data.md says")
    return folder


@pytest.fixture
def own_components(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the component folders that a test added, after the test."""
    monkeypatch.setattr(registry, "_extra_folders", [])
    read_again()
    yield
    read_again()


@pytest.fixture
def tiny_graph() -> Graph:
    """Eight nodes in two classes: a triangle 0-1-2 with node 3 attached to 2, a path 4-5-6, and the isolated node 7."""
    edges, cleaning = canonical_edges(np.array([[0, 0, 1, 2, 4, 5], [1, 2, 2, 3, 5, 6]]), 8)
    features = np.zeros((8, 3), dtype=np.float32)
    features[[0, 1, 2, 6], 0] = 1
    features[[3, 4, 5, 7], 1] = 1
    features[[2, 5], 2] = 0.5
    roles = {"train": [0, 3], "val": [1, 4], "test": [2, 5, 6]}
    return Graph(
        edges=edges,
        features=features,
        labels=np.array([0, 0, 0, 1, 1, 1, 0, 1]),
        classes=2,
        masks={role: np.isin(np.arange(8), nodes) for role, nodes in roles.items()},
        cleaning=cleaning,
    )


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB; tests that need it are skipped without the permission to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount(folder, "size=256k")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small file system cannot be mounted here (not root, or not allowed)")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
