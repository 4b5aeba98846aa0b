"""FedGL (Chen et al., 2021): pseudo-labels and a pseudo-graph computed by the server from predictions and embeddings.

After local training clients send predictions and embeddings of all their nodes. For each node the server takes the mean
over the clients that trained and hold it, weighted by their training nodes. A node that is not a training node gets its
most probable class as pseudo-label, if the mean probability of this class is at least `confidence`. In their next local
training clients add `label_weight` times the mean cross-entropy of their pseudo-labelled nodes, computed without
dropout. Every node of a client is joined, with weight `edge_weight`, to the `neighbours` other nodes of this client
whose mean embeddings have the largest positive cosine with its own. The round is scored on the client graphs with these
edges, and the next round trains on them. Parameters are aggregated by `aggregation`. Clients that do not train in a
round keep their pseudo-labels and edges. gat, which weights neighbours by attention, and modules ignore the weights of
edges.

The global test has no pseudo-graph: it scores on its unchanged graph.

In the inductive setting the server sees only the nodes of the training graphs. Rounds are scored on the whole client
graphs, with the edges of the pseudo-graph among the nodes of training.

If no node has two holders, clients receive only their own predictions (self-training). Deviation: the paper compares
all pairs of nodes, O(n^2). Here only pairs that a client can use are compared, those of its own nodes, in blocks, and
only the nearest nodes are kept.

Defaults:
    label_weight 0.1: OpenFGL's.
    confidence 0.9: differs; OpenFGL has 0.5. Fewer pseudo-labels, which are right more often.
    edge_weight 0.1: differs; OpenFGL has 0, which omits the pseudo-graph.
    neighbours 5: differs; OpenFGL has 100. The pseudo-graph stays sparse.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import Parameters
from fglbench.methods import base
from fglbench.methods.common import aggregated
from fglbench.methods.common.edges import with_more_edges
from fglbench.methods.common.holders import mean_of_holders
from fglbench.methods.common.outputs import outputs_by_chunk
from fglbench.partition.ratios import TRAIN
from fglbench.settings import AggregatedSettings, Field

VERSION = 4
_BLOCK = 2**24  # similarities held at once: 64 MB


class Settings(AggregatedSettings):
    label_weight: float = Field(0.1, ge=0, description="Weight of the pseudo-labels' loss.")
    confidence: float = Field(0.9, ge=0, le=1, description="Least mean probability of a pseudo-label.")
    edge_weight: float = Field(
        0.1, ge=0, description="Weight of the pseudo-graph's edges; 0: none. gat weighs them by attention instead."
    )
    neighbours: int = Field(5, ge=0, description="Edges that a node starts in the pseudo-graph; 0: no pseudo-graph.")


class Method(aggregated.Method):
    needs_classes = True

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        size = len(self.federation.labels)
        nodes = np.arange(size) if self.federation.nodes is None else self.federation.nodes
        self._node_of = np.unique(nodes, return_inverse=True)[1]
        self._chunk_clients = self.federation.num_clients
        self._graphs = self.federation  # client graphs with the last pseudo-graph
        self._labels = np.full(size, -1)  # pseudo-labels after each client's last training, -1 for none
        self._edges = sp.csr_matrix((size, size), dtype=np.float32)
        self._batches: dict[tuple[int, ...], Batch] = {}  # batches of the pseudo-labelled nodes, by client ids

    def not_applicable(self) -> str | None:
        if self._has_edges() and self.backbone.neighbours:
            return "edge_weight does not apply to drawn neighbours; set the backbone to read all neighbours"
        if self.backbone.sampler is not None:
            return "pseudo-labels and pseudo-edges need whole graphs, but the backbone reads samples"
        return super().not_applicable()

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> base.Prepared:
        self._chunk_clients = chunk_clients
        return super().prepare(seed, device, chunk_clients)

    def _has_edges(self) -> bool:
        return bool(self.settings.neighbours and self.settings.edge_weight)

    def download(self, number: int, clients: np.ndarray) -> base.Messages:
        """Return pseudo-labels and edges, from the second round on, and the messages of the aggregation.

        Args:
            number: 0-based number of the round in its phase.
            clients: [S] int64 ids.

        Returns:
            For each client `pseudo_labels` [n] int32 of its n nodes, -1 for none, and `edges` [2, E] int32 of its
            pseudo-graph, each edge once, as positions among its nodes.
        """
        sent = dict(super().download(number, clients))
        bounds = [slice(*self.federation.ptr[client : client + 2]) for client in clients]
        if number and self.settings.label_weight:
            sent["pseudo_labels"] = [torch.from_numpy(self._labels[rows].astype(np.int32)) for rows in bounds]
        if number and self._has_edges():
            pairs = [sp.triu(self._edges[rows, rows], format="coo") for rows in bounds]
            sent["edges"] = [torch.from_numpy(np.stack([block.row, block.col]).astype(np.int32)) for block in pairs]
        return sent

    def loss(self, step: base.Step) -> Tensor | None:
        inner = super().loss(step)
        rows = np.flatnonzero((self._labels >= 0) & np.isin(self.federation.client_of, step.clients))
        if not self.settings.label_weight or not len(rows):
            return inner
        device, clients = step.batch.labels.device, tuple(step.clients.tolist())
        if clients not in self._batches:
            self._batches = {clients: self.backbone.batch(self._graphs, step.clients, rows, device=device)}
        batch = self._batches[clients]
        logits = self.backbone.forward(step.parameters, batch, no_dropout).logits
        labels = torch.from_numpy(self._labels[rows]).to(device)
        losses = cross_entropy(logits, labels, reduction="none").unsqueeze(1)
        loss: Tensor = self.settings.label_weight * (batch.client_mean @ losses).squeeze(1)
        return loss if inner is None else inner + loss

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        """Return predictions and embeddings, and the messages of the aggregation.

        Args:
            round: the round after local training.

        Returns:
            `predictions` [rows, classes] float32 probabilities, if pseudo-labels are used, and `embeddings` [rows,
            width] float32, if the pseudo-graph is used; rows are all nodes of the clients that trained, client by
            client.
        """
        sent = dict(super().upload(round))
        if not self.settings.label_weight and not self._has_edges():
            return sent
        predictions, embeddings = [], []
        device = round.weights.device
        for output, batch in outputs_by_chunk(
            self.backbone, self._graphs, round.parameters, round.clients, self._chunk_clients, device
        ):
            if self.settings.label_weight:
                predictions.append(output.logits.softmax(1))
            if self._has_edges():
                embeddings.append(self.backbone.representation(output, batch))
        by_name = {"predictions": predictions, "embeddings": embeddings}
        return sent | {name: torch.cat(parts) for name, parts in by_name.items() if parts}

    def aggregate(self, round: base.Round) -> Mapping[str, Tensor]:
        return super().aggregate(_without_own_uploads(round))

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        super().server_update(_without_own_uploads(round), mixed)
        if not self.settings.label_weight and not self._has_edges():
            return
        federation, self._batches = self.federation, {}
        uploaded = np.isin(federation.client_of, round.clients)
        weights = round.weights.cpu().numpy()[federation.client_of[uploaded]]
        average = mean_of_holders(self._node_of[uploaded], weights)
        if self.settings.label_weight:
            labels = pseudo_labels(average @ round.uploads["predictions"].cpu().numpy(), self.settings.confidence)
            self._labels[uploaded] = np.where(federation.role[uploaded] == TRAIN, -1, labels)
        if self._has_edges():
            embeddings = torch.from_numpy(average @ round.uploads["embeddings"].cpu().numpy()).to(round.weights.device)
            position = np.cumsum(uploaded) - 1
            blocks_of_round = {
                client: nearest(embeddings[position[start] : position[stop - 1] + 1], self.settings.neighbours)
                for client in round.clients
                for start, stop in [federation.ptr[client : client + 2]]
            }
            bounds = enumerate(zip(federation.ptr, federation.ptr[1:], strict=False))
            blocks = [
                blocks_of_round.get(client, self._edges[start:stop, start:stop]) for client, (start, stop) in bounds
            ]
            self._edges = sp.block_diag(blocks, format="csr", dtype=np.float32)

    def rebuild(self, round: base.ClientRound) -> Federation | None:
        if not self._has_edges():
            return None
        self._graphs = with_more_edges(self.federation, self.settings.edge_weight * self._edges)
        return self._graphs


def _without_own_uploads(round: base.Round) -> base.Round:
    """Return the round without the uploads of FedGL itself, as the aggregation sees it."""
    uploads = {name: sent for name, sent in round.uploads.items() if name not in ("predictions", "embeddings")}
    return replace(round, uploads=uploads)


def pseudo_labels(predictions: np.ndarray, confidence: float) -> np.ndarray:
    """Return the pseudo-labels of nodes.

    Args:
        predictions: [rows, classes] float32 probabilities.
        confidence: least probability of a pseudo-label.

    Returns:
        [rows] int64, the most probable class, or -1 if its probability is below `confidence`.
    """
    return np.where(predictions.max(1) >= confidence, predictions.argmax(1), -1)


def nearest(embeddings: Tensor, neighbours: int) -> sp.csr_matrix:
    """Return a graph that joins every row to the other rows with the largest positive cosine.

    Args:
        embeddings: [n, width] float32.
        neighbours: most other rows that a row is joined to by its own choice, at least 1.

    Returns:
        [n, n] float32 CSR, symmetric, of ones; a row that others choose has more entries.
    """
    unit = normalize(embeddings, dim=1)
    size, count = len(unit), min(neighbours, len(unit) - 1)
    block = max(1, _BLOCK // size)
    adjacency = sp.csr_matrix((size, size), dtype=np.float32)
    for first in range(0, size if count else 0, block):
        cosine = unit[first : first + block] @ unit.T
        rows = torch.arange(len(cosine), device=cosine.device)
        cosine[rows, first + rows] = -torch.inf
        values, columns = cosine.topk(count, dim=1)
        starts, keep = (first + rows).repeat_interleave(count), (values > 0).flatten()
        pairs = torch.stack([starts[keep], columns.flatten()[keep]]).cpu().numpy()
        adjacency = adjacency + sp.csr_matrix(
            (np.ones(pairs.shape[1], dtype=np.float32), tuple(pairs)), shape=adjacency.shape
        )
    return adjacency.maximum(adjacency.T).tocsr()
