"""Simple graph convolution (Wu et al., ICML 2019, eq. 8): softmax(A^k X W + b), a linear model on propagated features.

A = D^(r-1) (A + I) D^(-r) with the kernel coefficient r (0.5: symmetric). With depth above 1 the linear map becomes a
perceptron on A^k X (FedGTA searches 2 to 6 layers for its scalable models).

Defaults:
    hops 2: the paper's.
    depth 1: the paper's.
    hidden 64: FedGTA's for small graphs; not read at depth 1.
    dropout 0.5: FedGTA's public code's; not read at depth 1.
    r 0.5: the paper's.
"""

from typing import Any

from fglbench.backbones import mlp
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1


class Settings(ComponentSettings):
    hops: int = Field(2, ge=1, le=20, description="Propagation steps k.")
    depth: int = Field(1, ge=1, description="Linear layers on the propagated features; 1 is the paper's model.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layers (depth above 1).")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers (depth above 1).")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")

    def propagation(self) -> Propagation:
        return Propagation(r=self.r, hops=self.hops)


class Backbone(mlp.Backbone):
    def __init__(self, settings: Any, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = settings.hops
