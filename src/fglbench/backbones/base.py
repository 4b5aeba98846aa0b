"""The contract of a backbone.

A file of this folder declares `VERSION`, `class Settings(ComponentSettings)` with a method `propagation()` (what
preprocessing makes: the operator and the hops of the features), and `class Backbone(base.Backbone)`.

A forward pass meets the node features only in linear maps, `batch.input_linear(weight)` for one propagated matrix or
`batch.input_linear_per_hop(weights)` for all hops, so that sparse features stay sparse; after that rows are plain
tensors grouped by client, for `batch.linear`, `bias`, `propagate`, `target_rows` and `edges`. All parameters have a
leading client axis, and nothing may mix the rows of two clients but the operators, which have no edge between them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.federation.operators import ClientDropout, NoDropout
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import DrawNeighbours, propagation_batch
from fglbench.federation.step import Output as Output
from fglbench.samplers.base import Sampler
from fglbench.settings import Propagation

EMBEDDING = 64
"""Width of the embeddings of a backbone without a setting `hidden`."""

Dropout: TypeAlias = ClientDropout | NoDropout
"""`dropout(x, ptr)` for rows grouped by client; `dropout.training` says whether a pass belongs to a training step."""


class Backbone(ABC):
    """A local model.

    Attributes:
        settings: the resolved settings.
        features: columns of the node features.
        outputs: columns of its last layer.
        embeds: whether these are an embedding of the node, for a task that reads no more from a backbone.
        propagation: what preprocessing makes for it.
        hops: applications of the operator inside the first linear map.
        propagations: applications after it.
        head: names of the parameters of the last layer (personal in FedPer).
        branches: outputs of the first linear map that a step keeps beside each other, and
        edge_values: numbers that it keeps for every edge, both of which count where memory is limited.
        norms: names of the parameters and buffers of its normalisation layers (personal in FedBN).
        reads_whole_graphs: whether hidden layers need all rows of a client, as statistics over its nodes do.
        sampler: makes the sampler that says what each target reads, of an adjacency; None: propagation.
        neighbours: neighbours drawn for a node in training, whose mean stands for the operator; None reads all.
    """

    outputs: int
    embeds: bool
    hops: int
    propagations: int
    head: list[str]
    branches: int = 1
    edge_values: int = 0
    norms: Sequence[str] = ()
    reads_whole_graphs: bool = False
    sampler: Callable[[sp.csr_matrix], Sampler] | None = None
    neighbours: int | None = None

    def __init__(self, settings: Any, features: int, outputs: int | None):
        self.settings = settings
        self.features = features
        self.embeds = outputs is None
        self.outputs = getattr(settings, "hidden", EMBEDDING) if outputs is None else outputs
        self.propagation: Propagation = settings.propagation()

    @abstractmethod
    def initial(self, generator: torch.Generator) -> Parameters:
        """One client's initial parameters, drawn from the generator in a fixed order."""

    def buffers(self, generator: torch.Generator) -> Parameters:
        """One client's initial buffers: state [...] that no gradient trains and training passes update."""
        return {}

    @abstractmethod
    def forward(self, parameters: Parameters, batch: Any, dropout: Dropout) -> Output:
        """Logits of the batch's output rows under stacked parameters and buffers [S, ...]."""

    def representation(self, output: Output, batch: Batch) -> Tensor:
        """[outputs, width] of the batch's output rows: their embeddings, or what the classifier reads."""
        return output.logits if self.embeds else batch.at_targets(output.hidden, output.hidden_level)

    def batch(
        self,
        federation: Federation,
        clients: np.ndarray,
        targets: np.ndarray | None = None,
        *,
        draw_neighbours: DrawNeighbours | None = None,
        device: torch.device | str = "cpu",
    ) -> Batch:
        """What a forward pass over some clients computes on: of propagation, unless a backbone makes its own."""
        return propagation_batch(
            federation,
            self.propagation,
            clients,
            self.hops,
            self.propagations,
            targets,
            draw_neighbours=draw_neighbours,
            whole=self.reads_whole_graphs,
            device=device,
        )


def glorot(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """[rows, columns] uniform in +-sqrt(6 / (rows + columns)) (Glorot and Bengio 2010), as PyG's GCNConv starts."""
    bound = (6.0 / (rows + columns)) ** 0.5
    return torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)


def linear_start(generator: torch.Generator, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Weight [rows, columns] and bias [columns], both uniform in +-1 / sqrt(rows), as torch.nn.Linear starts."""
    bound = rows**-0.5
    weight = torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)
    return weight, torch.empty(columns).uniform_(-bound, bound, generator=generator)


def linear_layers(generator: torch.Generator, layers: list[tuple[int, int]], first: int = 0) -> Parameters:
    """`<layer>.weight` and `<layer>.bias` of linear layers of these widths, numbered from `first`."""
    parameters = {}
    for layer, (rows, columns) in enumerate(layers, start=first):
        parameters[f"{layer}.weight"], parameters[f"{layer}.bias"] = linear_start(generator, rows, columns)
    return parameters


def widths(features: int, hidden: int, classes: int, depth: int) -> list[tuple[int, int]]:
    """Input and output width of each of `depth` layers."""
    inner = [hidden] * (depth - 1)
    return list(zip([features, *inner], [*inner, classes], strict=True))
