"""Evaluation in each round: every client's model predicts all nodes of its own graph, without gradients."""

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
    """Evaluation of every client's model on all original nodes of its graph.

    Batches are kept if all clients are evaluated at once; otherwise they are built anew for each use.

    Args:
        federation: the graphs to predict on: `scored` for scores, the training graphs for logits that a method may see.
        backbone: the model.
        task: computes predictions from the outputs of the model.
        seed: seed of the cell, for random draws of the evaluation.
        device: device of the batches.
        chunk_clients: number of clients evaluated at once; None for all.
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
        clients = np.flatnonzero(np.diff(federation.ptr))  # a client's training graph may be empty
        size = chunk_clients or federation.num_clients
        self._chunks = [clients[first : first + size] for first in range(0, len(clients), size)]
        self._kept: list[Batch] | None = None

    def build(self) -> None:
        """Build the batches before their first use, if they are kept."""
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
        """Compute predictions under stacked parameters, and check that all outputs are finite.

        Args:
            parameters: [C, ...] parameters and buffers by name.

        Returns:
            Predictions [N, ...] of the task, one for each original node or for each target of the task (such as a
            pair); None if an output is not finite.
        """
        predictions, finite = self._predict(parameters)
        return predictions if finite else None

    def predictions(self, parameters: Parameters) -> np.ndarray:
        """Compute predictions under stacked parameters, without a check that outputs are finite.

        Args:
            parameters: [C, ...] parameters and buffers by name.

        Returns:
            Predictions [N, ...] as in `run`.
        """
        return self._predict(parameters)[0]

    @torch.no_grad()
    def _predict(self, parameters: Parameters) -> tuple[np.ndarray, bool]:
        predictions, sums = [], []
        for output, batch in self._outputs(parameters):
            predictions.append(self._task.predict(output, batch, self._federation))
            sums.append(output.logits.sum())
        finite = bool(torch.isfinite(torch.stack(sums)).all())  # one wait for the device for all chunks
        return np.concatenate([part.cpu().numpy() for part in predictions]), finite

    @torch.no_grad()
    def logits(self, parameters: Parameters) -> np.ndarray:
        """Compute the logits of all original nodes under stacked parameters.

        Args:
            parameters: [C, ...] parameters and buffers by name.

        Returns:
            [N, outputs] float32.
        """
        return np.concatenate([output.logits.cpu().numpy() for output, _ in self._outputs(parameters)])

    @torch.no_grad()
    def stacked_logits(self, parameters: Parameters) -> Tensor:
        """Compute the logits of all original nodes under stacked parameters, on the device.

        Args:
            parameters: [C, ...] parameters and buffers by name.

        Returns:
            [N, outputs] float32 tensor.
        """
        first, *others = (output.logits for output, _ in self._outputs(parameters))
        return torch.cat([first, *others]) if others else first

    def _outputs(self, parameters: Parameters) -> Iterator[tuple[Output, Batch]]:
        self.build()
        for batch in self._kept or chain.from_iterable(map(self._batches, self._chunks)):
            held = stacked.take(parameters, stacked.rows_of(batch.clients, self._device))
            yield self._backbone.forward(held, batch, no_dropout), batch
