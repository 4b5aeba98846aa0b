"""Training of FedSage+'s generator: its objective, and the messages of the clients."""

from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss, smooth_l1_loss

from fglbench.federation.federation import Federation
from fglbench.methods import base
from fglbench.methods.common.generator import Generator, Guesses
from fglbench.methods.common.hidden import Hidden
from fglbench.methods.common.nearest import Candidates, others_mean
from fglbench.tasks.base import Objective


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

    In the federated epochs each client sends noisy representations of its nodes and its feature head to all others,
    through the server, and receives the sum of their gradients.
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
        """Return tensors without values that count the bytes of an epoch, per client and direction.

        A client uploads its representations and head once, and gradients for those of the C - 1 other clients. Each
        other client downloads them, and the client downloads the sum of the gradients. Over all clients, both
        directions therefore count C times the size of a client's representations and head.
        """
        if not is_federated(self.settings, self.federation, number):
            return []
        batch = self.backbone.batch(self.federation, clients)
        width, size = self.settings.width, self.settings.neighbours * self.federation.num_features
        head = width * width + width + width * size + size  # the two layers that map noisy representations to features
        nodes = [len(np.unique(batch.owners[first:last])) for first, last in pairwise(batch.vector_ptr)]
        sizes = [(count * width + head) * self.federation.num_clients if count else 0 for count in nodes]
        return [torch.empty(values, device="meta") for values in sizes]


def _distance(vectors: Tensor, others: Tensor) -> Tensor:
    """Return the squared distances, [M, 1]."""
    # This reads the vectors twice forward and once backward, half as often as the square of a difference.
    return mse_loss(vectors, others, reduction="none").sum(1, keepdim=True)
