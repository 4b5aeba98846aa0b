"""The round loop: trains all clients of a federation under any method. It knows no method by name.

A round: draw clients, train them locally (all at once, or in chunks under a memory limit), upload, mix, evaluate.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fglbench.backbones.base import Backbone
from fglbench.federation import parameters as stacked
from fglbench.federation.evaluation import Evaluator
from fglbench.federation.federation import TRAIN, Federation, View
from fglbench.federation.operators import ClientDropout
from fglbench.federation.optimiser import OPTIMISERS, SGD, Adam
from fglbench.federation.parameters import Parameters
from fglbench.federation.record import Recorder, Result
from fglbench.methods.base import Method, Round, Step
from fglbench.seeding import derive, numpy_stream, torch_stream

EXPLODED_LOSS = 1e4  # a mean cross-entropy that no usable model has: 1e-4343 of probability on the true class


@dataclass(frozen=True)
class Schedule:
    """How long and how clients train; the defaults of the fields stand in `config.schema.Training`.

    Attributes:
        rounds: communication rounds.
        local_epochs: passes over its training nodes that a client makes in a round.
        lr, weight_decay, optimiser, optimiser_state: of the local optimiser; the state is kept over rounds or reset.
        participation: fraction of clients drawn for a round, at least one.
        evaluate: score the parameters "aggregated" (after the server's step) or "trained" (before it).
        selection_mean: client mean of the validation accuracy that selects the round, "pooled" or "macro".
    """

    rounds: int
    local_epochs: int
    lr: float
    weight_decay: float
    optimiser: str
    optimiser_state: str
    participation: float
    evaluate: str
    selection_mean: str


def draw_clients(seed: int, number: int, clients: int, participation: float) -> np.ndarray:
    """The clients of a round, ascending; the same for all methods at a seed. At least one."""
    if participation >= 1.0:
        return np.arange(clients)
    count = max(1, round(participation * clients))
    return np.sort(numpy_stream(seed, "client draw", number).choice(clients, count, replace=False))


def train(
    federation: Federation,
    backbone: Backbone,
    method: Method,
    schedule: Schedule,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    chunk_clients: int | None = None,
    on_round: Callable[[int, float, float], None] | None = None,
) -> Result:
    """Trains one cell.

    Args:
        federation: the client graphs.
        backbone, method: what is trained, and how it is federated.
        schedule: rounds and optimiser.
        seed: of the cell; all streams derive from it.
        device: where tensors live.
        chunk_clients: clients trained at once; None for all. Changes memory, not numbers.
        on_round: called after every round with (round, mean training loss, validation accuracy or nan).

    Returns:
        History, predictions and parameters of the selected and the last round, and the outcome: `diverged` with its
        round when a client's loss is not finite or exceeds `EXPLODED_LOSS`.
    """
    clients = federation.num_clients
    start = backbone.initial(torch_stream(seed, "initialisation"))
    current = {name: tensor.to(device) for name, tensor in stacked.stack(start, clients).items()}
    shared = method.shared(list(current))
    optimiser = OPTIMISERS[schedule.optimiser](current, schedule.lr, schedule.weight_decay)
    streams = [torch.Generator(device).manual_seed(derive(seed, "dropout", client)) for client in range(clients)]
    local = LocalTraining(federation, backbone, method, schedule, streams, device, chunk_clients)
    evaluator = Evaluator(federation, backbone, device, chunk_clients)
    recorder = Recorder(federation, schedule.selection_mean)
    train_nodes = federation.count(TRAIN)
    parameter_bytes = stacked.bytes_of(current, shared)
    if schedule.participation >= 1.0:  # the views of every round are known: they are start-up, not training
        local.build(np.flatnonzero(train_nodes))

    for number in range(schedule.rounds):
        began = time.perf_counter()
        drawn = draw_clients(seed, number, clients, schedule.participation)
        active = drawn[train_nodes[drawn] > 0]
        if schedule.optimiser_state == "reset":
            optimiser.reset()
        received, current = current, stacked.clone(current)
        losses = local.run(number, active, current, received, optimiser)
        if not np.all(losses[active] <= EXPLODED_LOSS):  # false for nan as well
            return recorder.diverged(number)
        trained, current = current, dict(current)
        uploaded_bytes = 0
        if len(active):
            weights = np.where(np.isin(np.arange(clients), active), train_nodes, 0).astype(np.float32)
            finished = Round(number, active, torch.from_numpy(weights).to(device), trained, received)
            finished = replace(finished, uploads=method.upload(finished))
            uploaded_bytes = sum(tensor.numel() * tensor.element_size() for tensor in finished.uploads.values())
            mixing = method.mixing(finished)
            if mixing is not None:
                current = stacked.mix(trained, shared, mixing)
            method.after(finished, current)
        _synchronise(device)
        recorder.train_seconds += time.perf_counter() - began

        began = time.perf_counter()
        scored = trained if schedule.evaluate == "trained" else current
        predictions = evaluator.run(scored)
        if predictions is None:
            return recorder.diverged(number)
        sent = parameter_bytes * len(active)
        validation = recorder.add(number, predictions, scored, losses, sent + uploaded_bytes, sent)
        recorder.eval_seconds += time.perf_counter() - began
        if on_round is not None:
            on_round(number, float(np.mean(losses[active])) if len(active) else math.nan, validation)
    return recorder.finished()


def _synchronise(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


class LocalTraining:
    """Local epochs of the round's clients, chunk by chunk; the views of fixed chunks are built once."""

    def __init__(
        self,
        federation: Federation,
        backbone: Backbone,
        method: Method,
        schedule: Schedule,
        streams: list[torch.Generator],
        device: torch.device | str,
        chunk_clients: int | None,
    ):
        self._federation = federation
        self._backbone = backbone
        self._method = method
        self._schedule = schedule
        self._streams = streams
        self._device = device
        self._chunk_clients = chunk_clients or federation.num_clients
        self._views: dict[tuple[int, ...], View] = {}

    def build(self, active: np.ndarray) -> None:
        """Builds the views of fixed chunks of clients ahead of the first round."""
        for chunk in self._chunks(active):
            self._view(chunk)

    def _chunks(self, active: np.ndarray) -> list[np.ndarray]:
        size = self._chunk_clients
        return [active[first : first + size] for first in range(0, len(active), size)]

    def run(
        self, number: int, active: np.ndarray, current: Parameters, received: Parameters, optimiser: Adam | SGD
    ) -> np.ndarray:
        """Trains the active clients in place on `current`; returns their last epoch's loss, [C], nan for the others."""
        losses = np.full(self._federation.num_clients, np.nan, dtype=np.float32)
        for chunk in self._chunks(active):
            losses[chunk] = self._run_chunk(number, chunk, current, received, optimiser)
        return losses

    def _run_chunk(
        self, number: int, chunk: np.ndarray, current: Parameters, received: Parameters, optimiser: Adam | SGD
    ) -> np.ndarray:
        view = self._view(chunk)
        rows = stacked.rows_of(chunk)
        leaves = {name: tensor.requires_grad_() for name, tensor in stacked.take(current, rows).items()}
        own_received = stacked.take(received, rows)
        dropout = ClientDropout(getattr(self._backbone.settings, "dropout", 0.0), [self._streams[c] for c in chunk])
        client_losses = torch.empty(len(chunk))
        for epoch in range(self._schedule.local_epochs):
            output = self._backbone.forward(leaves, view, dropout)
            row_losses = cross_entropy(output.logits, view.labels, reduction="none")
            client_losses = (view.client_mean @ row_losses.unsqueeze(1)).squeeze(1)
            total = client_losses.sum()
            step = Step(number, epoch, chunk, leaves, own_received, output, view)
            extra = self._method.loss(step)
            if extra is not None:
                total = total + extra.sum()
            found = torch.autograd.grad(total, list(leaves.values()))
            # The fused optimiser reads memory in the order of the parameters, whatever the strides of a gradient.
            gradients = {name: gradient.contiguous() for name, gradient in zip(leaves, found, strict=True)}
            with torch.no_grad():
                self._method.correct(step, gradients)
                optimiser.step(chunk, rows, leaves, gradients)
        with torch.no_grad():
            stacked.put(current, rows, leaves)
        return client_losses.detach().cpu().numpy()

    def _view(self, chunk: np.ndarray) -> View:
        key = tuple(chunk.tolist())
        if key in self._views:
            return self._views[key]
        view = self._federation.view(
            chunk, self._backbone.hops, self._backbone.propagations, training=True, device=self._device
        )
        if self._schedule.participation >= 1.0:  # the same chunks come back in every round
            self._views[key] = view
        return view
