"""SIGN, scalable inception graph networks (Frasca et al., 2020): a separate linear map for every hop.

A perceptron acts on the concatenation [X W_0, A X W_1, ..., A^k X W_k]. A = D^(r-1) (A + I) D^(-r) with the kernel
coefficient r (0.5: symmetric). The activation is ReLU, as in the other backbones; the public code has a learned slope.

Defaults:
    hops 3: the public code's.
    depth 2: the paper's equation; the public code has 3.
    hidden 64: differs; the public code has 256 and more. FedGTA's for small graphs.
    dropout 0.5: the public code's for its larger model.
    r 0.5: the paper's.
"""

from typing import Any

import torch

from fglbench.backbones import base, mlp
from fglbench.backbones.base import Dropout
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.federation.step import Output
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1


class Settings(ComponentSettings):
    hops: int = Field(3, ge=1, le=20, description="Propagation steps k.")
    depth: int = Field(2, ge=2, description="Linear layers, those of the hops counted as one.")
    hidden: int = Field(64, ge=1, description="Width of the map of each hop, and of further hidden layers.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers.")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")

    def propagation(self) -> Propagation:
        return Propagation(r=self.r, hops=self.hops, combine="each")


class Backbone(mlp.Backbone):
    def __init__(self, settings: Any, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = settings.hops
        self.branches = settings.hops + 1

    def initial(self, generator: torch.Generator) -> Parameters:
        parameters = {}
        hidden = self.settings.hidden
        for hop in range(self.hops + 1):
            weight, bias = base.linear_start(generator, self.features, hidden)
            parameters[f"0.{hop}.weight"], parameters[f"0.{hop}.bias"] = weight, bias
        layers = base.widths((self.hops + 1) * hidden, hidden, self.outputs, self.settings.depth - 1)
        return parameters | base.linear_layers(generator, layers, first=1)

    def forward(self, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        weights, biases = (
            [parameters[f"0.{hop}.{part}"] for hop in range(self.hops + 1)] for part in ("weight", "bias")
        )
        h = batch.bias(torch.cat(batch.input_linear_per_hop(weights), dim=1), torch.cat(biases, dim=1), level=0)
        return self.perceptron(h, parameters, batch, dropout)
