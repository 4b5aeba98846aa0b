"""GraphSAGE with mean aggregator (Hamilton et al., NeurIPS 2017, algorithm 1): own features and the neighbours' mean.

H <- mean over neighbours of H W + H V + b, ReLU and dropout between layers. A node without neighbours has the mean 0.
With `neighbours`, a training step uses the mean over at most that many neighbours. They are drawn anew for every layer
and step, without replacement, from the client's own stream (the paper draws with replacement if there are too few).
Evaluation uses all neighbours. The paper's normalisation of H to length 1 is left out.

Defaults:
    depth 2: the paper's.
    hidden 64: differs; the paper has 128. FedGTA's for small graphs.
    dropout 0.5: differs; the paper names none. As in the other backbones.
    neighbours none: differs; the paper draws 25 and 10. All, so that full-graph training is exact.
"""

from typing import Any

import torch

from fglbench.backbones import base
from fglbench.backbones.base import Dropout
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.federation.step import Output
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1


class Settings(ComponentSettings):
    depth: int = Field(2, ge=1, description="Number of layers.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layers.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers.")
    neighbours: int | None = Field(None, ge=1, description="Neighbours drawn for a node in training; null: all.")

    def propagation(self) -> Propagation:
        return Propagation(r=0.0, self_loops=False, hops=1 if self.neighbours is None else 0, combine="each")


class Backbone(base.Backbone):
    def __init__(self, settings: Any, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = 1
        self.propagations = settings.depth - 1
        self.neighbours = settings.neighbours
        self.head = [f"{settings.depth - 1}.{part}" for part in ("neighbours.weight", "own.weight", "bias")]

    def initial(self, generator: torch.Generator) -> Parameters:
        parameters = {}
        layers = base.widths(self.features, self.settings.hidden, self.outputs, self.settings.depth)
        for layer, (rows, columns) in enumerate(layers):
            weight, bias = base.linear_start(generator, rows, columns)
            parameters[f"{layer}.neighbours.weight"], parameters[f"{layer}.bias"] = weight, bias
            parameters[f"{layer}.own.weight"] = base.linear_start(generator, rows, columns)[0]
        return parameters

    def forward(self, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        target, mean = batch.input_linear_per_hop([parameters["0.own.weight"], parameters["0.neighbours.weight"]])
        h = batch.bias(target + mean, parameters["0.bias"], level=0)
        hidden = h
        for layer in range(1, self.settings.depth):
            level = layer - 1
            hidden = h.relu()
            h = dropout(hidden, batch.ptrs[level])
            mean = batch.propagate(batch.linear(h, parameters[f"{layer}.neighbours.weight"], level), level)
            target = batch.linear(batch.target_rows(h, level), parameters[f"{layer}.own.weight"], level + 1)
            h = batch.bias(target + mean, parameters[f"{layer}.bias"], level + 1)
        return Output(h, hidden, hidden_level=max(self.settings.depth - 2, 0))
