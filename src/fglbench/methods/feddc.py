"""FedDC (Gao et al., CVPR 2022, algorithm 1): every client learns its drift h_i, which the server takes into the mean.

Local loss + alpha / 2 ||theta_i + h_i - theta||^2 (eq. 3) + <theta_i, d_i - d> / (K lr), d_i the client's last local
update and d the mean of all (eq. 4). Afterwards h_i += theta_i - theta (eq. 6), and the server averages theta_i + h_i
over those who trained, by their training nodes (eq. 7). Drifts and updates are zero at first.

Deviations: -d_i / (K lr), which for SGD is the mean of the K gradients of the whole local loss, is that mean under any
optimiser. d is the mean over all clients' last updates by their training nodes too, and d / (K lr) that of
d_j / (K_j lr) where K differs by client. The public code adds up d_i - d over the rounds, takes the
drifts of all clients into the mean, and weighs clients equally.

The drifts act as a momentum of 1, damped by the local steps themselves and by alpha: Adam, which lags behind the
gradient, lets the loss swing, the less the larger alpha is. The public code's own recursion swings under Adam as well.

`variant: openfgl` (the default) is the reading of OpenFGL, which is by FedGTA's authors and trains with Adam: the
second term is <theta_i, d_i> / (K lr) without d, literally, and a drift takes an update a round later. It turns every
client back from its last update, which damps the drifts. Deviation: there the first round has neither term, here it has
the first one. d is sent and counts in bytes, as it is sent there, though nothing reads it. `variant: paper` is for
`optimiser: sgd`.

Defaults:
    alpha 0.01: the public code's.
    variant openfgl: differs; OpenFGL's reading. The paper's swings or diverges under Adam, the default optimiser.
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
        self._names: list[str] = []  # of what gradients train and is shared: there is no drift of buffers
        self._own: Parameters = {}  # -d_i / (K lr), [C, ...]
        self._common: Parameters = {}  # -d / (K lr), [1, ...]
        self._pull: Parameters = {}  # alpha (h_i - theta) + (d_i - d) / (K lr), openfgl: without d, [C, ...]

    def download(self, number: int, clients: np.ndarray) -> dict[str, Tensor]:
        return {name: common.expand(len(clients), *common.shape[1:]) for name, common in self._common.items()}

    def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
        """Adds the gradients of the two terms: alpha theta_i, and what is the same in every step of a round."""
        rows, names = rows_of(step.clients), self.shared(gradients)
        self._names = names
        for name in names:
            pull = self._pull[name][rows] if self._pull else step.received[name] * -self.settings.alpha
            gradients[name].add_(step.parameters[name], alpha=self.settings.alpha).add_(pull)
        if not self._literal:
            self._mean.add(step, gradients, names)

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        """-d_i / (K lr); theta_i + h_i, of which the server needs the sum alone, travels as the parameters."""
        if not self._literal:
            return self._mean.take(round.clients)
        rows = rows_of(round.clients)
        updates = {name: round.received[name][rows] - round.parameters[name][rows] for name in self._names}
        lengths = self._lengths(round)
        return {name: update / by_client(lengths, update) for name, update in updates.items()}

    def _lengths(self, round: base.ClientRound | base.Round) -> Tensor:
        """[S] float32: K lr of the round's clients."""
        steps = round.schedule.steps(round.counts[round.clients])
        return torch.from_numpy((round.schedule.lr * steps).astype(np.float32)).to(round.weights.device)

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        everyone = torch.from_numpy((round.counts / round.counts.sum()).astype(np.float32)).to(round.weights.device)
        rows, trained, lengths = rows_of(round.clients), self.aggregate(round)[base.SHARED], self._lengths(round)
        for name, gradient in round.uploads.items():
            now, before = round.parameters[name], round.received[name]
            drift = self._drift.setdefault(name, torch.zeros_like(now))
            own = self._own.setdefault(name, torch.zeros_like(now))
            drift[rows] += -by_client(lengths, now) * own[rows] if self._literal else now[rows] - before[rows]
            own[rows] = gradient
            self._common[name] = weighted_sum(everyone, own).unsqueeze(0)
            mixed[name] = mixed[name] + weighted_sum(trained, drift)
            self._pull[name] = self.settings.alpha * (drift - mixed[name]) - own
            if not self._literal:
                self._pull[name] += self._common[name]
