"""The neighbour generator of FedSage+: what several clients learn it from, and the generator itself."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss, smooth_l1_loss

from fglbench.backbones import sage
from fglbench.backbones.base import linear_layers
from fglbench.federation import parameters as stacked
from fglbench.federation.federation import Federation, View
from fglbench.federation.operators import SparseOperator, client_means, no_dropout, stacked_bias, stacked_linear
from fglbench.federation.parameters import Parameters
from fglbench.federation.partly_dense import PartlyDenseRows
from fglbench.methods._mending import impair, mend
from fglbench.seeding import derive, torch_stream

_BLOCK = {"cpu": 2**18, "cuda": 2**26}  # distances held at once: what a core's cache holds; 256 MB
_FEWEST = 64  # vectors in a block; with fewer the sparse product is slow


class Hidden:
    """What S clients know about the nodes that they hide from themselves.

    A node gets as many vectors as it has hidden neighbours, at most `neighbours`; M in all.

    Attributes:
        federation: the n nodes that stay.
        ptr: [S + 1] their boundaries by client.
        missing: [n] float32 hidden neighbours.
        owners: [M] the node of each vector.
        slots: [M] which of its node's vectors it is.
        vector_ptr: [S + 1] boundaries of the vectors by client.
        mean, vector_mean: [S, n] and [S, M] sums over a client's nodes and vectors, divided by its nodes.
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
        self.federation = impaired.federation
        self.ptr = self.federation.ptr.tolist()
        self.missing = torch.from_numpy(impaired.missing).float().to(device)
        counts = np.minimum(impaired.missing, neighbours)
        self.owners, self.slots = vectors_of(counts, self.federation.ptr)
        self.vector_ptr = np.concatenate([[0], np.cumsum(counts)])[self.federation.ptr].tolist()
        sizes = np.diff(self.federation.ptr)
        self.mean, self.vector_mean = (client_means(ptr, device, sizes) for ptr in (self.ptr, self.vector_ptr))
        self._features = federation.features
        lost = impaired.lost[self.owners].tocsc()
        self._near = []  # of each client: its hidden rows, what is looked up there, and which vectors may match which
        for (first, last), (start, stop) in zip(pairwise(self.vector_ptr), pairwise(federation.ptr), strict=True):
            rows = start + np.flatnonzero(np.diff(lost.indptr[start : stop + 1]))
            allowed = torch.from_numpy(lost[first:last][:, rows].toarray() > 0).to(device)
            self._near.append((rows, Candidates(federation.features[rows], [0, len(rows)], device), allowed))
        mended, added = mend(self.federation, self.owners, None)
        self._view = mended.view(np.arange(len(clients)), 1, 1, training=True, device=device)
        reached = self._view.levels[0]
        present = np.isin(added, reached)
        places = np.searchsorted(reached, added[present])
        self._vectors = torch.from_numpy(np.flatnonzero(present)).to(device)
        self._places = torch.from_numpy(places).to(device)
        own = cast(Tensor | SparseOperator, self._view.features[0])
        self._own: Tensor | PartlyDenseRows = (  # the dense rows are the vectors, other ones in every step
            own
            if isinstance(own, Tensor)
            else PartlyDenseRows.of(own, torch.empty(0, device=device), places, self._view.feature_ptr)
        )

    def nearest(self, vectors: Tensor) -> Tensor:
        """[M, num_features]: the hidden neighbour of its node that is closest to each vector."""
        chosen = np.zeros(len(self.owners), dtype=np.int64)
        for (first, last), (rows, candidates, allowed) in zip(pairwise(self.vector_ptr), self._near, strict=True):
            if first < last:
                found = candidates.nearest(vectors[first:last], allowed)
                chosen[first:last] = rows[found[:, 0]]
        return _dense(self._features[chosen], vectors)

    def mended_view(self, vectors: Tensor) -> View:
        """The training nodes of the impaired graphs, mended with [M, num_features] vectors."""
        own, placed = self._own, vectors[self._vectors]
        x = own.index_copy(0, self._places, placed) if isinstance(own, Tensor) else replace(own, dense=placed)
        return replace(self._view, features=[x])


def vectors_of(counts: np.ndarray, ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The node of each vector, and its number among that node's: [counts.sum()] both, by client, number and node.

    Args:
        counts: [n] vectors of each node.
        ptr: [S + 1] boundaries of the nodes by client.
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    slots = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = np.lexsort((slots, np.searchsorted(ptr, owners, side="right")))
    return owners[order], slots[order]


class Candidates:
    """Groups of feature rows, to look up the nearest one of each in.

    Args:
        features: [rows, num_features] dense or CSR.
        ptr: boundaries of the groups, none empty.
        device: where the products run.
    """

    def __init__(
        self, features: np.ndarray | sp.csr_matrix, ptr: Sequence[int] | np.ndarray, device: torch.device | str
    ):
        self._groups: list[tuple[int, SparseOperator | Tensor, Tensor]] = []  # first row, rows, half their squares
        self._block = _BLOCK[torch.device(device).type]
        for start, stop in pairwise(ptr):
            own = features[start:stop]
            if isinstance(own, np.ndarray):
                rows: SparseOperator | Tensor = torch.from_numpy(own).to(device)
                squares = np.square(own).sum(1, keepdims=True)
            else:
                rows = SparseOperator(own, device)
                squares = own.multiply(own).sum(1)
            half = torch.from_numpy(np.asarray(squares, dtype=np.float32) / 2).to(device)
            self._groups.append((int(start), rows, half))

    def nearest(self, vectors: Tensor, allowed: Tensor | None = None, without: int | None = None) -> np.ndarray:
        """[M, groups] int64: the row of each group with the least squared distance to a vector.

        Args:
            vectors: [M, num_features].
            allowed: [M, rows] bool, of a single group; None allows all.
            without: a group to leave out.
        """
        groups = [group for number, group in enumerate(self._groups) if number != without]
        found = np.empty((len(vectors), len(groups)), dtype=np.int64)
        size = max(_FEWEST, self._block // max(len(half) for _, _, half in groups))
        for first in range(0, len(vectors), size):
            block = slice(first, first + size)
            columns = vectors[block].T.contiguous()
            for number, (start, rows, half) in enumerate(groups):
                distance = half - rows @ columns  # less the vectors' own squares, and halved
                if allowed is not None:
                    distance = distance.masked_fill(~allowed[block].T, torch.inf)
                found[block, number] = start + distance.argmin(0).cpu().numpy()
        return found


def others_mean(everyone: Candidates, federation: Federation, vectors: Tensor, clients: np.ndarray) -> Tensor:
    """[M, num_features]: the mean over all other clients of their node closest to each vector.

    The squared distances to these nodes have the same gradient, in the mean, as that to their mean.

    Args:
        everyone: the features of all clients that have nodes, each a group.
        federation: all clients, at least two of them with nodes.
        vectors: [M, num_features].
        clients: [M] whose each vector is, ascending.
    """
    present = np.flatnonzero(np.diff(federation.ptr))
    chosen = [np.empty(0, dtype=np.int64)]
    for client in np.unique(clients):
        start, stop = np.searchsorted(clients, [client, client + 1])
        own = int(np.searchsorted(present, client))
        chosen.append(everyone.nearest(vectors[start:stop], without=own).ravel())
    others = len(present) - 1
    indptr = np.arange(len(clients) + 1) * others
    shares = np.full(indptr[-1], 1.0 / others, dtype=np.float32)
    pick = sp.csr_matrix((shares, np.concatenate(chosen), indptr), shape=(len(clients), len(federation.labels)))
    return _dense(pick @ federation.features, vectors)


class Generator:
    """Encoder, degree head, feature head and classifier of S clients.

    Args:
        settings: of FedSage+.
        features, classes: numbers of both.
        clients: [S] ids; all start alike, and each draws its noise from a stream of its own.
        seed: of the cell.
        device: where tensors live.
    """

    def __init__(
        self, settings: Any, features: int, classes: int, clients: np.ndarray, seed: int, device: torch.device | str
    ):
        width = settings.width
        self._settings = settings
        self._shape = (settings.neighbours, features)
        own = sage.Settings(hidden=width, dropout=0.0)
        self._encoder = sage.Backbone(own, features, width)
        self._classifier = sage.Backbone(own, features, classes)
        stream = torch_stream(seed, "fedsage+ initialisation")
        layers = [(width, 1), (width, width), (width, settings.neighbours * features)]
        start = {
            "encoder": self._encoder.initial(stream),
            "head": linear_layers(stream, layers),
            "classifier": self._classifier.initial(stream),
        }
        # A layer for each of a node's vectors, so that only those asked for are computed.
        start["head"]["2.weight"] = start["head"]["2.weight"].view(width, *self._shape).transpose(0, 1).contiguous()
        start["head"]["2.bias"] = start["head"]["2.bias"].view(self._shape)
        self.parameters = {
            part: {name: own.to(device).requires_grad_() for name, own in stacked.stack(one, len(clients)).items()}
            for part, one in start.items()
        }
        self._streams = [torch.Generator().manual_seed(derive(seed, "fedsage+ noise", int(c))) for c in clients]

    def encode(self, federation: Federation) -> Callable[[], Tensor]:
        """Computes the representations [n, width] of all nodes."""
        device = self.parameters["head"]["0.bias"].device
        view = federation.view(np.arange(federation.num_clients), 1, 1, training=False, device=device)
        return lambda: self._encoder.forward(self.parameters["encoder"], view, no_dropout).logits

    def degrees(self, z: Tensor, ptr: list[int]) -> Tensor:
        """[n] predicted numbers of missing neighbours; below 0 means none."""
        return self._layer(0, z, ptr).squeeze(1)

    def vectors(self, z: Tensor, ptr: list[int], owners: np.ndarray, slots: np.ndarray) -> Tensor:
        """[M, num_features] generated neighbours: of a node's vectors, all from one draw of noise, those asked for.

        Args:
            z: [n, width] representations.
            ptr: their boundaries by client.
            owners, slots: [M] the node of each vector and its number, in the order of `vectors_of`.
        """
        nodes, node_of = np.unique(owners, return_inverse=True)
        own_ptr = np.searchsorted(nodes, ptr).tolist()
        sizes = np.diff(own_ptr)
        noise = [
            torch.randn(int(size), z.shape[1], generator=own) for size, own in zip(sizes, self._streams, strict=True)
        ]
        noisy = z[torch.from_numpy(nodes).to(z.device)] + torch.cat(noise).to(z.device)
        h = self._layer(1, noisy, own_ptr).relu()[torch.from_numpy(node_of).to(z.device)]
        number, features = self._shape
        group = (np.searchsorted(ptr, owners, side="right") - 1) * number + slots
        group_ptr = np.searchsorted(group, np.arange(len(self._streams) * number + 1)).tolist()
        head = self.parameters["head"]
        weight, bias = head["2.weight"].reshape(-1, h.shape[1], features), head["2.bias"].reshape(-1, features)
        return stacked_bias(stacked_linear(h, weight, group_ptr), bias, group_ptr).tanh()

    def _layer(self, number: int, x: Tensor, ptr: list[int]) -> Tensor:
        head: Parameters = self.parameters["head"]
        return stacked_bias(stacked_linear(x, head[f"{number}.weight"], ptr), head[f"{number}.bias"], ptr)

    def train(self, hidden: Hidden, pull: Callable[[Tensor], Tensor] | None) -> None:
        """Local epochs, then those in which other clients pull at the vectors.

        Args:
            hidden: of the same clients.
            pull: gives what the vectors [M, num_features] are pulled to; None where there are no other clients.
        """
        settings = self._settings
        every = [tensor for part in self.parameters.values() for tensor in part.values()]
        optimiser = torch.optim.Adam(every, lr=settings.lr, fused=True)
        encode = self.encode(hidden.federation)
        for epoch in range(settings.epochs + settings.federated_epochs):
            optimiser.zero_grad()
            losses = self.losses(encode(), hidden, pull if epoch >= settings.epochs else None)
            losses.sum().backward()
            optimiser.step()

    def losses(self, z: Tensor, hidden: Hidden, pull: Callable[[Tensor], Tensor] | None) -> Tensor:
        """[S] each client's loss, the weighted sum of its terms.

        Args:
            z: [n, width] representations of the nodes that stay.
            hidden, pull: as in `train`.
        """
        settings = self._settings
        degrees = smooth_l1_loss(self.degrees(z, hidden.ptr), hidden.missing, reduction="none").unsqueeze(1)
        vectors = self.vectors(z, hidden.ptr, hidden.owners, hidden.slots)
        constant = vectors.detach()
        distance = settings.feature_weight * _distance(vectors, hidden.nearest(constant))
        if pull is not None:
            distance = distance + settings.cross_weight * _distance(vectors, pull(constant))
        view = hidden.mended_view(vectors)
        logits = self._classifier.forward(self.parameters["classifier"], view, no_dropout).logits
        classes = cross_entropy(logits, view.labels, reduction="none").unsqueeze(1)
        total = settings.degree_weight * (hidden.mean @ degrees) + hidden.vector_mean @ distance
        return (total + settings.class_weight * (view.client_mean @ classes)).squeeze(1)

    @torch.no_grad()
    def generate(self, federation: Federation, learned: np.ndarray) -> tuple[np.ndarray, Callable[[], np.ndarray]]:
        """The owner [G] of each generated neighbour, by client, and what makes their features [G, num_features].

        Args:
            federation: of the same clients.
            learned: [S] bool, clients that had a node to learn from; the others get no neighbour.
        """
        z, ptr = self.encode(federation)(), federation.ptr.tolist()
        counts = self.degrees(z, ptr).round().clamp(0, self._shape[0]).long().cpu().numpy()
        owners, slots = vectors_of(counts * learned[federation.client_of], federation.ptr)
        return owners, torch.no_grad()(lambda: self.vectors(z, ptr, owners, slots).cpu().numpy())

    def exchanged_bytes(self, hidden: Hidden) -> int:
        """What clients with vectors show the others once: noisy representations of the nodes, and the feature head."""
        head = stacked.bytes_of(self.parameters["head"], [name for name in self.parameters["head"] if name[0] != "0"])
        nodes = len(np.unique(hidden.owners))
        showing = np.count_nonzero(np.diff(hidden.vector_ptr))
        return 4 * nodes * self._settings.width + head * int(showing)


def _distance(vectors: Tensor, others: Tensor) -> Tensor:
    """[M, 1] squared distances; two passes over the vectors forward and one back, half as many as of a difference."""
    return mse_loss(vectors, others, reduction="none").sum(1, keepdim=True)


def _dense(rows: np.ndarray | sp.csr_matrix, like: Tensor) -> Tensor:
    return torch.from_numpy(rows if isinstance(rows, np.ndarray) else rows.toarray()).to(like)
