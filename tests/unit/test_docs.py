"""The method in docs/adding-a-method.md is complete, short, and works as written; docs/fedgta.md shows shipped code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from fglbench import registry
from fglbench.single import run_cell
from fglbench.storage import read_npz

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-method.md"


def block(language: str) -> str:
    """The only block of a language in the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A components folder with the page's method in it, as the page says."""
    folder = tmp_path / "mine"
    (folder / "methods").mkdir(parents=True)
    (folder / "methods" / "fedavgm.py").write_text(block("python"), encoding="utf-8")
    monkeypatch.setattr(registry, "_extra_folders", [])
    yield folder
    for cached in (registry._files, registry.declaration, registry.module):
        cached.cache_clear()


def test_the_method_has_fewer_than_40_lines() -> None:
    assert len(block("python").splitlines()) < 40


def test_the_method_runs_from_the_configuration_of_the_page(tmp_path: Path, mine: Path) -> None:
    histories = {}
    shown = yaml.safe_load(block("yaml"))["methods"]
    for number, entry in enumerate([*shown, {"name": "fedavgm", "beta": 0.0}]):
        values = {
            "datasets": [{"name": "sbm", "nodes": 200, "classes": 3, "features": 8, "signal": 2.0}],
            "partitions": ["random"],
            "clients": [3],
            "methods": [entry],
            "seeds": [0],
            "training": {"rounds": 8, "local_epochs": 1, "hidden": 8},
            "components": [str(mine)],
            "device": "cpu",
        }
        done = run_cell(values, tmp_path / "results")
        assert done["outcome"] == "ok", done["reason"]
        histories[number] = read_npz(Path(done["folder"]) / "history.npz")["train_loss"]
    fedavg, default, strong, without = (histories[number] for number in range(4))
    assert without == pytest.approx(fedavg, rel=1e-5)
    assert default[:2] == pytest.approx(fedavg[:2], rel=1e-5)  # momentum acts from the third round on
    assert default[2:] != pytest.approx(fedavg[2:], rel=1e-3)
    assert strong[2:] != pytest.approx(default[2:], rel=1e-3)


def test_the_hooks_that_the_page_names_are_those_of_the_contract(mine: Path) -> None:
    from fglbench.methods.base import Method

    hooks = {name for name, own in vars(Method).items() if callable(own) and not name.startswith("_")}
    named = set(re.findall(r"\| `(\w+)\(", PAGE.read_text(encoding="utf-8")))
    assert named == hooks
    registry.use_folders([mine])
    assert registry.declaration("method", "fedavgm").settings().model_dump() == {"beta": 0.5}


def test_the_worked_example_shows_the_shipped_file() -> None:
    page = PAGE.with_name("fedgta.md").read_text(encoding="utf-8")
    shipped = registry.declaration("method", "fedgta").path.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    for shown in blocks:
        assert shown in shipped
