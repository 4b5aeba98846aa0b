"""Local training: the local epochs of a round's clients, chunk by chunk, and the local step."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fglbench.backbones.base import Backbone
from fglbench.engine.batches import Batches
from fglbench.federation import parameters as stacked
from fglbench.federation.batch import Batch
from fglbench.federation.operators import ClientDropout
from fglbench.federation.optimiser import SGD, Adam
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule
from fglbench.federation.step import Messages, Step
from fglbench.methods.base import Method
from fglbench.methods.common.phases import LocalStep, Losses
from fglbench.tasks.base import Objective


def gradients_of(losses: Losses, parameters: Parameters) -> Parameters:
    """Compute each client's gradient of its own loss, for all clients in one backward pass (the default local step).

    Args:
        losses: function from stacked parameters to the losses [S].
        parameters: [S, ...] leaves by name.

    Returns:
        [S, ...] gradients by name.
    """
    return stacked.gradients(losses(parameters).sum(), parameters)


@dataclass(frozen=True)
class Trained:
    """Results of local training other than the parameters.

    Attributes:
        losses: [C] float32 loss of the objective in the last local epoch, nan for a client that did not train.
        totals: [C] float32 the same losses plus the terms that the model and the method add.
        bytes_down: bytes that the clients received beside the parameters.
    """

    losses: np.ndarray
    totals: np.ndarray
    bytes_down: int


class LocalTraining:
    """Local epochs of the round's clients.

    Args:
        batches: batches of the local steps.
        backbone: the model to train.
        objective: the loss that local training minimises.
        method: its hooks give messages, loss terms and changes of gradients.
        schedule: number of local epochs; every `Step` contains it.
        seed: seed of the cell.
        streams: random stream of each client's dropout.
        chunk_clients: number of clients trained at once.
        local_step: computes the direction of a step; the gradient by default.
    """

    def __init__(
        self,
        batches: Batches,
        backbone: Backbone,
        objective: Objective,
        method: Method,
        schedule: Schedule,
        seed: int,
        streams: list[torch.Generator],
        chunk_clients: int,
        local_step: LocalStep = gradients_of,
    ):
        self._batches = batches
        self._backbone = backbone
        self._objective = objective
        self._method = method
        self._schedule = schedule
        self._seed = seed
        self._streams = streams
        self._chunk_clients = chunk_clients
        self._local_step = local_step
        self._rate = getattr(backbone.settings, "dropout", 0.0)

    def run(
        self, number: int, active: np.ndarray, current: Parameters, received: Parameters, optimiser: Adam | SGD
    ) -> Trained:
        """Train the active clients for one round, in place on `current`.

        Args:
            number: 0-based round of the phase.
            active: [S] int64 ascending ids of the clients to train.
            current: [C, ...] parameters and buffers by name, updated in place.
            received: [C, ...] the same at the start of the round.
            optimiser: local optimiser with the state of all clients.

        Returns:
            Losses of the clients and the bytes of their downloads.
        """
        losses = np.full((2, len(self._streams)), np.nan, dtype=np.float32)
        by_chunk, bytes_down = [], 0
        for first in range(0, len(active), self._chunk_clients):
            chunk = active[first : first + self._chunk_clients]
            downloads = self._method.download(number, chunk)
            bytes_down += stacked.total_bytes(downloads)
            by_chunk.append(self._run_chunk(number, chunk, downloads, current, received, optimiser))
        if by_chunk:
            # This is the only wait for the device in local training.
            losses[:, active] = torch.cat(by_chunk, dim=1).cpu().numpy()
        return Trained(losses[0], losses[1], bytes_down)

    def _run_chunk(
        self,
        number: int,
        chunk: np.ndarray,
        downloads: Messages,
        current: Parameters,
        received: Parameters,
        optimiser: Adam | SGD,
    ) -> Tensor:
        """Train a chunk and return losses and totals [2, S] of the last epoch, averaged over its targets."""
        losses, targets = torch.zeros(2, 0), np.zeros(0)  # targets: their number so far, of each client
        client_rows: _ClientRows | None = None
        for epoch in range(self._schedule.local_epochs):
            for position, batch in enumerate(self._batches.epoch(chunk)):
                if client_rows is None or not np.array_equal(batch.clients, client_rows.clients):
                    client_rows = _ClientRows.of(
                        batch.clients, chunk, downloads, current, received, optimiser.names, client_rows
                    )
                step_losses, sizes = self._step(number, epoch, batch, client_rows, optimiser), np.diff(batch.target_ptr)
                if position == 0:  # the first batch has targets of all clients
                    losses, targets = step_losses, sizes.astype(np.float32)
                    continue
                present = np.searchsorted(chunk, batch.clients)
                targets[present] += sizes
                share = torch.from_numpy(sizes / targets[present]).to(step_losses)
                losses[:, present] += share * (step_losses - losses[:, present])
        if client_rows is not None:
            client_rows.put_back(current)
        return losses

    def _step(self, number: int, epoch: int, batch: Batch, client_rows: "_ClientRows", optimiser: Adam | SGD) -> Tensor:
        """Take one optimiser step of the batch's clients, and return losses and totals [2, S] before it."""
        dropout = ClientDropout(self._rate, [self._streams[client] for client in batch.clients])
        steps: list[tuple[Step, Tensor]] = []

        def losses(parameters: Parameters) -> Tensor:
            tensors = parameters | client_rows.buffers
            output = self._backbone.forward(tensors, batch, dropout)
            context = self._seed, number, epoch, batch.clients
            step = Step(*context, tensors, client_rows.received, client_rows.downloads, output, batch, self._schedule)
            loss = self._objective.loss(step)
            terms = [term for term in (output.penalty, self._method.loss(step)) if term is not None]
            total = sum(terms, start=loss)
            steps.append((step, torch.stack([loss.detach(), total.detach()])))
            return total

        gradients = self._local_step(losses, client_rows.leaves)
        step, loss = steps[0]
        with torch.no_grad():
            self._method.modify_gradients(step, gradients)
            optimiser.step(batch.clients, client_rows.rows, client_rows.leaves, gradients)
            for name, value in step.output.buffers.items():
                client_rows.buffers[name].copy_(value)
        return loss


def of_some(messages: Messages, positions: np.ndarray) -> Messages:
    """Select the messages to some clients.

    Args:
        messages: messages to a group of clients, by name.
        positions: [S] int64 positions of the selected clients in this group.

    Returns:
        Messages to the selected clients, by name.
    """
    return {
        name: sent[torch.from_numpy(positions)] if isinstance(sent, Tensor) else [sent[index] for index in positions]
        for name, sent in messages.items()
    }


@dataclass(frozen=True)
class _ClientRows:
    """Parameters and messages of the clients of a step; the tensors are reused while the clients stay the same."""

    clients: np.ndarray
    rows: stacked.Rows
    leaves: Parameters
    buffers: Parameters
    received: Parameters
    downloads: Messages

    @classmethod
    def of(
        cls,
        clients: np.ndarray,
        chunk: np.ndarray,
        downloads: Messages,
        current: Parameters,
        received: Parameters,
        trained: list[str],
        before: "_ClientRows | None" = None,
    ) -> "_ClientRows":
        """Take the parameters of some clients out of the stacks, after those taken `before` are written back."""
        if before is not None:
            before.put_back(current)
        rows = stacked.rows_of(clients, next(iter(current.values())).device)
        tensors = stacked.take(current, rows)
        leaves = {name: tensors.pop(name).requires_grad_() for name in trained}
        if len(clients) < len(chunk):
            downloads = of_some(downloads, np.searchsorted(chunk, clients))
        return cls(clients, rows, leaves, tensors, stacked.take(received, rows), downloads)

    @torch.no_grad()
    def put_back(self, current: Parameters) -> None:
        stacked.put(current, self.rows, self.leaves | self.buffers)
