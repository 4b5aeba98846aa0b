"""FedVGAE (Xue et al., 2024; algorithm 1): shared encoder, contrast with earlier models, local fine-tuning.

Clients minimise the task's loss plus lambda times the contrast (eq. 10, 11). The contrast draws representations towards
those of the global model that the server sent, and away from those of the client's last trained models. A queue holds
the last `queue` of these models (with 1 the contrast is MOON's). The server averages the encoders, weighted by the
clients' training targets. The read-out is the backbone's head, which stays with its client unless `share: all`. The
inner product of link prediction has no parameters. The backbone of the paper is `vgae`.

After aggregation each client that trained scores the received parameters on its validation targets. If the score is
more than `drop` below that of the model that the client has just trained, the client replaces them by phi times its own
parameters plus 1 - phi times the received ones (eq. 12). It repeats this on the result, at most `adjustments` times.

Deviations: algorithm 1 compares the received model with that of the round before, on a sampled batch, when a client is
drawn. Here it is compared with the client's own model (section 4.1), on all validation targets, at the end of a round.
A client that does not train in a later round receives the aggregated parameters then, and loses its mixture. Eq. 2
weights clients by nodes; the training targets of link prediction are edges. There is no early stopping. The text leaves
open how a queue of several models enters eq. 10 (here as further terms of the denominator) and how often the mixing is
repeated.

Defaults:
    contrast_weight 0.8: the paper's lambda.
    temperature 0.5: MOON's public code; the paper gives none.
    queue 1: MOON's; the paper gives none.
    share encoder: the paper's.
    phi 0.5: the paper's best of 0.1 to 0.9.
    drop 0.01: the paper's 1 percentage point.
    adjustments 3: ours; the paper speaks of multiple adjustments.
    no_contrast false: the paper's.
    no_fine_tuning false: the paper's.
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.parameters import Parameters, where
from fglbench.methods import base, fedavg
from fglbench.methods.common.contrast import Contrast
from fglbench.settings import ComponentSettings, Field

VERSION = 1


class Settings(ComponentSettings):
    contrast_weight: float = Field(0.8, ge=0, description="Lambda, the weight of the contrast.")
    temperature: float = Field(0.5, gt=0, description="T of the contrast.")
    queue: int = Field(1, ge=1, le=20, description="Earlier models of a client that the contrast keeps away from.")
    share: Literal["encoder", "all"] = Field("encoder", description="What is averaged: all but the head, or all.")
    phi: float = Field(0.5, ge=0, le=1, description="Share of the client's own parameters when they are mixed in.")
    drop: float = Field(0.01, ge=0, description="Drop of the validation score beyond which a client mixes.")
    adjustments: int = Field(3, ge=1, description="Most mixings of a client in a round.")
    no_contrast: bool = Field(False, description="Ablation: no contrast.")
    no_fine_tuning: bool = Field(False, description="Ablation: the received parameters are taken as they are.")


class Method(fedavg.Method):
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._contrast = Contrast(self.backbone, self.settings.temperature)
        self._queue: list[Parameters] = []  # after each client's last training rounds, newest first, [C, ...]
        self._received: Parameters = {}  # what the server sent last, before fine-tuning, [C, ...]

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        personal = self.backbone.head if self.settings.share == "encoder" else []
        return {base.SHARED: [name for name in names if name not in personal]}

    def loss(self, step: base.Step) -> Tensor | None:
        if self.settings.no_contrast or self.settings.contrast_weight == 0 or not self._queue:
            return None
        return self.settings.contrast_weight * self._contrast.loss(step, self._queue, self._received)

    def client_update(self, round: base.ClientRound, current: Parameters) -> None:
        self._received = dict(current)
        if not self.settings.no_contrast:
            self._remember(round)
        if not self.settings.no_fine_tuning:
            self._fine_tune(round, current)

    def _remember(self, round: base.ClientRound) -> None:
        """Add the trained model of each client that trained to its queue."""
        trained, newest = round.weights > 0, round.parameters
        moved = [newest, *self._queue][: self.settings.queue]
        stayed = [*self._queue, round.received][: len(moved)]
        self._queue = [where(trained, new, old) for new, old in zip(moved, stayed, strict=True)]

    def _fine_tune(self, round: base.ClientRound, current: Parameters) -> None:
        """Mix the clients' own parameters into the received ones where these score worse."""
        least = round.validation(round.parameters) - self.settings.drop
        trained, names = np.isin(np.arange(len(least)), round.clients), self.shared(current)
        for _ in range(self.settings.adjustments):
            worse = trained & (round.validation(current) < least)  # nan gives False: no fine-tuning without a score
            if not worse.any():
                return
            chosen = torch.from_numpy(worse).to(round.weights.device)
            mixed = {name: current[name].lerp(round.parameters[name], self.settings.phi) for name in names}
            current |= where(chosen, mixed, current)
