"""FedAvg with a mu that the server adapts to the loss (FedProx, section 5.3.2; Fed-GALA, section 4.2.2).

mu falls by `mu_step` when the loss has fallen in five rounds on end, and these are then counted anew; it rises by
`mu_step` when the loss rises, and is never below 0. The loss is the mean over the clients that trained, by training
targets: each sends its own, and receives mu. So it also moves as other clients are drawn or clients leave. Without
`mu_step` mu stays, and nothing is sent.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.parameters import Parameters
from fglbench.methods import base, fedavg
from fglbench.methods.common.phases import Phase

PATIENCE = 5


class AdaptiveMu:
    """mu, as the server changes it after every round.

    Args:
        value: its start.
        step: what it changes by.

    Attributes:
        value: of the next round.
    """

    def __init__(self, value: float, step: float):
        self.value = value
        self._step = step
        self._last, self._falls = math.nan, 0

    def begin(self) -> None:
        """Another loss begins: the first one seen neither rises nor falls."""
        self._last, self._falls = math.nan, 0

    def see(self, loss: float) -> None:
        """Adapts mu to the loss of a round."""
        self._falls = self._falls + 1 if loss < self._last else 0
        if loss > self._last:
            self.value += self._step
        elif self._falls == PATIENCE:
            self.value, self._falls = max(0.0, self.value - self._step), 0
        self._last = loss


class Method(fedavg.Method):
    """Base of methods with the setting `mu`, and those with `mu_step` beside it."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        step = getattr(self.settings, "mu_step", None)
        self._adaptive = AdaptiveMu(self.settings.mu, step) if step else None

    @property
    def mu(self) -> float | None:
        """Of this round."""
        return self._adaptive.value if self._adaptive else self.settings.mu

    def download(self, number: int, clients: np.ndarray) -> base.Messages:
        own = {"mu": torch.full((len(clients),), self._adaptive.value)} if self._adaptive else {}
        return {**super().download(number, clients), **own}

    def upload(self, round: base.ClientRound) -> Mapping[str, Tensor]:
        own = {"loss": torch.from_numpy(round.losses[round.clients])} if self._adaptive else {}
        return {**super().upload(round), **own}

    def finish(self, phase: Phase, parameters: Parameters) -> base.Prepared | None:
        """The next phase may have another loss."""
        if self._adaptive:
            self._adaptive.begin()
        return super().finish(phase, parameters)

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        super().server_update(round, mixed)
        if self._adaptive:
            sizes = round.counts[round.clients]
            self._adaptive.see(float(np.average(round.uploads["loss"].numpy(), weights=sizes)))
