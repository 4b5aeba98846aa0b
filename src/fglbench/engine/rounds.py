"""The rounds of one phase: what clients and server do in each of them."""

import time
from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fglbench.engine.batches import batches_of
from fglbench.engine.local import LocalTraining, Trained, gradients_of
from fglbench.engine.record import Recorder
from fglbench.engine.state import Setup, State
from fglbench.errors import ComponentError
from fglbench.federation import parameters as stacked
from fglbench.federation.federation import Federation
from fglbench.federation.optimiser import OPTIMISERS
from fglbench.federation.parameters import Parameters
from fglbench.methods.base import ClientRound, Round
from fglbench.methods.common.phases import Phase
from fglbench.seeding import numpy_stream, torch_stream

EXPLODED_LOSS = 1e4  # a mean loss that no usable model has: of cross-entropy 1e-4343 of probability on the true class


def draw_clients(seed: int, number: int, clients: int, participation: float) -> np.ndarray:
    """The clients of a round, ascending; the same for all methods at a seed. At least one."""
    if participation >= 1.0:
        return np.arange(clients)
    count = max(1, round(participation * clients))
    return np.sort(numpy_stream(seed, "client draw", number).choice(clients, count, replace=False))


def _check_schedule(phase: Phase, setup: Setup) -> None:
    """What phases of the cell's backbone have in common: its batches go on from phase to phase, so does the noise."""
    for key in ("batch_size", "ldp"):
        own, common = getattr(phase.schedule or setup.schedule, key), getattr(setup.schedule, key)
        if own != common:
            raise ComponentError(
                f"{type(setup.method).__module__}: phase '{phase.name}' has {key} {own}, and the cell has {common}. "
                f"Leave {key} as it is, or give the phase a backbone of its own."
            )


class Rounds:
    """The rounds of a phase.

    A phase with a backbone of its own starts from parameters of its own, which end with it; the cell's stay as they
    are. Every phase starts with a new optimiser.

    Attributes:
        scored: whether its rounds are scored, which those of another backbone are not.
        number: 0-based round of the phase.
        received, trained, current: [C, ...] parameters before and after the last round's local training, and after the
            server's answer.
        mixing: [C, C] weights of the last round's aggregation, where they are not one row for all.
        weights: [C] what each client counted by in it: that row, or where there is none its training targets.
        rebuilt: other graphs that the method made in the last round, or None.
    """

    def __init__(self, phase: Phase, setup: Setup, state: State, recorder: Recorder):
        self._phase, self._setup, self._state, self._recorder = phase, setup, state, recorder
        self.scored, self.number = phase.backbone is None, -1
        backbone, self._method = phase.backbone or setup.backbone, phase.method or setup.method
        self._schedule = phase.schedule or setup.schedule
        self._objective = (phase.objective or setup.task.objective)(state.federation)
        self._at_once = min(setup.at_once, phase.chunk_clients or setup.at_once)
        if phase.backbone is None:
            _check_schedule(phase, setup)
            self.current, names, self._batches = state.current, state.trained, state.batches
        else:
            start = phase.backbone.initial(torch_stream(setup.seed, phase.initialisation))
            buffers = phase.backbone.buffers(torch_stream(setup.seed, f"{phase.initialisation} buffers"))
            self.current, names = state.stacked(start | buffers), list(start)
            self._batches = batches_of(backbone, self._schedule.batch_size, setup.seed, setup.clients, setup.device)
        self._batches.use(state.federation, self._objective)
        self._groups = self._method.groups(list(self.current))
        self._shared = [name for group in self._groups.values() for name in group]
        trained = {name: self.current[name] for name in names}
        self._optimiser = OPTIMISERS[self._schedule.optimiser](trained, self._schedule.lr, self._schedule.weight_decay)
        self._local = LocalTraining(
            self._batches,
            backbone,
            self._objective,
            self._method,
            self._schedule,
            setup.seed,
            state.streams,
            self._at_once,
            phase.local_step or gradients_of,
        )
        self._answered = {name: self.current[name] for name in self._shared}  # what the server sent last
        self._mixed: Parameters = {}  # what it would have sent to clients that left as well
        self.mixing: Tensor | None = None
        self.weights: Tensor | None = None
        self.rebuilt: Federation | None = None
        self._sent: Parameters = {}  # what the server knows of each client where uploads are protected
        self._left = np.zeros(setup.clients, dtype=bool)
        self._takes_part = self._objective.counts > 0
        if phase.clients is not None:
            self._takes_part = self._takes_part & phase.clients

    def build(self) -> None:
        """Makes what all rounds have in common ahead of the first one: start-up, not training."""
        if self.scored:
            self._state.scorer.build()
        if self._takes_part.any() and self._schedule.participation >= 1.0 and self._at_once >= self._setup.clients:
            self._batches.build(np.flatnonzero(self._takes_part))

    def goes_on(self) -> bool:
        """Whether there is another round: not after the last one, nor when all clients have left."""
        return self.number + 1 < self._phase.rounds and not (self._left.any() and self._left[self._takes_part].all())

    def run_round(self) -> Trained | None:
        """One round but its scores; None where a loss is not finite or exploded."""
        began, method = time.perf_counter(), self._method
        self.number += 1
        active = self._draw()
        if self._schedule.optimiser_state == "reset":
            self._optimiser.reset()
        self.received, self.trained = self.current, stacked.clone(self.current)
        losses = self._local.run(self.number, active, self.trained, self.received, self._optimiser)
        self.current, self.mixing, self.rebuilt = dict(self.trained), None, None
        if not np.all(losses.totals[active] <= (EXPLODED_LOSS if self.scored else np.inf)):  # false for nan as well
            return None
        if len(active):
            round = self._client_round(active, losses.losses)
            uploads = method.upload(round)
            self._answer(round, uploads)
            method.client_update(round, self.current)
            self._count(len(active), stacked.total_bytes(uploads), losses.bytes_down)
            self.rebuilt = method.rebuild(round)
            if self.rebuilt is not None:
                self._batches.use(self.rebuilt, self._objective)
        self._setup.synchronise()
        self._recorder.train_seconds += time.perf_counter() - began
        return losses

    def _draw(self) -> np.ndarray:
        setup = self._setup
        number = self._recorder.rounds if self.scored else self.number  # rounds that are not scored are not counted
        drawn = draw_clients(setup.seed, number, setup.clients, self._schedule.participation)
        return drawn[(self._takes_part & ~self._left)[drawn]]

    def _client_round(self, active: np.ndarray, losses: np.ndarray) -> ClientRound:
        counted = np.isin(np.arange(self._setup.clients), active) | (self._left & self._phase.leavers_count)
        counts = self._objective.counts
        weights = np.where(counted, counts, 0).astype(np.float32)
        return ClientRound(
            self.number,
            active,
            counts,
            torch.from_numpy(weights).to(self._setup.device),
            self.trained,
            self.received,
            losses,
            self._schedule,
            partial(self._state.logits.stacked_logits, self.trained),
            self._validation,
        )

    def _validation(self, parameters: Parameters) -> np.ndarray:
        """[C] the clients' validation scores under parameters; nan where there are none."""
        return self._recorder.validation_of(self._state.scorer.predictions(parameters))

    def _answer(self, round: ClientRound, uploads: Mapping[str, Tensor]) -> None:
        """The server's part: it aggregates what was uploaded, group by group."""
        self._setup.synchronise()
        began = time.perf_counter()
        held = {name: round.parameters[name] for name in self._shared}
        sent = self._protected(held, round.clients)
        mixed = dict(sent)
        known = round.number, round.clients, round.counts, round.weights
        at_server = Round(*known, sent, self._answered, round.schedule, uploads)
        self.weights = round.weights
        for group, weights in self._method.aggregate(at_server).items():
            mixed |= stacked.mix(sent, self._groups[group], weights)
            if weights.dim() == 1:
                self.weights = weights
            elif self.mixing is None:  # a common row says no more than what clients count by
                self.mixing = weights
        self._method.server_update(at_server, mixed)
        self._mixed, self._answered = mixed, self._unless_left(mixed, sent)
        own = {name: held[name] for name in mixed if mixed[name] is sent[name]}  # what nobody aggregated
        self.current |= self._unless_left(mixed | own, held)
        self._setup.synchronise()
        self._recorder.server_seconds += time.perf_counter() - began

    def _protected(self, held: Parameters, active: np.ndarray) -> Parameters:
        """What the server gets to see: under local differential privacy, of clients that did not train in this round
        what it sent them last, or if they left what they uploaded last."""
        if self._state.noise is None:
            return held
        trained = torch.from_numpy(np.isin(np.arange(self._setup.clients), active)).to(self._setup.device)
        known = stacked.where(trained, held, self._unless_left(self._answered, self._sent or held))
        self._sent = self._state.noise.protect(known, self._answered, active)
        return self._sent

    def _unless_left(self, answer: Parameters, kept: Parameters) -> Parameters:
        """The server's answer to clients that take part; those that left go on with what they have."""
        if not self._left.any():
            return answer
        return stacked.where(torch.from_numpy(self._left).to(self._setup.device), kept, answer)

    def _count(self, active: int, up: int, down: int) -> None:
        each = stacked.bytes_of(self.current, self._shared)
        self._recorder.sent(each * active + up, each * active + down)

    def end(self) -> None:
        """Hands on the parameters, and the graphs that the method makes for the phases that follow."""
        if self.scored:
            self._state.current = self.current | self._returning()
        prepared = self._setup.method.finish(self._phase, self.current)
        if prepared is not None:
            self._recorder.sent(prepared.bytes_up, prepared.bytes_down)
            self._state.use(prepared.federation)

    def _returning(self) -> Parameters:
        """What the shared parameters are where clients that left come back to the server's."""
        if not (self._phase.leavers_return and self._left.any()):
            return {}
        left = torch.from_numpy(self._left).to(self._setup.device)
        return stacked.where(left, self._mixed, {name: self.current[name] for name in self._mixed})

    def let_go(self, losses: np.ndarray, validation: np.ndarray) -> None:
        """After a round's scores: clients that the phase's rule stops leave. From the next round on they go on with the
        parameters that they trained in this one.

        Args:
            losses: [C] of the round.
            validation: [C] the clients' validation scores; nan where there are none.
        """
        if self._phase.stop_rule is None:
            return
        leaving = self._takes_part & ~self._left & self._phase.stop_rule.stops(losses, validation)
        if leaving.any():
            now = torch.from_numpy(leaving).to(self._setup.device)
            self.current = stacked.where(now, self.trained, self.current)
        self._left |= leaving
