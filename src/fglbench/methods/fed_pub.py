"""FED-PUB (Baek et al., ICML 2023): similarity-weighted aggregation of models, and personal masks on their weights.

Every weight matrix W is multiplied by a mask m, which is a parameter of the client. Masks start at 1 and stay with
their client. In evaluation the entries of m with an absolute value below l1 count as zero. The local loss is the task's
loss plus l1 ||m||_1, and from the second round on plus l2 times the squared distance between all shared parameters
(biases included) and the received ones.

The server compares clients by functional embeddings. The embedding e_i is the mean of a model's representations of the
nodes of one random graph. Client i receives the weighted mean of the parameters of all clients that trained, with
weights proportional to exp(scale cos(e_i, e_j)). The random graph has `blocks` blocks of 100 nodes, edges with
probability 0.1 inside a block and none between blocks, and normally distributed features.

Deviations: a representation is the input of the backbone's classifier, or the node embedding in link prediction. In the
public code it is the output of the second of two convolutions, before a ReLU and a linear classifier. The public code
computes both penalties on detached tensors, so that they have no gradient. With l1 and l2 of 0 this method trains as
the public code does, except for the pruning. In the public code a client that is drawn for the first time receives the
global mean; here it keeps its initial parameters. The public code scores models after local training
(`evaluate: trained`).

Defaults:
    scale 3.0: the public code's for disjoint clients, 5 for overlapping ones.
    l1 0.001: the paper's.
    l2 0.001: the paper's.
    blocks 5: the public code's.
"""

from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fglbench.backbones.base import Backbone, Dropout
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import Parameters, take
from fglbench.federation.step import Output
from fglbench.methods import base
from fglbench.runtime.modes import full_precision
from fglbench.seeding import derive, numpy_stream
from fglbench.settings import ComponentSettings, Field

VERSION = 1
BLOCK_NODES, EDGE_PROBABILITY = 100, 0.1
MASK = "mask."


class Settings(ComponentSettings):
    scale: float = Field(3.0, ge=0, description="Factor of the similarity inside the exponential.")
    l1: float = Field(0.001, ge=0, description="Weight of the masks' 1-norm, and size below which an entry is pruned.")
    l2: float = Field(0.001, ge=0, description="Weight of the squared distance to the received weights.")
    blocks: int = Field(5, ge=1, description="Blocks of 100 nodes of the random graph.")


class Masked(Backbone):
    """A backbone whose weight matrices are multiplied by masks, which are parameters of the same shapes.

    Args:
        inner: the backbone to mask.
        pruned_below: absolute value below which an entry of a mask counts as zero in evaluation.
    """

    def __init__(self, inner: Backbone, pruned_below: float):
        super().__init__(inner.settings, inner.features, None if inner.embeds else inner.outputs)
        self._inner = inner
        self._pruned_below = pruned_below
        self.hops, self.propagations, self.head = inner.hops, inner.propagations, inner.head
        self.branches, self.edge_values, self.norms = inner.branches, inner.edge_values, inner.norms
        self.reads_whole_graphs, self.sampler = inner.reads_whole_graphs, inner.sampler
        self.neighbours = inner.neighbours
        self.buffers, self.batch = inner.buffers, inner.batch  # type: ignore[method-assign]

    def initial(self, generator: torch.Generator) -> Parameters:
        start = self._inner.initial(generator)
        return start | {MASK + name: torch.ones_like(tensor) for name, tensor in start.items() if tensor.dim() == 2}

    def forward(self, parameters: Parameters, batch: Any, dropout: Dropout) -> Output:
        masked = {name: tensor for name, tensor in parameters.items() if not name.startswith(MASK)}
        for name, mask in masks_of(parameters).items():
            kept = mask if dropout.training else mask.where(mask.abs() >= self._pruned_below, 0.0)
            masked[name] = masked[name] * kept
        return self._inner.forward(masked, batch, dropout)


def masks_of(parameters: Parameters) -> Parameters:
    """Return the masks under the names of the weight matrices that they multiply.

    Args:
        parameters: parameters of a masked backbone.

    Returns:
        The masks, with the shapes that they have in `parameters`.
    """
    return {name.removeprefix(MASK): tensor for name, tensor in parameters.items() if name.startswith(MASK)}


class Method(base.Method):
    def __init__(self, settings: Settings, backbone: Backbone, federation: Federation):
        super().__init__(settings, Masked(backbone, settings.l1), federation)

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> base.Prepared:
        """Draw the random graph, which the server sends to every client.

        Args:
            seed: of the cell.
            device: of the training.
            chunk_clients: not used.

        Returns:
            The unchanged federation; `bytes_down` are the bytes of the graph's edges and features, for all clients.
        """
        graph = random_graph(self.settings.blocks, self.federation.num_features, seed)
        self._batch = self.backbone.batch(graph, np.array([0]), device=device)
        sent = 4 * len(graph.labels) * graph.num_features + 8 * graph.adjacency.nnz
        return base.Prepared(self.federation, bytes_down=sent * self.federation.num_clients)

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {base.SHARED: [name for name in names if not name.startswith(MASK)]}

    def loss(self, step: base.Step) -> Tensor | None:
        masks = masks_of(step.parameters)
        terms = [self.settings.l1 * mask.abs().flatten(1).sum(1) for mask in masks.values()]
        if step.round:
            moved = (step.parameters[name] - step.received[name] for name in self.shared(step.parameters))
            terms += [self.settings.l2 * tensor.flatten(1).square().sum(1) for tensor in moved if tensor.requires_grad]
        return torch.stack(terms).sum(0)

    @torch.no_grad()
    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        """Return the functional embeddings. Clients are processed one at a time to limit memory.

        Args:
            round: the round after local training.

        Returns:
            `embedding` [S, width] float32.
        """
        embeddings = []
        for client in round.clients.tolist():
            output = self.backbone.forward(take(round.parameters, slice(client, client + 1)), self._batch, no_dropout)
            embeddings.append(self.backbone.representation(output, self._batch).mean(0))
        return {"embedding": torch.stack(embeddings)}

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        directions = normalize(round.uploads["embedding"], dim=1)
        rows = torch.from_numpy(round.clients).to(round.weights.device)
        # The identity keeps the parameters of clients that did not train.
        weights = torch.eye(len(round.weights), device=rows.device)
        with full_precision():
            similarities = directions @ directions.T
        weights[rows[:, None], rows] = (self.settings.scale * similarities).softmax(1)
        return {base.SHARED: weights}


def random_graph(blocks: int, features: int, seed: int) -> Federation:
    """Return the random graph of the functional embeddings.

    Args:
        blocks: number of blocks, of 100 nodes each.
        features: columns of the node features.
        seed: of the cell.

    Returns:
        A federation of one client, whose nodes have neither labels nor roles.
    """
    drawn = nx.random_partition_graph(
        [BLOCK_NODES] * blocks, EDGE_PROBABILITY, 0.0, seed=derive(seed, "fed-pub graph") % 2**32
    )
    size = BLOCK_NODES * blocks
    x = numpy_stream(seed, "fed-pub features").standard_normal((size, features), dtype=np.float32)
    return Federation(
        ptr=np.array([0, size]),
        labels=np.full(size, -1, dtype=np.int64),
        role=np.zeros(size, dtype=np.int8),
        classes=0,
        adjacency=sp.csr_matrix(nx.to_scipy_sparse_array(drawn, dtype=np.float32)),
        x=x,
    )
