"""Graph attention network (Velickovic et al., ICLR 2018, eq. 3 to 5): every node weighs its neighbours and itself.

H <- concatenation over heads of sum over j of alpha_ij W h_j, plus b, with ELU and dropout between layers. Dropout also
acts on alpha. The last layer has one head. The input features have no dropout, as in the other backbones.

Defaults:
    depth 2: the paper's.
    hidden 64: the paper's, 8 heads of width 8.
    heads 8: the paper's.
    dropout 0.5: differs; the paper has 0.6, on input features as well. As in the other backbones.
    slope 0.2: the paper's.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu

from fglbench.backbones import base
from fglbench.backbones.base import Dropout
from fglbench.federation.attention import attend
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.federation.step import Output
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 2
# Values per edge and head: indices by target and by source, scores, softmax, dropout, and their gradients.
_COPIES_OF_EDGES = 12


class Settings(ComponentSettings):
    depth: int = Field(2, ge=1, description="Number of layers.")
    hidden: int = Field(
        64, ge=1, description="Width of the hidden layers over all heads, rounded up to their multiple."
    )
    heads: int = Field(8, ge=1, description="Heads of the hidden layers.")
    dropout: float = Field(0.5, ge=0, lt=1, description="Rate between the layers and on the attention.")
    slope: float = Field(0.2, ge=0, description="Slope of the attention's LeakyReLU for negative scores.")

    def propagation(self) -> Propagation:
        return Propagation()


class Backbone(base.Backbone):
    def __init__(self, settings: Any, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = 0
        self.propagations = settings.depth
        last = settings.depth - 1
        self.head = [f"{last}.{part}" for part in ("weight", "bias", "source", "target")]
        self._heads = [settings.heads] * last + [1]
        self.edge_values = _COPIES_OF_EDGES * sum(self._heads)
        each = -(-settings.hidden // settings.heads)
        self._widths = base.widths(features, each * settings.heads, self.outputs, settings.depth)

    def initial(self, generator: torch.Generator) -> Parameters:
        parameters = {}
        for layer, ((rows, columns), heads) in enumerate(zip(self._widths, self._heads, strict=True)):
            parameters[f"{layer}.weight"] = base.glorot(generator, rows, columns)
            for half in ("source", "target"):
                parameters[f"{layer}.{half}"] = base.glorot(generator, heads, columns // heads).flatten()
            parameters[f"{layer}.bias"] = torch.zeros(columns)
        return parameters

    def forward(self, parameters: Parameters, batch: PropagationBatch, dropout: Dropout) -> Output:
        h = hidden = batch.input_linear(parameters["0.weight"])
        for layer in range(self.settings.depth):
            if layer:
                hidden = elu(h)
                h = batch.linear(dropout(hidden, batch.ptrs[layer]), parameters[f"{layer}.weight"], level=layer)
            h = self._attention(h, layer, parameters, batch, dropout)
            h = batch.bias(h, parameters[f"{layer}.bias"], level=layer + 1)
        return Output(h, hidden if self.settings.depth > 1 else h, hidden_level=max(self.settings.depth - 1, 1))

    def _attention(
        self, h: Tensor, layer: int, parameters: Parameters, batch: PropagationBatch, dropout: Dropout
    ) -> Tensor:
        """Apply one attention layer.

        It maps [rows of level, heads * width] to [rows of level + 1, heads * width], where level = layer.
        """
        heads = self._heads[layer]
        halves = torch.cat([_blocks(parameters[f"{layer}.{half}"], heads) for half in ("source", "target")], dim=2)
        source, target = batch.linear(h, halves, level=layer).split(heads, dim=1)
        edges, ptr = batch.edges(layer, heads)
        kept = dropout(ones := torch.ones(ptr[-1], heads, device=h.device), ptr)
        out = attend(
            h.view(len(h) * heads, -1),
            source.flatten(),
            batch.target_rows(target, layer).flatten(),
            edges,
            self.settings.slope,
            None if kept is ones else kept.flatten(),
        )
        return out.view(-1, h.shape[1])


def _blocks(vector: Tensor, heads: int) -> Tensor:
    """Arrange each head's vector in its own rows and column: [S, heads * width] -> [S, heads * width, heads]."""
    diagonal = torch.eye(heads, device=vector.device)
    return (vector.view(len(vector), heads, -1, 1) * diagonal[:, None]).flatten(1, 2)
