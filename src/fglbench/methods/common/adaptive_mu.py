"""FedAvg with a mu that the server adapts to the loss (FedProx, section 5.3.2; Fed-GALA, section 4.2.2).

mu falls by `mu_step` when the loss has fallen in five consecutive rounds; counting then starts again. mu rises by
`mu_step` when the loss rises. It is never below 0. The loss is the mean over the clients that trained, weighted by
their training targets. Each of these clients sends its loss and receives mu. The loss therefore also changes when other
clients are drawn or clients leave. Without `mu_step` mu is constant, and neither loss nor mu is sent.
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
    """The value of mu, which the server adapts after every round.

    Args:
        value: initial mu.
        step: size of a change of mu.

    Attributes:
        value: mu of the next round.
    """

    def __init__(self, value: float, step: float):
        self.value = value
        self._step = step
        self._last, self._falls = math.nan, 0

    def begin(self) -> None:
        """Begin with another loss: its first value counts neither as a rise nor as a fall."""
        self._last, self._falls = math.nan, 0

    def see(self, loss: float) -> None:
        """Adapt mu to the loss of a round.

        Args:
            loss: mean over the clients that trained.
        """
        self._falls = self._falls + 1 if loss < self._last else 0
        if loss > self._last:
            self.value += self._step
        elif self._falls == PATIENCE:
            self.value, self._falls = max(0.0, self.value - self._step), 0
        self._last = loss


class Method(fedavg.Method):
    """Base class of methods with the setting `mu`, which may have the setting `mu_step` as well."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        step = getattr(self.settings, "mu_step", None)
        self._adaptive = AdaptiveMu(self.settings.mu, step) if step else None

    @property
    def mu(self) -> float | None:
        """mu of this round; None without a proximal term."""
        return self._adaptive.value if self._adaptive else self.settings.mu

    def download(self, number: int, clients: np.ndarray) -> base.Messages:
        extra = {"mu": torch.full((len(clients),), self._adaptive.value)} if self._adaptive else {}
        return {**super().download(number, clients), **extra}

    def upload(self, round: base.ClientRound) -> Mapping[str, Tensor]:
        extra = {"loss": torch.from_numpy(round.losses[round.clients])} if self._adaptive else {}
        return {**super().upload(round), **extra}

    def finish(self, phase: Phase, parameters: Parameters) -> base.Prepared | None:
        if self._adaptive:
            self._adaptive.begin()  # the next phase may have another loss
        return super().finish(phase, parameters)

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        super().server_update(round, mixed)
        if self._adaptive:
            sizes = round.counts[round.clients]
            self._adaptive.see(float(np.average(round.uploads["loss"].numpy(), weights=sizes)))
