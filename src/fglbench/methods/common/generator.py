"""The neighbour generator of FedSage+: its training data, its model, its objective and its messages."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss, smooth_l1_loss

from fglbench.backbones import sage
from fglbench.backbones.base import Backbone, Dropout, linear_layers
from fglbench.federation.features import dense_rows
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, client_means, no_dropout, stacked_bias, stacked_linear
from fglbench.federation.parameters import Parameters
from fglbench.federation.partly_dense import PartlyDenseRows
from fglbench.federation.propagation_batch import PropagationBatch, propagation_batch
from fglbench.federation.step import Output
from fglbench.methods import base
from fglbench.methods.common.mending import MEAN, impair, mend, some_clients
from fglbench.methods.common.nearest import Candidates, others_mean
from fglbench.partition.ratios import TRAIN
from fglbench.seeding import derive
from fglbench.tasks.base import Objective


class Hidden:
    """Batch that the generator learns from: the impaired graphs of S clients, and their hidden nodes.

    Every node that stays has one vector for each hidden neighbour, at most `neighbours`; there are M vectors in all.

    Args:
        federation: the graphs of these clients alone.
        clients: [S] int64 ids.
        neighbours: most vectors of a node.
        share: fraction of its nodes that a client hides.
        seed: of the cell.
        device: of the tensors.

    Attributes:
        clients: [S] int64 ids.
        federation: the impaired graphs, of the n nodes that stay.
        targets: [n] int64 rows of these nodes, which are all rows of the impaired graphs.
        target_ptr: [S + 1] boundaries of the targets by client.
        labels: [n] int64.
        missing: [n] float32 number of hidden neighbours.
        owners: [M] int64 row of the node that each vector belongs to.
        slots: [M] int64 number of each vector among those of its node.
        vector_ptr: [S + 1] boundaries of the vectors by client.
        client_mean, vector_mean: [S, n] and [S, M] operators that sum over a client's nodes and vectors, both divided
            by the number of its nodes.
        own: the encoder's batch, of the nodes that stay.
    """

    def __init__(
        self,
        federation: Federation,
        clients: np.ndarray,
        neighbours: int,
        share: float,
        seed: int,
        device: torch.device | str = "cpu",
    ):
        impaired = impair(federation, share, seed, clients)
        self.clients, self.federation = clients, impaired.federation
        self.target_ptr = self.federation.ptr.tolist()
        self.targets = torch.arange(len(self.federation.labels), device=device)
        self.labels = torch.from_numpy(self.federation.labels).to(device)
        self.own = propagation_batch(self.federation, MEAN, np.arange(len(clients)), 1, 1, device=device)
        self.missing = torch.from_numpy(impaired.missing).float().to(device)
        counts = np.minimum(impaired.missing, neighbours)
        self.owners, self.slots = vectors_of(counts, self.federation.ptr)
        self.vector_ptr = np.concatenate([[0], np.cumsum(counts)])[self.federation.ptr].tolist()
        sizes = np.diff(self.federation.ptr)
        self.client_mean, self.vector_mean = (
            client_means(ptr, device, sizes) for ptr in (self.target_ptr, self.vector_ptr)
        )
        self._features = federation.features
        lost = impaired.lost[self.owners].tocsc()
        # For each client: rows of its hidden neighbours, their features, and the rows that each vector may match.
        self._hidden_neighbours = []
        for (first, last), (start, stop) in zip(pairwise(self.vector_ptr), pairwise(federation.ptr), strict=True):
            rows = start + np.flatnonzero(np.diff(lost.indptr[start : stop + 1]))
            allowed = torch.from_numpy(lost[first:last][:, rows].toarray() > 0).to(device)
            self._hidden_neighbours.append(
                (rows, Candidates(federation.features[rows], [0, len(rows)], device), allowed)
            )
        mended, added = mend(self.federation, self.owners, None)
        train_nodes = np.flatnonzero(mended.role == TRAIN)
        self._batch = propagation_batch(mended, MEAN, np.arange(len(clients)), 1, 1, train_nodes, device=device)
        reached = self._batch.levels[0]
        present = np.isin(added, reached)
        vector_rows = np.searchsorted(reached, added[present])
        self._vectors = torch.from_numpy(np.flatnonzero(present)).to(device)
        self._vector_rows = torch.from_numpy(vector_rows).to(device)
        features = cast(Tensor | SparseOperator, self._batch.features[0])
        self._batch_features: Tensor | PartlyDenseRows = (  # the vectors, which every step changes, are dense rows
            features
            if isinstance(features, Tensor)
            else PartlyDenseRows.of(features, torch.empty(0, device=device), vector_rows, self._batch.feature_ptr)
        )

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        """Return the representations of the targets, which are all rows.

        Args:
            x: [n, width] representations.
            level: not used.

        Returns:
            `x` itself.
        """
        return x

    def nearest(self, vectors: Tensor) -> Tensor:
        """Return the features of the hidden neighbour that is closest to each vector, among those of the vector's node.

        Args:
            vectors: [M, num_features] float32.

        Returns:
            [M, num_features] float32.
        """
        chosen = np.zeros(len(self.owners), dtype=np.int64)
        for (first, last), (rows, candidates, allowed) in zip(
            pairwise(self.vector_ptr), self._hidden_neighbours, strict=True
        ):
            if first < last:
                nearest = candidates.nearest(vectors[first:last], allowed)
                chosen[first:last] = rows[nearest[:, 0]]
        return dense_rows(self._features[chosen], vectors.device)

    def mended_batch(self, vectors: Tensor) -> PropagationBatch:
        """Return the classifier's batch: the training nodes on the impaired graphs, mended with vectors.

        Args:
            vectors: [M, num_features] float32, features of the neighbours to add.

        Returns:
            A batch whose targets are the training nodes of these clients that stay.
        """
        features, selected = self._batch_features, vectors[self._vectors]
        x = (
            features.index_copy(0, self._vector_rows, selected)
            if isinstance(features, Tensor)
            else replace(features, dense=selected)
        )
        return replace(self._batch, features=[x])


def vectors_of(counts: np.ndarray, ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the node of each vector, and the number of the vector among those of its node.

    Args:
        counts: [n] vectors of each node.
        ptr: [S + 1] boundaries of the nodes by client.

    Returns:
        Two arrays [counts.sum()] int64, the rows of the nodes and the 0-based numbers, sorted by client, number and
        node.
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    slots = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.lexsort((slots, np.searchsorted(ptr, owners, side="right")))
    return owners[order], slots[order]


@dataclass(frozen=True, kw_only=True)
class Guesses(Output):
    """Output of the generator, with the representations of the nodes that stay.

    Attributes:
        degrees: [n] predicted numbers of missing neighbours.
        vectors: [M, num_features] generated neighbours.
    """

    degrees: Tensor
    vectors: Tensor


class Generator(Backbone):
    """Encoder, degree head, feature head and classifier; the noise of every client has its own random stream.

    Args:
        settings: of FedSage+.
        federation: the training graphs.
        seed: of the cell.
        device: of the training.
    """

    def __init__(self, settings: Any, federation: Federation, seed: int, device: torch.device | str):
        width, features = settings.width, federation.num_features
        self.settings = sage.Settings(hidden=width, dropout=0.0)
        self._encoder = sage.Backbone(self.settings, features, width)
        self._classifier = sage.Backbone(self.settings, features, federation.classes)
        self._settings, self._seed, self.device = settings, seed, device
        self._shape = settings.neighbours, features
        clients = range(federation.num_clients)
        self._streams = [torch.Generator().manual_seed(derive(seed, "fedsage+ noise", client)) for client in clients]
        self._hidden: dict[tuple[int, ...], Hidden] = {}

    def initial(self, generator: torch.Generator) -> Parameters:
        width = self._settings.width
        neighbours, features = self._shape
        layers = [(width, 1), (width, width), (width, neighbours * features)]
        start = {
            "encoder": self._encoder.initial(generator),
            "head": linear_layers(generator, layers),
            "classifier": self._classifier.initial(generator),
        }
        # Each of a node's vectors has its own layer, so that only the requested vectors are computed.
        start["head"]["2.weight"] = start["head"]["2.weight"].view(width, *self._shape).transpose(0, 1).contiguous()
        start["head"]["2.bias"] = start["head"]["2.bias"].view(self._shape)
        return {f"{part}.{name}": tensor for part, tensors in start.items() for name, tensor in tensors.items()}

    def batch(
        self,
        federation: Federation,
        clients: np.ndarray,
        targets: np.ndarray | None = None,
        *,
        draw_neighbours: Any = None,
        device: torch.device | str = "cpu",
    ) -> Hidden:
        key = tuple(clients.tolist())  # a client hides the same nodes in every round
        if key not in self._hidden:
            part = some_clients(federation, clients)
            shares = self._settings.neighbours, self._settings.hidden_share
            self._hidden[key] = Hidden(part, clients, *shares, self._seed, self.device)
        return self._hidden[key]

    def forward(self, parameters: Parameters, batch: Hidden, dropout: Dropout) -> Guesses:
        z = self._encoder.forward(_part(parameters, "encoder"), batch.own, no_dropout).logits
        degrees = self.degrees(parameters, z, batch.target_ptr)
        vectors = self.vectors(parameters, z, batch.target_ptr, batch.owners, batch.slots, batch.clients)
        return Guesses(z, z, degrees=degrees, vectors=vectors)

    def classes(self, parameters: Parameters, mended: PropagationBatch) -> Tensor:
        """Return the classifier's logits on the mended graphs.

        Args:
            parameters: [S, ...] by name, of the generator.
            mended: batch that `Hidden.mended_batch` returned.

        Returns:
            [training nodes, classes] float32 logits.
        """
        return self._classifier.forward(_part(parameters, "classifier"), mended, no_dropout).logits

    def degrees(self, parameters: Parameters, z: Tensor, ptr: list[int]) -> Tensor:
        """Return the predicted numbers of missing neighbours.

        Args:
            parameters: [S, ...] by name, of the generator.
            z: [n, width] representations.
            ptr: [S + 1] boundaries of the nodes by client.

        Returns:
            [n] float32; a negative value means no missing neighbour.
        """
        return _layer(parameters, 0, z, ptr).squeeze(1)

    def vectors(
        self,
        parameters: Parameters,
        z: Tensor,
        ptr: list[int],
        owners: np.ndarray,
        slots: np.ndarray,
        clients: np.ndarray,
    ) -> Tensor:
        """Return the requested generated neighbours; one draw of noise serves all vectors of a node.

        Args:
            parameters: [S, ...] by name, of the generator.
            z: [n, width] representations.
            ptr: [S + 1] boundaries of the nodes by client.
            owners, slots: [M] row of the node of each vector and number of the vector, in the order of `vectors_of`.
            clients: [S] int64 ids.

        Returns:
            [M, num_features] float32 in [-1, 1].
        """
        nodes, node_of = np.unique(owners, return_inverse=True)
        node_ptr = np.searchsorted(nodes, ptr).tolist()
        noise = [
            torch.randn(int(size), z.shape[1], generator=self._streams[client])
            for size, client in zip(np.diff(node_ptr), clients, strict=True)
        ]
        noisy = z[torch.from_numpy(nodes).to(z.device)] + torch.cat(noise).to(z.device)
        h = _layer(parameters, 1, noisy, node_ptr).relu()[torch.from_numpy(node_of).to(z.device)]
        number, features = self._shape
        group = (np.searchsorted(ptr, owners, side="right") - 1) * number + slots
        group_ptr = np.searchsorted(group, np.arange(len(clients) * number + 1)).tolist()
        weight = parameters["head.2.weight"].reshape(-1, h.shape[1], features)
        bias = parameters["head.2.bias"].reshape(-1, features)
        return stacked_bias(stacked_linear(h, weight, group_ptr), bias, group_ptr).tanh()

    @torch.no_grad()
    def generate(
        self, parameters: Parameters, federation: Federation, clients: np.ndarray, learned: np.ndarray
    ) -> tuple[np.ndarray, Callable[[], np.ndarray]]:
        """Predict the number of missing neighbours of each node, and return a function that generates them.

        Args:
            parameters: [S, ...] by name, of the generator.
            federation: the graphs of these clients alone.
            clients: [S] int64 ids.
            learned: [S] bool, clients that had a node to learn from; the others get no neighbour.

        Returns:
            The row [G] int64 of the node that each generated neighbour belongs to, client by client, and a function
            that generates their features [G, num_features] float32.
        """
        ptr = federation.ptr.tolist()
        batch = propagation_batch(federation, MEAN, np.arange(len(clients)), 1, 1, device=self.device)
        z = self._encoder.forward(_part(parameters, "encoder"), batch, no_dropout).logits
        counts = self.degrees(parameters, z, ptr).round().clamp(0, self._shape[0]).long().cpu().numpy()
        owners, slots = vectors_of(counts * learned[federation.client_of], federation.ptr)

        @torch.no_grad()
        def features() -> np.ndarray:
            return self.vectors(parameters, z, ptr, owners, slots, clients).cpu().numpy()

        return owners, features


class Recovery(Objective):
    """Loss of the generator: how well it recovers the degrees (smooth L1), features and classes that clients hide.

    In the federated epochs vectors are also pulled towards the closest node of every other client.

    Args:
        settings: of FedSage+, with the weights of the terms.
        generator: the model that is trained.
        federation: the training graphs.
    """

    def __init__(self, settings: Any, generator: Generator, federation: Federation):
        self._settings, self._generator, self._federation = settings, generator, federation
        self.targets, self.counts = np.arange(len(federation.labels)), np.diff(federation.ptr)
        self._everyone = None
        if is_federated(settings, federation, settings.epochs):
            self._everyone = Candidates(federation.features, np.unique(federation.ptr), generator.device)

    def loss(self, step: base.Step) -> Tensor:
        settings = self._settings
        output, batch = cast(Guesses, step.output), cast(Hidden, step.batch)
        degrees = smooth_l1_loss(output.degrees, batch.missing, reduction="none").unsqueeze(1)
        vectors, constant = output.vectors, output.vectors.detach()
        distance = settings.feature_weight * _distance(vectors, batch.nearest(constant))
        if self._everyone is not None and step.round >= settings.epochs:
            client_of = np.repeat(step.clients, np.diff(batch.vector_ptr))
            closest = others_mean(self._everyone, self._federation, constant, client_of)
            distance = distance + settings.cross_weight * _distance(vectors, closest)
        mended = batch.mended_batch(vectors)
        logits = self._generator.classes(step.parameters, mended)
        classes = cross_entropy(logits, mended.labels, reduction="none").unsqueeze(1)
        total = settings.degree_weight * (batch.client_mean @ degrees) + batch.vector_mean @ distance
        return (total + settings.class_weight * (mended.client_mean @ classes)).squeeze(1)


def is_federated(settings: Any, federation: Federation, epoch: int) -> bool:
    """Return whether clients exchange messages in an epoch of the generator.

    Args:
        settings: of FedSage+.
        federation: the training graphs.
        epoch: 0-based epoch of the generator.

    Returns:
        True in the federated epochs, if several clients have nodes and `cross_weight` is above 0.
    """
    several = np.count_nonzero(np.diff(federation.ptr)) > 1
    return bool(several and settings.cross_weight > 0 and epoch >= settings.epochs)


class Exchange(base.Method):
    """Messages of the clients while they learn the generator.

    In the federated epochs each client shows noisy representations of its nodes and its feature head to all others,
    through the server, and receives their gradients.
    """

    backbone: Generator

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {}

    def download(self, number: int, clients: np.ndarray) -> base.Messages:
        return {"gradients": self._placeholders(number, clients)}

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        shown = self._placeholders(round.number, round.clients)
        return {"shown": torch.cat(shown)} if shown else {}

    def _placeholders(self, number: int, clients: np.ndarray) -> list[Tensor]:
        """Return tensors without values, as large as what each client shows to all clients, to count the bytes."""
        if not is_federated(self.settings, self.federation, number):
            return []
        batch = self.backbone.batch(self.federation, clients)
        width, size = self.settings.width, self.settings.neighbours * self.federation.num_features
        head = width * width + width + width * size + size  # the two layers that map noisy representations to features
        nodes = [len(np.unique(batch.owners[first:last])) for first, last in pairwise(batch.vector_ptr)]
        sizes = [(count * width + head) * self.federation.num_clients if count else 0 for count in nodes]
        return [torch.empty(values, device="meta") for values in sizes]


def _part(parameters: Parameters, part: str) -> Parameters:
    return {name.removeprefix(f"{part}."): tensor for name, tensor in parameters.items() if name.startswith(f"{part}.")}


def _layer(parameters: Parameters, number: int, x: Tensor, ptr: list[int]) -> Tensor:
    weight, bias = parameters[f"head.{number}.weight"], parameters[f"head.{number}.bias"]
    return stacked_bias(stacked_linear(x, weight, ptr), bias, ptr)


def _distance(vectors: Tensor, others: Tensor) -> Tensor:
    """Return the squared distances, [M, 1]."""
    # This reads the vectors twice forward and once backward, half as often as the square of a difference.
    return mse_loss(vectors, others, reduction="none").sum(1, keepdim=True)
