"""FedProx (Li et al., MLSys 2020, eq. 2): FedAvg whose local loss keeps the parameters near the received ones.

Local loss + mu / 2 ||theta_i - theta||^2 over the shared parameters. With mu = 0 it is FedAvg.
"""

from torch import Tensor

from fglbench.methods import base, fedavg
from fglbench.settings import ComponentSettings, Field

VERSION = 1


class Settings(ComponentSettings):
    mu: float = Field(0.01, ge=0, description="Weight of the proximal term.")


class Method(fedavg.Method):
    def loss(self, step: base.Step) -> Tensor | None:
        if self.settings.mu == 0:
            return None
        distance = [
            (step.parameters[name] - step.received[name]).square().flatten(1).sum(1)
            for name in self.shared(list(step.parameters))
        ]
        return self.settings.mu / 2 * sum(distance[1:], start=distance[0])
