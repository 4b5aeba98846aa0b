"""FED-PUB (Baek et al., ICML 2023): similarity-weighted aggregation of models, and personal masks on their weights.

Every weight matrix W is multiplied by a mask m of the client's own, which starts at 1; in evaluation entries of m
below l1 in size count as zero. Local loss: the task's plus l1 ||m||_1 and l2 ||W - W_received||^2 (not in the first
round). The server tells clients apart by functional embeddings, the mean of a model's representations of one random
graph: client i receives the weights of all that trained, with shares proportional to exp(scale cos(e_i, e_j)). Masks
stay with their client. The random graph has `blocks` blocks of 100 nodes, edges of probability 0.1 inside and none
between, and normal features.

Deviations: a representation is what the backbone's classifier reads, or its embedding for links; the public code's is
the output of the second of two convolutions, before a ReLU and a linear classifier. The public code computes both
penalties on detached tensors, so that they have no gradient: l1 and l2 of 0 train as it does, but for its pruning. It
gives a client that is drawn for the first time the global mean, where here it keeps its own start, and scores models
after local training (`evaluate: trained`).

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
    """A backbone whose weight matrices are multiplied by masks, parameters of the same shapes."""

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
        return start | {MASK + name: torch.ones_like(own) for name, own in start.items() if own.dim() == 2}

    def forward(self, parameters: Parameters, batch: Any, dropout: Dropout) -> Output:
        own = {name: tensor for name, tensor in parameters.items() if not name.startswith(MASK)}
        for name, mask in masks_of(parameters).items():
            kept = mask if dropout.training else mask.where(mask.abs() >= self._pruned_below, 0.0)
            own[name] = own[name] * kept
        return self._inner.forward(own, batch, dropout)


def masks_of(parameters: Parameters) -> Parameters:
    """The masks, by the names of what they are on."""
    return {name.removeprefix(MASK): own for name, own in parameters.items() if name.startswith(MASK)}


class Method(base.Method):
    def __init__(self, settings: Settings, backbone: Backbone, federation: Federation):
        super().__init__(settings, Masked(backbone, settings.l1), federation)

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> base.Prepared:
        """The server draws the random graph, which is sent to every client: its edges and its features."""
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
            terms += [self.settings.l2 * own.flatten(1).square().sum(1) for own in moved if own.requires_grad]
        return torch.stack(terms).sum(0)

    @torch.no_grad()
    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        """The functional embeddings, [S, width]; one client after another, whose rows would fill memory together."""
        found = []
        for client in round.clients.tolist():
            output = self.backbone.forward(take(round.parameters, slice(client, client + 1)), self._batch, no_dropout)
            found.append(self.backbone.representation(output, self._batch).mean(0))
        return {"embedding": torch.stack(found)}

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        """Clients that did not train keep what they have."""
        directions = normalize(round.uploads["embedding"], dim=1)
        rows = torch.from_numpy(round.clients).to(round.weights.device)
        weights = torch.eye(len(round.weights), device=rows.device)
        with full_precision():
            similarities = directions @ directions.T
        weights[rows[:, None], rows] = (self.settings.scale * similarities).softmax(1)
        return {base.SHARED: weights}


def random_graph(blocks: int, features: int, seed: int) -> Federation:
    """The graph of the functional embeddings, as a federation of one client without labels."""
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
