"""GBP, graph neural networks by bidirectional propagation (Chen et al., NeurIPS 2020): a decaying sum over hops.

A perceptron acts on the sum over l from 0 to k of beta (1 - beta)^l A^l X. A = D^(r-1) (A + I) D^(-r) with the kernel
coefficient r (0.5: symmetric). The weights are those that FedGTA (section 2.2) gives. The propagation is exact; the
push and random walks of the paper approximate it on graphs that are too large for exact propagation.

Defaults:
    hops 4: FedGTA's range is 2 to 20; the paper's push stops by error, not by hops.
    beta 0.1: the public code's for Cora.
    depth 2: the public code's for Cora.
    hidden 64: the public code's for Cora.
    dropout 0.5: the public code's for Cora.
    r 0.5: the public code's for Cora.
"""

from fglbench.backbones import sgc
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1


class Settings(ComponentSettings):
    hops: int = Field(4, ge=1, le=20, description="Propagation steps k.")
    beta: float = Field(0.1, gt=0, lt=1, description="Decay of the weights beta (1 - beta)^l.")
    depth: int = Field(2, ge=1, description="Linear layers on the propagated features.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layers (depth above 1).")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers (depth above 1).")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")

    def propagation(self) -> Propagation:
        weights = tuple(self.beta * (1 - self.beta) ** hop for hop in range(self.hops + 1))
        return Propagation(r=self.r, hops=self.hops, combine=weights)


class Backbone(sgc.Backbone):
    pass
