"""The contract of a backbone.

A file of this folder declares `VERSION`, `class Settings(ComponentSettings)` and `class Backbone(base.Backbone)`. The
settings have a method `propagation()`, which says what preprocessing computes: the operator, and the hops of the
features.

A forward pass uses the node features in linear maps only, so that sparse features stay sparse:
`batch.input_linear(weight)` for one propagated matrix, or `batch.input_linear_per_hop(weights)` for all hops. After
these maps, rows are plain tensors grouped by client, for `batch.linear`, `bias`, `propagate`, `target_rows` and
`edges`. In a forward pass all parameters have a leading client axis. A backbone must not mix rows of different clients;
the operators are safe, because they have no edge between two clients.
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
"""Width of the embeddings of a backbone that has no setting `hidden`."""

Dropout: TypeAlias = ClientDropout | NoDropout
"""`dropout(x, ptr)` acts on rows grouped by client. `dropout.training` is true in a forward pass of a training step."""


class Backbone(ABC):
    """Base class of the local models.

    Attributes:
        settings: the resolved settings.
        features: number of columns of the node features.
        outputs: number of columns of the last layer.
        embeds: whether the outputs are node embeddings, for a task that reads only embeddings.
        propagation: what preprocessing computes for this backbone.
        hops: applications of the operator inside the first linear map.
        propagations: applications of the operator after the first linear map.
        head: names of the parameters of the last layer (personal in FedPer).
        branches: outputs of the first linear map that a step keeps in memory at once; read where memory is limited.
        edge_values: numbers that a step keeps for every edge; read where memory is limited.
        norms: names of the parameters and buffers of the normalisation layers (personal in FedBN).
        reads_whole_graphs: whether hidden layers need all rows of a client, for example for statistics over its nodes.
        sampler: makes, from an adjacency matrix, the sampler of the rows that each target reads; None: propagation.
        neighbours: number of neighbours drawn for a node in training; their mean replaces the operator. None: all
            neighbours.
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
        """Draw the initial parameters of one client.

        Args:
            generator: random stream; parameters are drawn from it in a fixed order.

        Returns:
            Tensors by name, without a client axis.
        """

    def buffers(self, generator: torch.Generator) -> Parameters:
        """Return the initial buffers of one client: state without gradients that training passes update.

        Args:
            generator: random stream for buffers that start at random.

        Returns:
            Tensors [...] by name, without a client axis; empty by default.
        """
        return {}

    @abstractmethod
    def forward(self, parameters: Parameters, batch: Any, dropout: Dropout) -> Output:
        """Compute the outputs of the batch's output rows.

        Args:
            parameters: stacked parameters and buffers, [S, ...] each.
            batch: the rows to compute on, as made by `batch`.
            dropout: dropout of a training step, or the identity in evaluation.

        Returns:
            Logits of the output rows, the representation before the classifier, and updated buffers.
        """

    def representation(self, output: Output, batch: Batch) -> Tensor:
        """Return the representation of the batch's output rows.

        Args:
            output: of the forward pass.
            batch: the batch of that forward pass.

        Returns:
            [outputs, width] float32: the embeddings if `embeds`, else the input of the classifier.
        """
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
        """Build the batch of a forward pass over some clients; a batch of propagation by default.

        Args:
            federation: the client graphs.
            clients: [S] int64 client ids, ascending.
            targets: [T] int64 positions of the output rows in the federation, ascending; None: all of these clients.
            draw_neighbours: replaces the operator by one of drawn neighbours; None: the whole operator.
            device: device of the batch's tensors.

        Returns:
            The rows that the outputs depend on, with features and operators.
        """
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
    """Draw a weight matrix uniformly in +-sqrt(6 / (rows + columns)) (Glorot and Bengio 2010), as PyG's GCNConv does.

    Args:
        generator: random stream.
        rows: input width.
        columns: output width.

    Returns:
        [rows, columns] float32.
    """
    bound = (6.0 / (rows + columns)) ** 0.5
    return torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)


def linear_start(generator: torch.Generator, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Draw a weight and a bias, both uniform in +-1 / sqrt(rows), as torch.nn.Linear does.

    Args:
        generator: random stream; the weight is drawn first.
        rows: input width.
        columns: output width.

    Returns:
        Weight [rows, columns] float32 and bias [columns] float32.
    """
    bound = rows**-0.5
    weight = torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)
    return weight, torch.empty(columns).uniform_(-bound, bound, generator=generator)


def linear_layers(generator: torch.Generator, layers: list[tuple[int, int]], first: int = 0) -> Parameters:
    """Draw the parameters of several linear layers.

    Args:
        generator: random stream.
        layers: input and output width of each layer.
        first: number of the first layer in the parameter names.

    Returns:
        `<layer>.weight` [in, out] and `<layer>.bias` [out] for each layer.
    """
    parameters = {}
    for layer, (rows, columns) in enumerate(layers, start=first):
        parameters[f"{layer}.weight"], parameters[f"{layer}.bias"] = linear_start(generator, rows, columns)
    return parameters


def widths(features: int, hidden: int, classes: int, depth: int) -> list[tuple[int, int]]:
    """Compute the input and output width of each layer of a network.

    Args:
        features: input width of the first layer.
        hidden: width of the hidden layers.
        classes: output width of the last layer.
        depth: number of layers, at least 1.

    Returns:
        One pair (input width, output width) per layer.
    """
    inner = [hidden] * (depth - 1)
    return list(zip([features, *inner], [*inner, classes], strict=True))
