"""SCAFFOLD (Karimireddy et al., ICML 2020, algorithm 1): control variates correct the gradients for client drift.

Local steps follow g_i - c_i + c (eq. 3). After local training c_i+ = c_i - c + (theta - theta_i) / (K lr) (eq. 4,
option II), which under SGD is the mean of the K gradients g_i. The server adds the mean change over all clients to c
(eq. 5); a client that did not train has the change 0.
The server's learning rate is 1. The variates are zero at first: the first round equals FedAvg, and c is not sent in it.

Deviations: under Adam the quotient is no gradient; here c_i+ is the mean gradient itself. Means over clients are
weighted by their training nodes, as in FedAvg; `weights: equal` gives the paper's means.

Defaults:
    weights nodes: differs; the paper has plain means over the clients of a round (eq. 5). As in FedAvg.
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
        self._variates: Parameters = {}  # c_i, [C, ...]
        self._common: Parameters = {}  # c, [1, ...]
        self._turn: tuple[base.Messages, Parameters] | None = None  # received messages, and c - c_i for them, [S, ...]

    def download(self, number: int, clients: np.ndarray) -> dict[str, Tensor]:
        """Return c, which is not sent in the first round.

        Args:
            number: not used.
            clients: [S] int64 ids.

        Returns:
            [S, ...] float32 by name, the same for all clients; empty in the first round, in which c is zero.
        """
        return {name: common.expand(len(clients), *common.shape[1:]) for name, common in self._common.items()}

    def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
        self._mean.add(step, gradients, self.shared(gradients))
        if self._turn is None or self._turn[0] is not step.downloads:
            rows, common = rows_of(step.clients), cast(Mapping[str, Tensor], step.downloads)
            # A method around this one may add messages of its own, which are skipped here.
            turns = {name: c - self._variates[name][rows] for name, c in common.items() if name in self._variates}
            self._turn = step.downloads, turns
        for name, turn in self._turn[1].items():
            gradients[name] += turn

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        """Return the change of each client's variate.

        Args:
            round: the round after local training.

        Returns:
            [S, ...] float32 by name, for the shared parameters that gradients train.
        """
        rows, means = rows_of(round.clients), self._mean.take(round.clients)
        if not self._variates:
            self._variates = {name: torch.zeros_like(round.parameters[name]) for name in means}
        changes = {name: mean - self._variates[name][rows] for name, mean in means.items()}
        for name, change in changes.items():
            self._variates[name][rows] += change
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
