"""Multi-layer perceptron on the node features: the backbone that does not use edges.

Defaults:
    depth 2: no paper's.
    hidden 64: FedGTA's for small graphs.
    dropout 0.5: FedGTA's public code's.
    norm none: no paper's.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from fglbench.backbones import base
from fglbench.backbones.base import Dropout
from fglbench.federation.normalisation import batch_norms, starts, statistics
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.federation.step import Output
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1


class Settings(ComponentSettings):
    depth: int = Field(2, ge=1, description="Number of linear layers.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layers.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers.")
    norm: Literal["batch"] | None = Field(None, description="Batch normalisation of the hidden layers; null: none.")

    def propagation(self) -> Propagation:
        return Propagation()


class Backbone(base.Backbone):
    def __init__(self, settings: Any, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = 0
        self.propagations = 0
        self.head = [f"{settings.depth - 1}.weight", f"{settings.depth - 1}.bias"]
        normed = getattr(settings, "norm", None)  # models on propagated features have no such setting
        self._norms = batch_norms(settings.depth - 1 if normed else 0, settings.hidden)
        self.norms = [name for norm in self._norms for name in norm.names]

    def initial(self, generator: torch.Generator) -> Parameters:
        layers = base.widths(self.features, self.settings.hidden, self.outputs, self.settings.depth)
        return base.linear_layers(generator, layers) | starts(self._norms)

    def buffers(self, generator: torch.Generator) -> Parameters:
        return statistics(self._norms)

    def forward(self, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        h = batch.bias(batch.input_linear(parameters["0.weight"]), parameters["0.bias"], level=0)
        return self.perceptron(h, parameters, batch, dropout)

    def perceptron(self, h: Tensor, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        """Compute the layers after the first one.

        Args:
            h: [outputs, width] float32, the output of the first layer before its activation.
            parameters: stacked parameters and buffers, [S, ...] each.
            batch: the batch of the forward pass.
            dropout: dropout of a training step, or the identity in evaluation.

        Returns:
            Logits [outputs, classes] float32, the input of the last layer before dropout, and updated buffers. With
            one layer, both tensors are `h`.
        """
        hidden = h
        moved: Parameters = {}
        for layer in range(1, self.settings.depth):
            if self._norms:
                h, statistics = self._norms[layer - 1](h, batch.ptrs[0], parameters, dropout.training)
                moved |= statistics
            hidden = h.relu()
            h = dropout(hidden, batch.ptrs[0])
            h = batch.linear(h, parameters[f"{layer}.weight"], level=0)
            h = batch.bias(h, parameters[f"{layer}.bias"], level=0)
        return Output(h, hidden, hidden_level=0, buffers=moved)
