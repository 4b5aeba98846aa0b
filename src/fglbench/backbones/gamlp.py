"""GAMLP, graph attention multi-layer perceptron (Zhang et al., KDD 2022): every node weighs its own hops.

Recursive attention: hop l has the score e_l = sigmoid(s . [H_l, A^l X] + b), where the history H_l is the sum of the
hops before it, weighted by the softmax of their scores, and H_0 = X. A perceptron acts on the sum over l from 0 to k of
softmax(e)_l A^l X. A = D^(r-1) (A + I) D^(-r) with the kernel coefficient r (0.5: symmetric).

Scores and perceptron meet the propagated features in linear maps only, so that A^l X need not be formed. Deviations
from the public code: no label branch, no dropout on features and attention, a plain perceptron.
"""

from typing import Any

import torch

from fglbench.backbones import base, mlp
from fglbench.backbones.base import Dropout, Output
from fglbench.federation.federation import View
from fglbench.federation.parameters import Parameters
from fglbench.settings import ComponentSettings, Field

VERSION = 1


class Settings(ComponentSettings):
    hops: int = Field(3, ge=1, le=20, description="Propagation steps k.")
    depth: int = Field(3, ge=1, description="Linear layers on the weighted hops.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layers.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers.")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")

    def prepared(self) -> dict[str, Any]:
        return {"r": self.r, "hops": self.hops, "combine": "each"}


class Backbone(mlp.Backbone):
    def __init__(self, settings: Any, features: int, classes: int):
        super().__init__(settings, features, classes)
        self.hops = settings.hops

    def initial(self, generator: torch.Generator) -> Parameters:
        weight, bias = base.linear_start(generator, 2 * self.features, 1)
        history, own = weight.view(2, self.features)
        attention = {"attention.weight": torch.stack([history, own], dim=1), "attention.bias": bias}
        return super().initial(generator) | attention

    def forward(self, parameters: Parameters, view: View, dropout: Dropout) -> Output:
        # One map for all hops: the first layer of the perceptron beside the two parts of s, [S, features, out + 2].
        weight = torch.cat([parameters["0.weight"], parameters["attention.weight"]], dim=2)
        out = parameters["0.weight"].shape[2]
        mapped, history, own = zip(*(product.split([out, 1, 1], dim=1) for product in view.each([weight])), strict=True)
        past = torch.cat(history, dim=1)
        scores: list[torch.Tensor] = []
        for hop in range(self.hops + 1):
            before = (past[:, :hop] * torch.cat(scores, dim=1).softmax(1)).sum(1, keepdim=True) if hop else history[0]
            scores.append(view.bias(before + own[hop], parameters["attention.bias"], level=0).sigmoid())
        share = torch.cat(scores, dim=1).softmax(1)
        h = share[:, :1] * mapped[0]
        for hop in range(1, self.hops + 1):
            h = h + share[:, hop : hop + 1] * mapped[hop]
        return self.perceptron(view.bias(h, parameters["0.bias"], level=0), parameters, view, dropout)
