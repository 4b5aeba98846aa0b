"""Simple spectral graph convolution (Zhu and Koniusz, ICLR 2021): the mean of A^l X over the hops, mixed with X.

The model is linear: softmax((1 / k) sum over l from 1 to k of ((1 - alpha) A^l X + alpha X) W + b).
A = D^(r-1) (A + I) D^(-r) with the kernel coefficient r (0.5: symmetric). With depth above 1 the linear map becomes a
perceptron. FedGTA (section 2.2) writes the plain sum over l from 0 to k, which is alpha = 1 / (k + 1) up to a factor.

Defaults:
    hops 16: the paper's.
    alpha 0.05: the paper's.
    depth 1: the paper's.
    hidden 64: FedGTA's for small graphs; not read at depth 1.
    dropout 0.5: FedGTA's public code's; not read at depth 1.
    r 0.5: the paper's.
"""

from fglbench.backbones import sgc
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1


class Settings(ComponentSettings):
    hops: int = Field(16, ge=1, le=20, description="Propagation steps k.")
    alpha: float = Field(0.05, ge=0, le=1, description="Share of the unpropagated features.")
    depth: int = Field(1, ge=1, description="Linear layers on the propagated features; 1 is the paper's model.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layers (depth above 1).")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers (depth above 1).")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")

    def propagation(self) -> Propagation:
        each = (1 - self.alpha) / self.hops
        return Propagation(r=self.r, hops=self.hops, combine=(self.alpha, *[each] * self.hops))


class Backbone(sgc.Backbone):
    pass
