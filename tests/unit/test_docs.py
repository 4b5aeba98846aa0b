"""The method in docs/adding-a-method.md is complete, short, and works as written, and so are the study of
docs/adding-a-study.md and the sampler of docs/adding-a-sampler.md; docs/fedgta.md shows shipped code; docs/data.md
names the files of every dataset."""

import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

from fglbench import registry
from fglbench.config.load import load_study
from fglbench.config.searches import plan_searches
from fglbench.datasets import catalogue
from fglbench.reporting.reference import COLUMNS, load_reference
from fglbench.settings import SamplerSettings
from fglbench.storage import read_npz
from fglbench.workflow import studies
from fglbench.workflow.plan import Plan
from fglbench.workflow.single import run_cell

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-method.md"


def block(language: str) -> str:
    """The only block of a language in the page."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def mine(tmp_path: Path, own_components: None) -> Path:
    """A components folder with the page's method in it, as the page says."""
    folder = tmp_path / "mine"
    (folder / "methods").mkdir(parents=True)
    (folder / "methods" / "fedavgm.py").write_text(block("python"), encoding="utf-8")
    return folder


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

    hooks = {name for name, own in vars(Method).items() if callable(own) and not name.startswith("_")} - {"shared"}
    named = set(re.findall(r"\| `(\w+)\(", PAGE.read_text(encoding="utf-8")))
    assert named == hooks
    registry.use_folders([mine])
    assert registry.declaration("method", "fedavgm").settings().model_dump() == {"beta": 0.5}


def test_the_worked_example_shows_the_shipped_file() -> None:
    page = PAGE.with_name("fedgta.md").read_text(encoding="utf-8")
    shipped = registry.declaration("method", "fedgta").path.read_text(encoding="utf-8")
    parts = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(parts) == 4
    for shown in parts:
        assert shown in shipped


def blocks(page: str, language: str) -> str:
    """All blocks of a language in a page, one after the other."""
    text = PAGE.with_name(page).read_text(encoding="utf-8")
    return "".join(re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def test_the_study_of_the_page_is_sound_and_every_printed_number_is_for_one_of_its_cells(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "my-paper.csv").write_text(blocks("adding-a-study.md", "csv"), encoding="utf-8")
    (tmp_path / "my-paper.yaml").write_text(blocks("adding-a-study.md", "yaml"), encoding="utf-8")
    grid = {"datasets": ["karate"], "partitions": ["random"], "clients": [2], "methods": ["fedavg"]}
    expansion = Plan(grid, "config.yaml", tmp_path).studies["my-paper"]
    numbers = load_reference(tmp_path / "reference" / "my-paper.csv")
    cells = set()
    for placement in expansion.placements:
        own = {"method": placement.method, "backbone": placement.backbone, "variant": ""}
        own |= expansion.printed.get(placement.label, {})
        dataset = expansion.names["dataset"][placement.dataset].removesuffix("-lcc")
        cells.add((dataset, *own.values(), placement.scheme, str(placement.clients)))
    fields = ["dataset", "method", "backbone", "variant", "partition", "clients"]
    printed = numbers.loc[numbers["task"] != "stats", fields].itertuples(index=False, name=None)
    assert set(printed) <= cells
    searched = {tuple(search.space) for search in plan_searches(load_study(tmp_path / "my-paper.yaml"))}
    assert searched == {("settings.mu", "backbone_settings.depth"), ("backbone_settings.depth",)}


def test_the_page_of_studies_names_all_reserved_names_and_columns() -> None:
    page = PAGE.with_name("adding-a-study.md").read_text(encoding="utf-8")
    (named,) = re.findall(r"Reserved are (.*?)\. ", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", named)) == studies.RESERVED
    (table,) = re.findall(r"\| column \| holds \|\n(.*?)\n\n", page, re.DOTALL)
    described = [name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert described == list(COLUMNS)


def test_the_page_of_data_names_the_folder_of_every_dataset() -> None:
    page = PAGE.with_name("data.md").read_text(encoding="utf-8")
    rows = {
        name: row.split("|")[2].strip(" `")
        for row in re.findall(r"^\| (?!datasets|---).*$", page, re.MULTILINE)
        for name in row.split("|")[1].strip().split(", ")
    }
    specs = [catalogue.get(name) for name in catalogue.names()]
    assert set(rows) == {spec.name for spec in specs if spec.needs_files}
    for spec in specs:
        assert all(path.startswith(f"{rows[spec.name]}/") for path in spec.raw_files)
    for name in ("amazon_electronics_photo.npz", "role.json", "split/sales_ranking", "ind.pubmed."):
        assert name in page


def test_the_sampler_of_the_page_walks_and_restarts(tmp_path: Path, own_components: None) -> None:
    (tmp_path / "samplers").mkdir()
    (tmp_path / "samplers" / "walk.py").write_text(blocks("adding-a-sampler.md", "python"), encoding="utf-8")
    registry.use_folders([tmp_path])
    settings = registry.declaration("sampler", "walk").settings
    assert settings().model_dump() == {"redraw": "epoch", "length": 8, "restart": 0.15}
    ring = sp.csr_matrix(np.roll(np.eye(50, dtype=np.float32), 1, axis=1))  # each node leads to the next one alone
    draw = registry.module("sampler", "walk").Sampler(settings(restart=0.5), ring).draw
    walks = draw(np.arange(40), [0, 40], [np.random.default_rng(0)])
    assert walks.shape == (40, 9)
    steps = (walks - np.arange(40)[:, None]) % 50
    assert (steps[:, :2] == [0, 1]).all()
    restarted = steps[:, 2:] == 1
    assert (restarted | (steps[:, 2:] == steps[:, 1:-1] + 1)).all()
    assert 0.4 < restarted.mean() < 0.6


def test_the_page_of_samplers_says_of_every_value_when_it_draws() -> None:
    page = PAGE.with_name("adding-a-sampler.md").read_text(encoding="utf-8")
    values = get_args(SamplerSettings.model_fields["redraw"].annotation)
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(values)


def on_blocks(tmp_path: Path, kind: str, name: str, page: str, **values: Any) -> dict[str, Any]:
    """A cell of a small block model with the component of a page, which is written where the page says."""
    (tmp_path / "mine" / kind).mkdir(parents=True, exist_ok=True)
    (tmp_path / "mine" / kind / f"{name}.py").write_text(blocks(page, "python"), encoding="utf-8")
    small = {
        "datasets": [{"name": "sbm", "nodes": 200, "classes": 3, "features": 8, "signal": 2.0}],
        "partitions": ["random"],
        "clients": [3],
        "seeds": [0],
        "training": {"rounds": 15, "local_epochs": 2},
        "components": [str(tmp_path / "mine")],
        "device": "cpu",
    }
    done = run_cell({**small, **values}, tmp_path / "results")
    assert done["outcome"] == "ok", done["reason"]
    return done


def test_the_module_of_the_page_runs_under_the_methods_that_it_names(tmp_path: Path, own_components: None) -> None:
    shown = yaml.safe_load(blocks("adding-a-backbone.md", "yaml"))
    for method in shown["methods"]:
        values = {"backbones": shown["backbones"][1:], "methods": [method]}
        done = on_blocks(tmp_path, "backbones", "gatv2", "adding-a-backbone.md", **values)
        assert done["test_accuracy_pooled"] > 0.6  # a third by chance


def test_the_page_of_backbones_names_what_a_backbone_says() -> None:
    from fglbench.backbones.base import Backbone

    page = PAGE.with_name("adding-a-backbone.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    named = {name.split("(")[0] for row in rows for name in re.findall(r"`([\w.]+)", row)} - {"Settings.propagation"}
    assert named <= {*vars(Backbone), *Backbone.__annotations__}


def test_the_task_of_the_page_learns_degrees_and_is_shown_by_its_own_score(
    tmp_path: Path, own_components: None
) -> None:
    shown = yaml.safe_load(blocks("adding-a-task.md", "yaml"))
    page = "adding-a-task.md"
    found = []
    for method in (*shown["methods"], "local"):
        values = {"protocol": shown["protocol"], "backbones": ["sage"], "methods": [method]}
        done = on_blocks(tmp_path, "tasks", "degree", page, **values)
        history = read_npz(Path(done["folder"]) / "history.npz")
        assert history["train_loss"][-1].mean() < history["train_loss"][0].mean()
        assert (done["metric"], done["selected_round"]) == ("closeness", history["val_closeness"].sum(1).argmax())
        found.append(done["test_closeness_pooled"])
    assert all(0.3 < score < 1 for score in found)
    assert len(set(found)) == 3


def test_the_page_of_tasks_names_the_whole_contract() -> None:
    from fglbench.tasks.base import Task

    page = PAGE.with_name("adding-a-task.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    others = {"METRICS", "OF_LOGITS", "OWN_ROLES", "TARGETS", "pairs", "None"}
    named = {name for row in rows for name in re.findall(r"`(\w+)", row)} - others
    assert named == {name for name, own in vars(Task).items() if callable(own) and not name.startswith("_")}
