"""Round-wise evaluation: every client's model on all nodes of its own graph, without gradients."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from fglbench.backbones.base import Backbone, Output
from fglbench.federation import parameters as stacked
from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import Parameters
from fglbench.tasks.base import Task


class Evaluator:
    """Predicts all nodes of all clients (of rows that a method added it predicts none).

    Args:
        federation: the graphs to predict on: `scored` for scores, the graphs of training for what a method sends.
        backbone, task: whose outputs, and what is predicted of them.
        device: where batches live.
        chunk_clients: clients evaluated at once, whose batches are then built anew each time, not kept; None for all.
    """

    def __init__(
        self,
        federation: Federation,
        backbone: Backbone,
        task: Task,
        device: torch.device | str,
        chunk_clients: int | None = None,
    ):
        self._federation = federation
        self._backbone = backbone
        self._task = task
        self._device = device
        clients = np.flatnonzero(np.diff(federation.ptr))  # a graph of training may have no node
        size = chunk_clients or federation.num_clients
        self._chunks = [clients[first : first + size] for first in range(0, len(clients), size)]
        self._kept: list[Batch] | None = None

    def build(self) -> None:
        """Makes the batch ahead of its first use, where it is one that stays."""
        if self._kept is None and len(self._chunks) == 1:
            self._kept = [self._batch(self._chunks[0])]

    def _batch(self, clients: np.ndarray) -> Batch:
        federation = self._federation
        given = federation.given
        if given is not None:
            given = given[np.isin(federation.client_of[given], clients)]
        return self._backbone.batch(federation, clients, given, device=self._device)

    @torch.no_grad()
    def run(self, parameters: Parameters) -> np.ndarray | None:
        """[N, ...] what the task predicts under stacked parameters, or None where an output is not finite."""
        predictions, sums = [], []
        for output, batch in self._outputs(parameters):
            predictions.append(self._task.predict(output, batch))
            sums.append(output.logits.sum())
        if not torch.isfinite(torch.stack(sums)).all():  # a device is waited for once, whatever the number of chunks
            return None
        return np.concatenate([own.cpu().numpy() for own in predictions])

    @torch.no_grad()
    def logits(self, parameters: Parameters) -> np.ndarray:
        """[N, outputs] float32 under stacked parameters."""
        return np.concatenate([output.logits.cpu().numpy() for output, _ in self._outputs(parameters)])

    @torch.no_grad()
    def stacked_logits(self, parameters: Parameters) -> Tensor:
        """The same, left on the device."""
        first, *others = (output.logits for output, _ in self._outputs(parameters))
        return torch.cat([first, *others]) if others else first

    def _outputs(self, parameters: Parameters) -> Iterator[tuple[Output, Batch]]:
        self.build()
        for batch in self._kept or map(self._batch, self._chunks):
            own = stacked.take(parameters, stacked.rows_of(batch.clients, self._device))
            yield self._backbone.forward(own, batch, no_dropout), batch
