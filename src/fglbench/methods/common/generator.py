"""The neighbour generator of FedSage+: encoder, degree head, feature head and classifier."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglbench.backbones import sage
from fglbench.backbones.base import Backbone, Dropout, linear_layers
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout, stacked_bias, stacked_linear
from fglbench.federation.parameters import Parameters
from fglbench.federation.propagation_batch import PropagationBatch, propagation_batch
from fglbench.federation.step import Output
from fglbench.methods.common.hidden import Hidden, vectors_of
from fglbench.methods.common.mending import MEAN, some_clients
from fglbench.seeding import derive


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


def _part(parameters: Parameters, part: str) -> Parameters:
    return {name.removeprefix(f"{part}."): tensor for name, tensor in parameters.items() if name.startswith(f"{part}.")}


def _layer(parameters: Parameters, number: int, x: Tensor, ptr: list[int]) -> Tensor:
    weight, bias = parameters[f"head.{number}.weight"], parameters[f"head.{number}.bias"]
    return stacked_bias(stacked_linear(x, weight, ptr), bias, ptr)
