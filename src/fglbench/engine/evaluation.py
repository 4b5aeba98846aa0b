"""Round-wise evaluation: every client's model on all nodes of its own graph, without gradients."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from fglbench.backbones.base import Backbone
from fglbench.engine.samples import evaluation_samples
from fglbench.federation import parameters as stacked
from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import Parameters
from fglbench.federation.step import Output
from fglbench.tasks.base import Task


class Evaluator:
    """Predicts all nodes of all clients (of rows that a method added it predicts none).

    Args:
        federation: the graphs to predict on: `scored` for scores, the graphs of training for what a method sends.
        backbone, task: whose outputs, and what is predicted of them.
        seed: of the cell, of which draws for evaluation are made.
        device: where batches live.
        chunk_clients: clients evaluated at once, whose batches are then built anew each time, not kept; None for all.
    """

    def __init__(
        self,
        federation: Federation,
        backbone: Backbone,
        task: Task,
        seed: int,
        device: torch.device | str,
        chunk_clients: int | None = None,
    ):
        self._federation = federation
        self._backbone = backbone
        self._task = task
        self._seed = seed
        self._device = device
        clients = np.flatnonzero(np.diff(federation.ptr))  # a graph of training may have no node
        size = chunk_clients or federation.num_clients
        self._chunks = [clients[first : first + size] for first in range(0, len(clients), size)]
        self._kept: list[Batch] | None = None

    def build(self) -> None:
        """Makes the batches ahead of their first use, where they stay."""
        if self._kept is None and len(self._chunks) == 1:
            self._kept = list(self._batches(self._chunks[0]))

    def _batches(self, clients: np.ndarray) -> Iterator[Batch]:
        federation, backbone = self._federation, self._backbone
        if backbone.sampler is not None:
            sampler = backbone.sampler(federation.adjacency)
            whole = self._task.predicts_pairs
            yield from evaluation_samples(federation, sampler, clients, self._seed, self._device, whole)
            return
        original = federation.original
        if original is not None:
            original = original[np.isin(federation.client_of[original], clients)]
        yield backbone.batch(federation, clients, original, device=self._device)

    def run(self, parameters: Parameters) -> np.ndarray | None:
        """[N, ...] what the task predicts under stacked parameters, or None where an output is not finite."""
        predictions, finite = self._predict(parameters)
        return predictions if finite else None

    def predictions(self, parameters: Parameters) -> np.ndarray:
        """The same, whether outputs are finite or not."""
        return self._predict(parameters)[0]

    @torch.no_grad()
    def _predict(self, parameters: Parameters) -> tuple[np.ndarray, bool]:
        predictions, sums = [], []
        for output, batch in self._outputs(parameters):
            predictions.append(self._task.predict(output, batch, self._federation))
            sums.append(output.logits.sum())
        finite = bool(torch.isfinite(torch.stack(sums)).all())  # waits for the device once, however many the chunks
        return np.concatenate([own.cpu().numpy() for own in predictions]), finite

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
        for batch in self._kept or chain.from_iterable(map(self._batches, self._chunks)):
            own = stacked.take(parameters, stacked.rows_of(batch.clients, self._device))
            yield self._backbone.forward(own, batch, no_dropout), batch
