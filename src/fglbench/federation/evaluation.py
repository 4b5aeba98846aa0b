"""Round-wise evaluation: every client's model on all nodes of its own graph, without gradients."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fglbench.backbones.base import Backbone
from fglbench.federation import parameters as stacked
from fglbench.federation.federation import Federation, View
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import Parameters


class Evaluator:
    """Predicts all nodes of all clients (of rows that a method added it predicts none).

    Args:
        federation: the graphs to predict on: `scored` for scores, the graphs of training for what a method sends.
        chunk_clients: clients evaluated at once, whose views are then built anew each time and not kept; None for all.
    """

    def __init__(
        self, federation: Federation, backbone: Backbone, device: torch.device | str, chunk_clients: int | None = None
    ):
        self._federation = federation
        self._backbone = backbone
        self._device = device
        clients = np.flatnonzero(np.diff(federation.ptr))  # a graph of training may have no node
        size = chunk_clients or federation.num_clients
        self._chunks = [clients[first : first + size] for first in range(0, len(clients), size)]
        self._kept: list[View] | None = None

    def build(self) -> None:
        """Makes the view ahead of its first use, where it is one that stays."""
        if self._kept is None and len(self._chunks) == 1:
            self._kept = [self._view(self._chunks[0])]

    def _view(self, clients: np.ndarray) -> View:
        backbone, federation = self._backbone, self._federation
        given = federation.given
        if given is not None:
            given = given[np.isin(federation.client_of[given], clients)]
        return federation.view(
            clients, backbone.hops, backbone.propagations, training=False, outputs=given, device=self._device
        )

    @torch.no_grad()
    def run(self, parameters: Parameters) -> np.ndarray | None:
        """[N] int32 class ids under stacked parameters, or None where a logit is not finite."""
        predictions, sums = [], []
        for logits in self._logits(parameters):
            predictions.append(logits.argmax(1).to(torch.int32))
            sums.append(logits.sum())
        if not torch.isfinite(torch.stack(sums)).all():  # a device is waited for once, whatever the number of chunks
            return None
        return np.concatenate([own.cpu().numpy() for own in predictions])

    @torch.no_grad()
    def logits(self, parameters: Parameters) -> np.ndarray:
        """[N, classes] float32 under stacked parameters."""
        return np.concatenate([logits.cpu().numpy() for logits in self._logits(parameters)])

    @torch.no_grad()
    def stacked_logits(self, parameters: Parameters) -> Tensor:
        """The same, left on the device."""
        first, *others = self._logits(parameters)
        return torch.cat([first, *others]) if others else first

    def _logits(self, parameters: Parameters) -> Iterator[Tensor]:
        self.build()
        for view in self._kept or map(self._view, self._chunks):
            own = stacked.take(parameters, stacked.rows_of(view.clients, self._device))
            yield self._backbone.forward(own, view, no_dropout).logits
