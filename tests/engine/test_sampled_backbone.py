"""A backbone whose nodes read ego-graphs goes through the whole loop, and its sampler is part of a cell's identity."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import TASK, method_of, schedule_of, tiny_case, with_links

from fglbench import registry
from fglbench.config.expand import expand
from fglbench.config.load import load_config
from fglbench.config.schema import Study
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.errors import ConfigError
from fglbench.federation.federation import Federation
from fglbench.tasks import task_of
from fglbench.workflow.single import run_cell

EGO = '''"""GraphSAGE on ego-graphs: every node of a tree reads the mean of its children."""

import torch

from fglbench.backbones import base
from fglbench.federation.step import Output
from fglbench.samplers import sampler_of
from fglbench.samplers.tree import level_sizes
from fglbench.settings import Field, Propagation, SampledSettings

VERSION = 1


class Settings(SampledSettings):
    hidden: int = Field(8, description="Width of the hidden layer.")

    def propagation(self):
        return Propagation()


class Backbone(base.Backbone):
    head = ["1.own.weight", "1.bias"]

    def __init__(self, settings, features, outputs):
        super().__init__(settings, features, outputs)
        self.hops = self.propagations = 0
        self.sampler = sampler_of(settings)
        self.sizes = level_sizes(settings.sampler_settings.get("fanouts", [6, 6]))

    def initial(self, generator):
        parameters = {}
        widths = base.widths(self.features, self.settings.hidden, self.outputs, 2)
        for layer, (rows, columns) in enumerate(widths):
            parameters[f"{layer}.own.weight"], parameters[f"{layer}.bias"] = base.linear_start(generator, rows, columns)
            parameters[f"{layer}.children.weight"] = base.linear_start(generator, rows, columns)[0]
        return parameters

    def forward(self, parameters, batch, dropout):
        own, children = (
            batch.gather(batch.input_linear(parameters[f"0.{part}.weight"])).split(self.sizes, dim=1)
            for part in ("own", "children")
        )
        levels = []
        for level in range(2):
            mean = children[level + 1].unflatten(1, (self.sizes[level], -1)).mean(2)
            levels.append(batch.bias(own[level] + mean, parameters["0.bias"]).relu())
        root, first = levels[0].squeeze(1), levels[1].mean(1)
        out = batch.linear(root, parameters["1.own.weight"]) + batch.linear(first, parameters["1.children.weight"])
        return Output(batch.bias(out, parameters["1.bias"]), root)
'''


@pytest.fixture
def ego(tmp_path: Path, own_components: None) -> Path:
    """A components folder with the backbone `ego`."""
    (tmp_path / "mine" / "backbones").mkdir(parents=True)
    (tmp_path / "mine" / "backbones" / "ego.py").write_text(EGO, encoding="utf-8")
    registry.use_folders([tmp_path / "mine"])
    return tmp_path / "mine"


def run(federation: Federation, method: str, chunk: int | None, redraw: str, **schedule: Any) -> Result:
    settings = registry.declaration("backbone", "ego").settings(sampler_settings={"fanouts": [3, 2], "redraw": redraw})
    backbone = registry.module("backbone", "ego").Backbone(settings, federation.num_features, federation.classes)
    federated = method_of(federation, backbone, method, **({"mu": 1.0} if method == "moon" else {}))
    return train(federation, federated, TASK, schedule_of(**schedule), 0, chunk_clients=chunk)


@pytest.mark.parametrize("redraw", ["never", "epoch", "step"])
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "moon", "fedgta"])
def test_chunks_change_nothing_and_the_same_seed_repeats(
    tmp_path: Path, ego: Path, method: str, batch_size: int | None, redraw: str
) -> None:
    federation = tiny_case(tmp_path).federation("gcn", propagate=False)
    made = partial(run, federation, method, redraw=redraw, batch_size=batch_size)
    together, again, apart = made(chunk=None), made(chunk=None), made(chunk=1)
    assert together.state == "ok"
    for name, tensor in together.parameters["last"].items():
        assert torch.equal(tensor, again.parameters["last"][name])
        torch.testing.assert_close(tensor, apart.parameters["last"][name], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(together.predictions["last"], apart.predictions["last"])


def test_redraws_differ_from_one_draw(tmp_path: Path, ego: Path) -> None:
    federation = tiny_case(tmp_path).federation("gcn", propagate=False)
    once, anew = (run(federation, "local", None, redraw) for redraw in ("never", "epoch"))
    assert not torch.equal(once.parameters["last"]["0.own.weight"], anew.parameters["last"]["0.own.weight"])


def study(components: Path, **sampler: Any) -> dict[str, Any]:
    return {
        "datasets": [{"name": "sbm", "nodes": 200, "classes": 3, "features": 8, "signal": 2.0}],
        "partitions": ["random"],
        "clients": [3],
        "methods": ["fedavg"],
        "backbones": [{"name": "ego", **sampler}],
        "seeds": [0],
        "training": {"rounds": 10, "local_epochs": 2},
        "components": [str(components)],
        "device": "cpu",
    }


def test_a_cell_learns_and_is_known_by_its_samplers_settings_and_version(tmp_path: Path, ego: Path) -> None:
    done = run_cell(study(ego), tmp_path / "results")
    assert done["outcome"] == "ok", done["reason"]
    assert done["test_accuracy_pooled"] > 0.6  # a third by chance
    given = [{}, {"sampler_settings": {"fanouts": [6, 6]}}, {"sampler_settings": {"fanouts": [3, 3]}}]
    plain = {key: value for key, value in study(ego).items() if key not in ("components", "device")}
    cells = [expand(Study.model_validate({**plain, "backbones": [{"name": "ego", **own}]})).cells[0] for own in given]
    assert cells[0].id == cells[1].id != cells[2].id
    spec = cells[0].method.spec["backbone"]
    assert spec["sampler_version"] == registry.declaration("sampler", "tree").version
    assert spec["settings"]["sampler_settings"] == {"redraw": "epoch", "fanouts": [6, 6]}


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"sampler": "tee"}, "backbones[0].sampler: 'tee' is not a sampler. Did you mean 'tree'?"),
        ({"sampler_settings": {"fanout": [2]}}, "backbones[0].sampler_settings"),
    ],
)
def test_a_wrong_sampler_is_refused_before_anything_runs(ego: Path, own: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(study(ego, **own), "config.yaml")
    assert said in str(refused.value)


def test_links_are_predicted_from_samples_whatever_the_batches_of_evaluation(
    ego: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's pairs need the embeddings of all its nodes at once."""
    case = with_links(tiny_case(tmp_path / "case", sizes=(30, 20)), tmp_path / "links", (0.5, 0.2, 0.3))
    federation, task = case.federation("gcn"), task_of({"task": {"name": "link-prediction", "settings": {}}})
    settings = registry.declaration("backbone", "ego").settings(sampler_settings={"fanouts": [3, 2]})
    backbone = registry.module("backbone", "ego").Backbone(settings, federation.num_features, None)

    def trained(chunk: int | None = None) -> Result:
        return train(federation, method_of(federation, backbone, "fedavg"), task, schedule_of(), 0, chunk_clients=chunk)

    together = trained()
    monkeypatch.setattr("fglbench.engine.samples._EVALUATED_AT_ONCE", 7)
    for other in (trained(), trained(1)):
        np.testing.assert_allclose(other.predictions["last"], together.predictions["last"], atol=1e-4)
    assert federation.pairs is not None
    assert len(together.predictions["last"]) == len(federation.pairs.ends) > 0
