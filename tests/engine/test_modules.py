"""Ordinary modules as backbones: the same numbers as the stacked gcn, and any method with layers that are not ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import TASK, Case, backbone_of, method_of, schedule_of, tiny_case
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.nn import GATv2Conv, GCNConv, TransformerConv

from fglbench.backbones.common.modules import ModuleBackbone
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.settings import ComponentSettings, Field, Propagation

LAYERS: Mapping[str, type[nn.Module]] = {"GCNConv": GCNConv, "GATv2Conv": GATv2Conv, "TransformerConv": TransformerConv}
METHODS = ("local", "fedavg", "fedprox", "fedper", "scaffold", "moon", "feddc", "gcfl+", "fedgta", "fedgl")


class Settings(ComponentSettings):
    hidden: int = Field(8)
    dropout: float = Field(0.5)
    layer: str = Field("GCNConv")
    norm: bool = Field(False)

    def propagation(self) -> Propagation:
        return Propagation()


class TwoLayers(nn.Module):
    def __init__(self, features: int, outputs: int, settings: Settings):
        super().__init__()
        layer = LAYERS[settings.layer]
        self.rate = settings.dropout
        self.first = layer(features, settings.hidden)
        self.norm = nn.BatchNorm1d(settings.hidden) if settings.norm else nn.Identity()
        self.last = layer(settings.hidden, outputs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.norm(self.first(x, edge_index)).relu()
        return self.last(dropout(h, self.rate, self.training), edge_index)


class Backbone(ModuleBackbone):
    model = TwoLayers


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return tiny_case(tmp_path_factory.mktemp("modules"))


def made(federation: Federation, **settings: Any) -> Backbone:
    return Backbone(Settings(**settings), federation.num_features, federation.classes)


def run(federation: Federation, backbone: Any, method: str, chunk: int | None = None, **own: Any) -> Result:
    federated = method_of(federation, backbone, method, **own)
    assert federated.not_applicable() is None
    result = train(federation, federated, TASK, schedule_of(), 0, chunk_clients=chunk)
    assert result.state == "ok"
    return result


def largest_difference(one: Parameters, other: Parameters) -> float:
    return max(float((tensor - other[name]).abs().max()) for name, tensor in one.items())


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "moon", "fedper"])
def test_a_module_of_gcn_layers_is_the_stacked_gcn(tmp_path: Path, method: str, sparse: bool) -> None:
    federation = tiny_case(tmp_path, sparse=sparse).federation("gcn")
    stacked, module = backbone_of(federation, "gcn", hidden=8, dropout=0.0), made(federation, dropout=0.0)
    start = stacked.initial(torch.Generator().manual_seed(0))
    names = {"0": "first", "1": "last"}

    def renamed(parameters: Mapping[str, Tensor]) -> Parameters:
        found = {}
        for layer, child in names.items():
            found[f"{child}.bias"] = parameters[f"{layer}.bias"]
            found[f"{child}.lin.weight"] = parameters[f"{layer}.weight"].mT.contiguous()
        return found

    stacked.initial = lambda generator: dict(start)  # type: ignore[method-assign]
    module.initial = lambda generator: renamed(start)  # type: ignore[method-assign]
    own = {"mu": 1.0} if method == "moon" else {}
    one, other = (run(federation, backbone, method, **own) for backbone in (stacked, module))
    for reading in ("val", "last"):
        assert largest_difference(renamed(one.parameters[reading]), other.parameters[reading]) < 1e-5
    np.testing.assert_allclose(one.history["train_loss"], other.history["train_loss"], atol=1e-5)
    np.testing.assert_array_equal(one.history["val_correct"], other.history["val_correct"])


@pytest.mark.parametrize("settings", [{"layer": "GATv2Conv"}, {"layer": "TransformerConv"}, {"norm": True}], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_any_method_trains_it_and_chunks_change_nothing(case: Case, method: str, settings: dict[str, Any]) -> None:
    federation = case.federation("gcn", propagate=False)
    together = run(federation, made(federation, **settings), method)
    apart = run(federation, made(federation, **settings), method, chunk=1)
    # A bias before normalisation has no gradient but rounding errors, which Adam takes for one.
    tolerance = 1e-3 if "norm" in settings else 1e-5
    assert largest_difference(together.parameters["last"], apart.parameters["last"]) < tolerance
    again = run(federation, made(federation, **settings), method)
    assert largest_difference(together.parameters["last"], again.parameters["last"]) == 0
    first = made(federation, **settings).initial(torch.Generator().manual_seed(0))
    assert all((together.parameters["last"][name] != first[name]).any() for name in first)


def test_its_dropout_leaves_the_global_generator_as_it_was(case: Case) -> None:
    federation = case.federation("gcn")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    run(federation, made(federation), "fedavg")
    assert torch.equal(torch.rand(3), expected)


def test_head_norms_and_buffers_are_known_by_the_modules_children(case: Case) -> None:
    federation = case.federation("gcn")
    backbone = made(federation, norm=True)
    assert sorted(backbone.head) == ["last.bias", "last.lin.weight"]
    statistics = ["norm.running_mean", "norm.running_var"]
    assert sorted(backbone.norms) == ["norm.bias", *statistics, "norm.weight"]
    assert sorted(backbone.buffers(torch.Generator())) == statistics


def test_running_statistics_are_averaged_by_fedavg_and_stay_at_the_client_under_fedbn(case: Case) -> None:
    federation = case.federation("gcn")
    alike, apart = (run(federation, made(federation, norm=True), method) for method in ("fedavg", "fedbn"))
    for name in ("norm.running_mean", "norm.weight"):
        shared, personal = alike.parameters["last"][name], apart.parameters["last"][name]
        assert (shared == shared[:1]).all()
        assert not torch.allclose(personal[0], personal[1])
    assert (alike.parameters["last"]["norm.running_mean"] != 0).any()
