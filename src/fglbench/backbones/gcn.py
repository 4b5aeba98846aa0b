"""Graph convolutional network (Kipf and Welling, ICLR 2017, eq. 2): H <- A H W + b, ReLU and dropout between layers.

A = D^(r-1) (A + I) D^(-r) with the kernel coefficient r (0.5: symmetric). The input features have no dropout, as in the
public code of FedGTA.

Defaults:
    depth 2: the paper's.
    hidden 64: differs; the paper has 16 for citation graphs. FedGTA's for small graphs.
    dropout 0.5: the paper's, which drops input features as well.
    r 0.5: the paper's.
    norm none: the paper's.
"""

from typing import Literal

import torch

from fglbench.backbones import base
from fglbench.backbones.base import Dropout
from fglbench.federation.normalisation import batch_norms, starts, statistics
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.federation.step import Output
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1


class Settings(ComponentSettings):
    depth: int = Field(2, ge=1, description="Number of convolutions.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layers.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers.")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")
    norm: Literal["batch"] | None = Field(None, description="Batch normalisation of the hidden layers; null: none.")

    def propagation(self) -> Propagation:
        return Propagation(r=self.r, hops=1)


class Backbone(base.Backbone):
    def __init__(self, settings: Settings, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = 1
        self.propagations = settings.depth - 1
        self.head = [f"{settings.depth - 1}.weight", f"{settings.depth - 1}.bias"]
        self._norms = batch_norms(settings.depth - 1 if settings.norm else 0, settings.hidden)
        self.norms = [name for norm in self._norms for name in norm.names]
        self.reads_whole_graphs = bool(self._norms)

    def initial(self, generator: torch.Generator) -> Parameters:
        parameters = {}
        layers = base.widths(self.features, self.settings.hidden, self.outputs, self.settings.depth)
        for layer, (rows, columns) in enumerate(layers):
            parameters[f"{layer}.weight"] = base.glorot(generator, rows, columns)
            parameters[f"{layer}.bias"] = torch.zeros(columns)
        return parameters | starts(self._norms)

    def buffers(self, generator: torch.Generator) -> Parameters:
        return statistics(self._norms)

    def forward(self, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        h = batch.bias(batch.input_linear(parameters["0.weight"]), parameters["0.bias"], level=0)
        hidden = h
        moved: Parameters = {}
        for layer in range(1, self.settings.depth):
            if self._norms:
                h, statistics = self._norms[layer - 1](h, batch.ptrs[layer - 1], parameters, dropout.training)
                moved |= statistics
            hidden = h.relu()
            h = dropout(hidden, batch.ptrs[layer - 1])
            h = batch.propagate(batch.linear(h, parameters[f"{layer}.weight"], level=layer - 1), level=layer - 1)
            h = batch.bias(h, parameters[f"{layer}.bias"], level=layer)
        return Output(h, hidden, hidden_level=max(self.settings.depth - 2, 0), buffers=moved)
