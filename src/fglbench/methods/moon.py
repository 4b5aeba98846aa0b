"""MOON (Li, He, Song, CVPR 2021, algorithm 1): representations near the received model's, far from the client's last.

The local loss is the task's loss plus mu times the mean over training nodes (eq. 4 and 5) of -log(e^(sim(z, z_glob) /
T) / (e^(sim(z, z_glob) / T) + e^(sim(z, z_prev) / T))) (eq. 3), where sim is the cosine. z, z_glob and z_prev are the
representations before the classifier under the current parameters, the received parameters, and the parameters after
the client's last training (before its first training: the initial ones). z_glob and z_prev are computed without
gradient and without dropout. Aggregation is FedAvg's. The first round, where z_glob = z_prev, equals FedAvg; with
mu = 0 the whole method does.

Deviation: a backbone has no additional projection head between its representation and the classifier. For a backbone
with one layer (sgc and s2gc by default), the logits are the representation.

Defaults:
    mu 0.01: differs; the paper tunes 0.1, 1, 5 and 10, its code has 1. The middle of FedGTA's range.
    temperature 0.5: the paper's.
"""

from typing import Any

from torch import Tensor

from fglbench.federation.parameters import Parameters, where
from fglbench.methods import base, fedavg
from fglbench.methods.common.contrast import Contrast
from fglbench.settings import ComponentSettings, Field

VERSION = 1


class Settings(ComponentSettings):
    mu: float = Field(0.01, ge=0, description="Weight of the contrastive term.")
    temperature: float = Field(0.5, gt=0, description="T of the contrast.")


class Method(fedavg.Method):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._contrast = Contrast(self.backbone, self.settings.temperature)
        self._previous: Parameters = {}  # after each client's last training, [C, ...]

    def loss(self, step: base.Step) -> Tensor | None:
        if self.settings.mu == 0 or not self._previous:
            return None
        return self.settings.mu * self._contrast.loss(step, [self._previous])

    def client_update(self, round: base.ClientRound, current: Parameters) -> None:
        before = self._previous or round.received
        self._previous = where(round.weights > 0, round.parameters, before)
