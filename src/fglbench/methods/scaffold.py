"""SCAFFOLD (Karimireddy et al., ICML 2020, algorithm 1): control variates take the clients' drift out of the gradients.

Local steps follow g_i - c_i + c (eq. 3). Afterwards c_i+ = c_i - c + (theta - theta_i) / (K lr) (eq. 4, option II),
which for SGD is the mean of the K gradients g_i, and the server adds the clients' mean change to c (eq. 5). Server
learning rate 1. The variates are zero at first; the first round is FedAvg's and c is not sent in it.

Deviations: under Adam, where the quotient is no gradient, c_i+ is that mean itself. Means over clients are weighted by
their training nodes, as in FedAvg; `weights: equal` is the paper's.

Defaults:
    weights nodes: differs; the paper has plain means over the clients of a round (eq. 5). As FedAvg weighs.
"""

from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.parameters import Parameters, rows_of, weighted_sum
from fglbench.methods import base
from fglbench.methods.common.mean_gradients import MeanGradients
from fglbench.settings import ComponentSettings, Field

VERSION = 1


class Settings(ComponentSettings):
    weights: Literal["nodes", "equal"] = Field("nodes", description="Clients count by training nodes, or all the same.")


class Method(base.Method):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._mean = MeanGradients(self.federation.num_clients)
        self._own: Parameters = {}  # c_i, [C, ...]
        self._common: Parameters = {}  # c, [1, ...]
        self._turn: tuple[base.Messages, Parameters] | None = None  # what was received, and c - c_i of it, [S, ...]

    def download(self, number: int, clients: np.ndarray) -> dict[str, Tensor]:
        """c, zero in the first round, in which it is not sent."""
        return {name: common.expand(len(clients), *common.shape[1:]) for name, common in self._common.items()}

    def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
        self._mean.add(step, gradients, self.shared(gradients))
        if self._turn is None or self._turn[0] is not step.downloads:
            rows, common = rows_of(step.clients), cast(Mapping[str, Tensor], step.downloads)
            turns = {name: c - self._own[name][rows] for name, c in common.items() if name in self._own}
            self._turn = step.downloads, turns  # an outer method may send more
        for name, turn in self._turn[1].items():
            gradients[name] += turn

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        """The change of each client's variate, as large as its parameters."""
        rows, means = rows_of(round.clients), self._mean.take(round.clients)
        if not self._own:
            self._own = {name: torch.zeros_like(round.parameters[name]) for name in means}
        changes = {name: mean - self._own[name][rows] for name, mean in means.items()}
        for name, change in changes.items():
            self._own[name][rows] += change
        return changes

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        weights = round.weights if self.settings.weights == "nodes" else (round.weights > 0).to(round.weights.dtype)
        return {base.SHARED: weights / weights.sum()}

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        sizes = (round.counts if self.settings.weights == "nodes" else round.counts > 0).astype(np.float32)
        shares = torch.from_numpy((sizes / sizes.sum())[round.clients]).to(round.weights.device)
        for name, change in round.uploads.items():
            common = self._common.setdefault(name, torch.zeros_like(round.parameters[name][:1]))
            common += weighted_sum(shares, change)
