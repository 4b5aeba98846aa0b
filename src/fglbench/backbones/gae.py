"""Graph autoencoder (Kipf and Welling, 2016): two graph convolutions, with a ReLU between, embed each node.

The decoder of links is the inner product of two embeddings; the task `link-prediction` computes it. For node classes,
two linear layers with ReLU and dropout between them follow as a read-out (FedVGAE, section 3.2.1). The read-out is the
head that personal methods keep at the client.

Defaults:
    hidden 64: differs; the paper has 32 and 16. FedGTA's for small graphs.
    dropout 0.0: the public code's.
    r 0.5: the paper's.
"""

from typing import Any

import torch
from torch import Tensor

from fglbench.backbones import base
from fglbench.backbones.base import Dropout
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.federation.step import Output
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1


class Settings(ComponentSettings):
    hidden: int = Field(64, ge=1, description="Width of both convolutions and of the read-out.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Rate after the first convolution and in the read-out.")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")

    def propagation(self) -> Propagation:
        return Propagation(r=self.r, hops=1)


class Backbone(base.Backbone):
    """Graph autoencoder, with a read-out where the task predicts classes.

    Attributes:
        convolutions: names of the convolutions of the second layer; `embed` reads their outputs.
    """

    convolutions: tuple[str, ...] = ("mean",)

    def __init__(self, settings: Any, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = self.propagations = 1
        self.branches = len(self.convolutions)
        layers = () if self.embeds else ("readout.0", "readout.1")
        self.head = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]

    def initial(self, generator: torch.Generator) -> Parameters:
        hidden = self.settings.hidden
        parameters: Parameters = {}
        for name, rows in (("0", self.features), *((name, hidden) for name in self.convolutions)):
            parameters[f"{name}.weight"] = base.glorot(generator, rows, hidden)
            parameters[f"{name}.bias"] = torch.zeros(hidden)
        if not self.embeds:
            for layer, columns in enumerate((hidden, self.outputs)):
                weight, bias = base.linear_start(generator, hidden, columns)
                parameters |= {f"readout.{layer}.weight": weight, f"readout.{layer}.bias": bias}
        return parameters

    def forward(self, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        h = batch.bias(batch.input_linear(parameters["0.weight"]), parameters["0.bias"], level=0)
        h = dropout(h.relu(), batch.ptrs[0])
        maps = [batch.linear(h, parameters[f"{name}.weight"], level=0) for name in self.convolutions]
        convolved = batch.propagate(torch.cat(maps, dim=1), level=0).split(self.settings.hidden, dim=1)
        outputs = [
            batch.bias(rows.contiguous(), parameters[f"{name}.bias"], level=1)
            for rows, name in zip(convolved, self.convolutions, strict=True)
        ]
        z, penalty = self.embed(outputs, batch, dropout)
        if self.embeds:
            return Output(z, z, hidden_level=1, penalty=penalty)
        h = batch.bias(batch.linear(z, parameters["readout.0.weight"], level=1), parameters["readout.0.bias"], level=1)
        h = dropout(h.relu(), batch.ptrs[1])
        h = batch.bias(batch.linear(h, parameters["readout.1.weight"], level=1), parameters["readout.1.bias"], level=1)
        return Output(h, z, hidden_level=1, penalty=penalty)

    def embed(self, convolved: list[Tensor], batch: PropagationBatch, dropout: Dropout) -> tuple[Tensor, Tensor | None]:
        """Compute the embeddings from the outputs of the second convolutions.

        Args:
            convolved: one [outputs, hidden] float32 tensor for each name in `convolutions`.
            batch: the batch of the forward pass.
            dropout: dropout of a training step, or the identity in evaluation.

        Returns:
            Embeddings [outputs, hidden] float32, and the penalty [S] float32 that the model adds to the loss of each
            client; None: no penalty.
        """
        return convolved[0], None
