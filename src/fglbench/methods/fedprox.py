"""FedProx (Li et al., MLSys 2020, eq. 2): FedAvg whose local loss keeps the parameters near the received ones.

The local loss is the task's loss plus mu / 2 ||theta_i - theta||^2 over the shared parameters. The method adds the
gradient of this term, mu (theta_i - theta), directly. This takes a third of the time that autograd needs for the term.
With a fixed mu of 0 the method equals FedAvg. With `mu_step` the server adapts mu to the loss, see
`common/adaptive_mu.py`.

Defaults:
    mu 0.01: differs; the paper tunes 0.001, 0.01, 0.1 and 1 for each dataset. The middle of FedGTA's range.
    mu_step none: the paper's main results; its heuristic has 0.1.
    weights none: the paper's.
"""

from fglbench.federation.parameters import Parameters
from fglbench.methods import base
from fglbench.methods.common import adaptive_mu
from fglbench.settings import AveragedSettings, Field

VERSION = 1


class Settings(AveragedSettings):
    mu: float = Field(0.01, ge=0, description="Weight of the proximal term.")
    mu_step: float | None = Field(None, gt=0, description="What mu changes by as the loss falls or rises; null: fixed.")


class Method(adaptive_mu.Method):
    def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
        if mu := self.mu:
            for name in self.shared(gradients):
                gradients[name] += mu * (step.parameters[name] - step.received[name])
