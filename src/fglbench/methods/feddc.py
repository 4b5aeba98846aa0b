"""FedDC (Gao et al., CVPR 2022, algorithm 1): every client learns its drift h_i, which the server adds to the mean.

Clients minimise the task's loss + alpha / 2 ||theta_i + h_i - theta||^2 (eq. 3) + <theta_i, d_i - d> / (K lr). Here d_i
is the client's last local update, and d is the mean of all last updates (eq. 4). After local training
h_i += theta_i - theta (eq. 6). The server averages theta_i + h_i over the clients that trained, weighted by their
training nodes (eq. 7). Drifts and updates are zero at first.

Deviations: -d_i / (K lr) is the mean of the K gradients of the whole local loss under SGD; here it is this mean under
any optimiser. The mean d, over the last updates of all clients, is weighted by training nodes too. Where K differs by
client, d / (K lr) is the mean of d_j / (K_j lr). The public code sums d_i - d over the rounds, adds the drifts of all
clients to the mean, and weighs clients equally.

The drifts act as a momentum of 1, which the local steps themselves and alpha damp. Adam lags behind the gradient, so
that the loss oscillates under it; a larger alpha reduces the oscillation. The recursion of the public code oscillates
under Adam as well.

`variant: openfgl` (the default) follows OpenFGL, which is by FedGTA's authors and trains with Adam. Its second term is
literally <theta_i, d_i> / (K lr), without d, and it adds an update to the drift one round later. This term pulls every
client back from its last update, which damps the drifts. Deviation: in OpenFGL the first round has neither term; here
it has the first term. The server sends d as in OpenFGL, and d counts in bytes, although no client reads it.
`variant: paper` is for `optimiser: sgd`.

Defaults:
    alpha 0.01: the public code's.
    variant openfgl: differs; OpenFGL's reading. The paper's oscillates or diverges under Adam, the default optimiser.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.parameters import Parameters, by_client, rows_of, weighted_sum
from fglbench.methods import base, fedavg
from fglbench.methods.common.mean_gradients import MeanGradients
from fglbench.settings import ComponentSettings, Field

VERSION = 1
IN_LABEL = "variant"


class Settings(ComponentSettings):
    alpha: float = Field(0.01, ge=0, description="Weight of the pull towards the received parameters less the drift.")
    variant: Literal["openfgl", "paper"] = Field(
        "openfgl", description="OpenFGL's reading, which trains under Adam, or the paper's algorithm, which needs SGD."
    )


class Method(fedavg.Method):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._mean = MeanGradients(self.federation.num_clients)
        self._drift: Parameters = {}  # h_i, [C, ...]
        self._literal = self.settings.variant == "openfgl"
        self._names: list[str] = []  # shared parameters that gradients train; buffers have no drift
        self._variates: Parameters = {}  # -d_i / (K lr), [C, ...]
        self._common: Parameters = {}  # -d / (K lr), [1, ...]
        self._pull: Parameters = {}  # alpha (h_i - theta) + (d_i - d) / (K lr), [C, ...]; openfgl omits d

    def download(self, number: int, clients: np.ndarray) -> dict[str, Tensor]:
        return {name: common.expand(len(clients), *common.shape[1:]) for name, common in self._common.items()}

    def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
        """Add the gradients of the two terms in place.

        The first summand is alpha theta_i. All other summands are constant within a round.

        Args:
            step: the local step.
            gradients: [S, ...] by name, of all trained parameters.
        """
        rows, names = rows_of(step.clients), self.shared(gradients)
        self._names = names
        for name in names:
            pull = self._pull[name][rows] if self._pull else step.received[name] * -self.settings.alpha
            gradients[name].add_(step.parameters[name], alpha=self.settings.alpha).add_(pull)
        if not self._literal:
            self._mean.add(step, gradients, names)

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        """Return -d_i / (K lr) of each client.

        The communicated parameters stand for theta_i + h_i, because the server needs only this sum.

        Args:
            round: the round after local training.

        Returns:
            [S, ...] float32 by name, for the shared parameters that gradients train.
        """
        if not self._literal:
            return self._mean.take(round.clients)
        rows = rows_of(round.clients)
        updates = {name: round.received[name][rows] - round.parameters[name][rows] for name in self._names}
        lengths = self._lengths(round)
        return {name: update / by_client(lengths, update) for name, update in updates.items()}

    def _lengths(self, round: base.ClientRound | base.Round) -> Tensor:
        """Return K lr of the round's clients, [S] float32."""
        steps = round.schedule.steps(round.counts[round.clients])
        return torch.from_numpy((round.schedule.lr * steps).astype(np.float32)).to(round.weights.device)

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        everyone = torch.from_numpy((round.counts / round.counts.sum()).astype(np.float32)).to(round.weights.device)
        rows, trained, lengths = rows_of(round.clients), self.aggregate(round)[base.SHARED], self._lengths(round)
        for name, gradient in round.uploads.items():
            now, before = round.parameters[name], round.received[name]
            drift = self._drift.setdefault(name, torch.zeros_like(now))
            variate = self._variates.setdefault(name, torch.zeros_like(now))
            drift[rows] += -by_client(lengths, now) * variate[rows] if self._literal else now[rows] - before[rows]
            variate[rows] = gradient
            self._common[name] = weighted_sum(everyone, variate).unsqueeze(0)
            mixed[name] = mixed[name] + weighted_sum(trained, drift)
            self._pull[name] = self.settings.alpha * (drift - mixed[name]) - variate
            if not self._literal:
                self._pull[name] += self._common[name]
