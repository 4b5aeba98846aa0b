"""The round loop: trains all clients of a federation under any method. It knows no method by name.

A round: draw clients, train them locally (all at once, or in chunks under a memory limit), upload, mix, evaluate.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fglbench.backbones.base import Backbone
from fglbench.errors import ComponentError
from fglbench.federation import parameters as stacked
from fglbench.federation.batches import Batches
from fglbench.federation.evaluation import Evaluator
from fglbench.federation.federation import TRAIN, Federation, View
from fglbench.federation.operators import ClientDropout
from fglbench.federation.optimiser import OPTIMISERS, SGD, Adam
from fglbench.federation.parameters import Parameters
from fglbench.federation.record import Recorder, Result
from fglbench.federation.schedule import Schedule
from fglbench.methods.base import Method, Round, Step
from fglbench.seeding import derive, numpy_stream, torch_stream

EXPLODED_LOSS = 1e4  # a mean cross-entropy that no usable model has: 1e-4343 of probability on the true class


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
        federation: the client graphs of training, and where those lack nodes the ones to score on.
        backbone, method: what is trained, and how it is federated.
        schedule: rounds and optimiser.
        seed: of the cell; all streams derive from it.
        device: where tensors live.
        chunk_clients: clients trained at once; None for all. Changes memory, not numbers.
        on_round: called after every round with (round, mean training loss, validation accuracy or nan).

    Returns:
        History, predictions and parameters of the selected and the last round, and the outcome: `diverged` with its
        round when a client's loss is not finite or exceeds `EXPLODED_LOSS`.

    Raises:
        ComponentError: the method changes graphs on which features were propagated ahead.
    """
    if federation.propagated and type(method).rebuild is not Method.rebuild:
        raise ComponentError(
            f"{type(method).__module__}: its class changes graphs by `rebuild`, but features were propagated on those "
            "that it is to change. Define `rebuild` in the method's own file (it may return super().rebuild(round))."
        )
    clients = federation.num_clients
    recorder = Recorder(federation.scored, schedule.selection_mean)
    train_nodes = federation.count(TRAIN)
    began = time.perf_counter()
    prepared = method.prepare(seed, device, chunk_clients or clients)
    federation = prepared.federation
    recorder.sent(prepared.bytes_up, prepared.bytes_down)
    _synchronise(device)
    recorder.train_seconds += time.perf_counter() - began
    start = backbone.initial(torch_stream(seed, "initialisation"))
    current = {name: tensor.to(device) for name, tensor in stacked.stack(start, clients).items()}
    shared = method.shared(list(current))
    optimiser = OPTIMISERS[schedule.optimiser](current, schedule.lr, schedule.weight_decay)
    streams = [torch.Generator(device).manual_seed(derive(seed, "dropout", client)) for client in range(clients)]
    batches = Batches(federation, backbone, schedule.batch_size, seed, device)
    local = LocalTraining(batches, backbone, method, schedule, streams, chunk_clients or clients)
    evaluator, own_evaluator = _evaluators(federation, backbone, device, chunk_clients)
    parameter_bytes = stacked.bytes_of(current, shared)
    if train_nodes.any() and schedule.participation >= 1.0 and (chunk_clients or clients) >= clients:
        batches.build(np.flatnonzero(train_nodes))  # the view of every round is start-up, not training

    for number in range(schedule.rounds):
        began = time.perf_counter()
        drawn = draw_clients(seed, number, clients, schedule.participation)
        active = drawn[train_nodes[drawn] > 0]
        if schedule.optimiser_state == "reset":
            optimiser.reset()
        received, current = current, stacked.clone(current)
        sent_up = sent_down = parameter_bytes * len(active)
        if len(active):
            sent_down += _bytes(method.download(number, active))
        losses = local.run(number, active, current, received, optimiser)
        if not np.all(losses[active] <= EXPLODED_LOSS):  # false for nan as well
            return recorder.diverged(number)
        trained, current = current, dict(current)
        mixing = rebuilt = None
        if len(active):
            weights = np.where(np.isin(np.arange(clients), active), train_nodes, 0).astype(np.float32)
            own_logits = partial(own_evaluator.stacked_logits, trained)
            finished = Round(
                number, active, torch.from_numpy(weights).to(device), trained, received, schedule, own_logits
            )
            finished = replace(finished, uploads=method.upload(finished))
            sent_up += _bytes(finished.uploads)
            _synchronise(device)
            server_began = time.perf_counter()
            mixing = method.mixing(finished)
            if mixing is not None:
                current = stacked.mix(trained, shared, mixing)
            method.after(finished, current)
            _synchronise(device)
            recorder.server_seconds += time.perf_counter() - server_began
            rebuilt = method.rebuild(finished)
            if rebuilt is not None:
                federation = rebuilt
                batches.use(federation)
        _synchronise(device)
        recorder.train_seconds += time.perf_counter() - began

        began = time.perf_counter()
        if rebuilt is not None:
            evaluator, own_evaluator = _evaluators(federation, backbone, device, chunk_clients)
        scored = trained if schedule.evaluate == "trained" else current
        predictions = evaluator.run(scored)
        if predictions is None:
            return recorder.diverged(number)
        validation = recorder.add(number, predictions, scored, losses, sent_up, sent_down, mixing, federation.scored)
        recorder.eval_seconds += time.perf_counter() - began
        if on_round is not None:
            on_round(number, float(np.mean(losses[active])) if len(active) else math.nan, validation)
    return recorder.finished()


def _evaluators(
    federation: Federation, backbone: Backbone, device: torch.device | str, chunk_clients: int | None
) -> tuple[Evaluator, Evaluator]:
    """What scores, and what computes logits that a method may see: of the graphs of training alone."""
    evaluator = Evaluator(federation.scored, backbone, device, chunk_clients)
    evaluator.build()
    if federation.evaluated is None:
        return evaluator, evaluator
    return evaluator, Evaluator(federation, backbone, device, chunk_clients)


def _bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _synchronise(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


class LocalTraining:
    """Local epochs of the round's clients, chunk by chunk."""

    def __init__(
        self,
        batches: Batches,
        backbone: Backbone,
        method: Method,
        schedule: Schedule,
        streams: list[torch.Generator],
        chunk_clients: int,
    ):
        self._batches = batches
        self._backbone = backbone
        self._method = method
        self._schedule = schedule
        self._streams = streams
        self._chunk_clients = chunk_clients

    def run(
        self, number: int, active: np.ndarray, current: Parameters, received: Parameters, optimiser: Adam | SGD
    ) -> np.ndarray:
        """Trains the active clients in place on `current`; returns their last epoch's loss, [C], nan for the others."""
        losses = np.full(len(self._streams), np.nan, dtype=np.float32)
        found = []
        for first in range(0, len(active), self._chunk_clients):
            chunk = active[first : first + self._chunk_clients]
            found.append(self._run_chunk(number, chunk, current, received, optimiser))
        if found:
            losses[active] = torch.cat(found).cpu().numpy()  # local training waits for the device here alone
        return losses

    def _run_chunk(
        self, number: int, chunk: np.ndarray, current: Parameters, received: Parameters, optimiser: Adam | SGD
    ) -> Tensor:
        losses, seen = torch.zeros(0), np.zeros(0)
        own: _Own | None = None
        for epoch in range(self._schedule.local_epochs):
            for batch, view in enumerate(self._batches.epoch(chunk)):
                if own is None or not np.array_equal(view.clients, own.clients):
                    own = _Own.of(view.clients, current, received, own)
                found, sizes = self._step(number, epoch, view, own, optimiser), np.diff(view.ptrs[-1])
                if batch == 0:  # of all clients; the mean over the epoch's training nodes so far
                    losses, seen = found, sizes.astype(np.float32)
                    continue
                present = np.searchsorted(chunk, view.clients)
                seen[present] += sizes
                share = torch.from_numpy(sizes / seen[present]).to(found)
                losses[present] += share * (found - losses[present])
        if own is not None:
            own.put_back(current)
        return losses

    def _step(self, number: int, epoch: int, view: View, own: "_Own", optimiser: Adam | SGD) -> Tensor:
        """One optimiser step of the view's clients on their `own` parameters; returns their losses before it, [S]."""
        dropout = ClientDropout(
            getattr(self._backbone.settings, "dropout", 0.0), [self._streams[client] for client in view.clients]
        )
        output = self._backbone.forward(own.leaves, view, dropout)
        row_losses = cross_entropy(output.logits, view.labels, reduction="none")
        client_losses = (view.client_mean @ row_losses.unsqueeze(1)).squeeze(1)
        total = client_losses.sum()
        step = Step(number, epoch, view.clients, own.leaves, own.received, output, view, self._schedule)
        extra = self._method.loss(step)
        if extra is not None:
            total = total + extra.sum()
        found = torch.autograd.grad(total, list(own.leaves.values()))
        # The fused optimiser reads memory in the order of the parameters, whatever the strides of a gradient.
        gradients = {name: gradient.contiguous() for name, gradient in zip(own.leaves, found, strict=True)}
        with torch.no_grad():
            self._method.correct(step, gradients)
            optimiser.step(view.clients, own.rows, own.leaves, gradients)
        return client_losses.detach()


@dataclass(frozen=True)
class _Own:
    """The parameters of the clients of a step; the same tensors as long as the clients are the same."""

    clients: np.ndarray
    rows: stacked.Rows
    leaves: Parameters
    received: Parameters

    @classmethod
    def of(cls, clients: np.ndarray, current: Parameters, received: Parameters, before: "_Own | None" = None) -> "_Own":
        """Takes some clients' parameters out of the stacks, after those that were out `before` are back."""
        if before is not None:
            before.put_back(current)
        rows = stacked.rows_of(clients, next(iter(current.values())).device)
        leaves = {name: tensor.requires_grad_() for name, tensor in stacked.take(current, rows).items()}
        return cls(clients, rows, leaves, stacked.take(received, rows))

    @torch.no_grad()
    def put_back(self, current: Parameters) -> None:
        stacked.put(current, self.rows, self.leaves)
