"""GAMLP, graph attention multi-layer perceptron (Zhang et al., KDD 2022): every node weighs its own hops.

The score of hop l is e_l = sigmoid(s . [reference_l, A^l X] + b), l from 0 to k, with one of the paper's references:

    recursive  the history H_l: the sum of the hops before l, weighted by the softmax of their scores; H_0 = X
    jk         the concatenation of all hops, [X, A X, ..., A^k X], the same for every hop

A perceptron with PReLU acts on the sum over l of softmax(e)_l A^l X, as in the paper. FedGTA (section 2.2) instead
writes A^k X beside a weighted sum of the hops before it. A = D^(r-1) (A + I) D^(-r) with the kernel coefficient r (0.5:
symmetric). The weights of the perceptron start in Glorot's range for rectifiers, as in FedGTA's public code.

Scores and perceptron use the propagated features in linear maps only, so that A^l X need not be computed explicitly.

Deviations from GAMLP's public code: there is no label branch, and no dropout on features and attention; jk compares
each hop with the hops themselves instead of a perceptron of them.

Deviations from FedGTA's public code, which do not affect its accuracy: in its jk a node gets scores of other nodes (it
views hop-major scores as node-major), while here each node has its own scores; its layers share one slope of PReLU,
while here each layer has its own.

Defaults:
    hops 3: FedGTA's public code's; the paper tunes it.
    depth 3: FedGTA's public code's; the paper tunes it.
    hidden 64: FedGTA's for small graphs; the paper has 256 and more.
    dropout 0.5: FedGTA's public code's.
    r 0.5: the paper's.
    attention recursive: the paper's first; FedGTA's public code has jk.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from fglbench.backbones import base
from fglbench.backbones.base import Dropout
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.federation.step import Output
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 2

_FEW_HOPS = 4


class Settings(ComponentSettings):
    hops: int = Field(3, ge=1, le=20, description="Propagation steps k.")
    depth: int = Field(3, ge=1, description="Linear layers on the weighted hops.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layers.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers.")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")
    attention: Literal["recursive", "jk"] = Field("recursive", description="What a hop's score compares it with.")

    def propagation(self) -> Propagation:
        # Dense propagated features only cost time here, more with every hop. Up to `_FEW_HOPS` hops, `fill` stays true
        # so that the identity of existing cells does not change.
        return Propagation(r=self.r, hops=self.hops, combine="each", fill=self.hops <= _FEW_HOPS)


class Backbone(base.Backbone):
    def __init__(self, settings: Any, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = settings.hops
        self.branches = settings.hops + 1
        self.propagations = 0
        self.head = [f"{settings.depth - 1}.weight", f"{settings.depth - 1}.bias"]

    def initial(self, generator: torch.Generator) -> Parameters:
        parameters = {}
        layers = base.widths(self.features, self.settings.hidden, self.outputs, self.settings.depth)
        for layer, (rows, columns) in enumerate(layers):
            parameters[f"{layer}.weight"] = 2**0.5 * base.glorot(generator, rows, columns)
            parameters[f"{layer}.bias"] = torch.zeros(columns)
            if layer < self.settings.depth - 1:
                parameters[f"{layer}.slope"] = torch.full((1,), 0.25)
        references = self.hops + 1 if self.settings.attention == "jk" else 1
        weight, bias = base.linear_start(generator, (references + 1) * self.features, 1)
        attention = weight.view(references + 1, self.features).T.contiguous()
        return parameters | {"attention.weight": attention, "attention.bias": bias}

    def forward(self, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        mapped, scores = (self._jk if self.settings.attention == "jk" else self._recursive)(parameters, batch)
        share = torch.cat(scores, dim=1).softmax(1)
        h = share[:, :1] * mapped[0]
        for hop in range(1, self.hops + 1):
            h = h + share[:, hop : hop + 1] * mapped[hop]
        h = hidden = batch.bias(h, parameters["0.bias"], level=0)
        for layer in range(1, self.settings.depth):
            slope = batch.bias(h.new_zeros(len(h), 1), parameters[f"{layer - 1}.slope"], level=0)
            hidden = torch.prelu(h.T, slope.squeeze(1)).T
            h = batch.linear(dropout(hidden, batch.ptrs[0]), parameters[f"{layer}.weight"], level=0)
            h = batch.bias(h, parameters[f"{layer}.bias"], level=0)
        return Output(h, hidden, hidden_level=0)

    def _recursive(self, parameters: Parameters, batch: PropagationBatch) -> tuple[list[Tensor], list[Tensor]]:
        """Compute, for every hop, its first linear map [rows, out] and its score [rows, 1]."""
        # Two maps, because concatenating the wide weights with those of the scores would take longer than a second map.
        mapped = batch.input_linear_per_hop([parameters["0.weight"]])
        history, maps_of_hop = zip(
            *(both.split(1, dim=1) for both in batch.input_linear_per_hop([parameters["attention.weight"]])),
            strict=True,
        )
        past = torch.cat(history, dim=1)
        scores: list[Tensor] = []
        for hop in range(self.hops + 1):
            before = (past[:, :hop] * torch.cat(scores, dim=1).softmax(1)).sum(1, keepdim=True) if hop else history[0]
            scores.append(batch.bias(before + maps_of_hop[hop], parameters["attention.bias"], level=0).sigmoid())
        return mapped, scores

    def _jk(self, parameters: Parameters, batch: PropagationBatch) -> tuple[list[Tensor], list[Tensor]]:
        """Compute, for every hop, its first linear map [rows, out] and its score [rows, 1]."""
        mapped = batch.input_linear_per_hop([parameters["0.weight"]])
        # Every hop is multiplied by all parts of s, although it needs only two: a single map is propagated once.
        parts = batch.input_linear_per_hop([parameters["attention.weight"]])
        reference = torch.stack([part[:, hop] for hop, part in enumerate(parts)]).sum(0).unsqueeze(1)
        scores = [
            batch.bias(reference + part[:, -1:], parameters["attention.bias"], level=0).sigmoid() for part in parts
        ]
        return mapped, scores
