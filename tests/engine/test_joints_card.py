"""All joints at once on the pretended card: nothing stays behind on the CPU, and the numbers are the CPU's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from federations import TASK, Case, backbone_of, schedule_of
from laws import make_five
from peers import CLASSES, Squares
from pretend_card import on_card, pretend_card
from test_joints_leaving import After
from test_joints_steps import maml
from torch import Tensor

from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import LocalPrivacy, Schedule
from fglbench.federation.server import ServerModel
from fglbench.methods import base, fedavg
from fglbench.methods.common.phases import Phase
from fglbench.settings import ComponentSettings


class Everything(fedavg.Method):
    """Phases, leaving, groups, a parameter and downloads of its own, a server's model, other graphs."""

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> base.Prepared:
        self._device = device
        self._server = ServerModel({"scale": torch.ones(CLASSES)}, 0.1, 0.0, device)
        return super().prepare(seed, device, chunk_clients)

    def initial(self, parameters: Parameters, stream: torch.Generator) -> Parameters:
        return parameters | {"goal": torch.randn(CLASSES, generator=stream)}

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {"first": [name for name in names if name.startswith("0.")], "last": ["1.bias"]}

    def phases(self, schedule: Schedule) -> Sequence[Phase]:
        side = backbone_of(self.federation, "mlp", hidden=4, depth=2)
        own = fedavg.Method(ComponentSettings(), side, self.federation)
        return [
            Phase("side", 2, Squares, backbone=side, method=own),
            Phase("early", 3, stop_rule=After({0: 0}), leavers_count=True),
            Phase("ahead", 2, local_step=maml),
        ]

    def download(self, number: int, clients: np.ndarray) -> base.Messages:
        pull = torch.ones(len(clients), 1, device=self._device)
        return {"pull": pull, "pulls": list(pull)}

    def loss(self, step: base.Step) -> Tensor:
        pull = step.downloads["pull"]
        assert isinstance(pull, Tensor)
        weight = (pull + torch.stack(list(step.downloads["pulls"]))).squeeze(1)
        return weight * (step.parameters["1.bias"] - step.parameters["goal"]).square().sum(1)

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        weights = round.weights / round.weights.sum()
        return {"first": weights, "last": weights.expand(len(weights), -1)}

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        self._server.step(lambda own: (own["scale"][0] * mixed["1.bias"][0] - 1).square().sum())
        mixed["1.bias"] = mixed["1.bias"] * self._server.values()["scale"]

    def server_parameters(self) -> Parameters:
        return self._server.values()

    def finish(self, phase: Phase, parameters: Parameters) -> base.Prepared | None:
        same = self.federation.with_edges(self.federation.adjacency)
        return base.Prepared(same) if phase.name == "early" else None


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


@pytest.mark.parametrize("chunk", [None, 2])
def test_joints_on_a_card(five: Case, chunk: int | None) -> None:
    def run(device: str) -> Result:
        federation = five.federation("gcn", norm="batch")
        backbone = backbone_of(federation, "gcn", hidden=8, norm="batch")
        method: Any = Everything(ComponentSettings(), backbone, federation)
        ldp = LocalPrivacy(clip=0.01, noise=0.001)
        schedule = schedule_of(batch_size=2, participation=0.8, ldp=ldp)
        return train(federation, method, TASK, schedule, 3, device=device, chunk_clients=chunk)

    here = run("cpu")
    assert here.state == "ok"
    assert here.history["phase"].tolist() == ["early"] * 3 + ["ahead"] * 2
    assert (here.parameters["last"]["0.norm.mean"] != 0).any()
    with pretend_card():
        there = run("cuda")
        for reading, parameters in there.parameters.items():
            for name, tensor in parameters.items():
                assert on_card(tensor), name
                assert torch.equal(tensor.cpu(), here.parameters[reading][name]), name
        assert on_card(there.server["scale"])
        assert torch.equal(there.server["scale"].cpu(), here.server["scale"])
    for name in set(here.history) - {"train_seconds"}:
        np.testing.assert_array_equal(there.history[name], here.history[name])
    np.testing.assert_array_equal(there.mixing["mixing"], here.mixing["mixing"])
