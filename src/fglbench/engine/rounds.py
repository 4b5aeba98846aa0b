"""The rounds of one phase: the steps of clients and server in each round."""

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

EXPLODED_LOSS = 1e4  # far above any usable model: as a cross-entropy it means a probability of 1e-4343


def draw_clients(seed: int, number: int, clients: int, participation: float) -> np.ndarray:
    """Draw the clients of a round.

    Args:
        seed: seed of the cell.
        number: 0-based number of the round.
        clients: number of clients of the federation.
        participation: fraction of clients to draw.

    Returns:
        [S] int64 ascending ids, at least one; the same for all methods with this seed.
    """
    if participation >= 1.0:
        return np.arange(clients)
    count = max(1, round(participation * clients))
    return np.sort(numpy_stream(seed, "client draw", number).choice(clients, count, replace=False))


def _check_schedule(phase: Phase, setup: Setup) -> None:
    """Check that a phase of the cell's backbone keeps its batch size and noise, which continue across phases."""
    for key in ("batch_size", "ldp"):
        of_phase, of_cell = getattr(phase.schedule or setup.schedule, key), getattr(setup.schedule, key)
        if of_phase != of_cell:
            raise ComponentError(
                f"{type(setup.method).__module__}: phase '{phase.name}' has {key} {of_phase}, but the cell has "
                f"{of_cell}. Keep the {key} of the cell in this phase."
            )


class Rounds:
    """The rounds of a phase.

    A phase with its own backbone starts from its own parameters, which end with the phase; the parameters of the cell's
    backbone stay unchanged. Every phase starts with a new optimiser.

    Args:
        phase: rounds, objective and stop rule.
        setup: components and settings of the cell.
        state: graphs and parameters, which this phase changes.
        recorder: counts seconds and bytes.

    Attributes:
        scored: whether the rounds are scored; False for a phase with its own backbone.
        number: 0-based round of the phase; -1 before the first round.
        received: [C, ...] parameters before the last round's local training.
        trained: [C, ...] parameters after the last round's local training.
        current: [C, ...] parameters after the server's answer.
        mixing: [C, C] weights of the last round's aggregation, of the first group that has a row for each client;
            None if there is no such group.
        weights: [C] weights of the clients in the last aggregation: the common row of a group, or if there is none
            `ClientRound.weights`. None until a client has trained in this phase.
        rebuilt: graphs that the method changed in the last round, or None.

    Raises:
        ComponentError: a phase of the cell's backbone changes `batch_size` or `ldp`.
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
        self._answered = {name: self.current[name] for name in self._shared}  # the server's last answer
        self._mixed: Parameters = {}  # the same answer, without an exception for clients that left
        self.mixing: Tensor | None = None
        self.weights: Tensor | None = None
        self.rebuilt: Federation | None = None
        self._sent: Parameters = {}  # last protected uploads of all clients
        self._left = np.zeros(setup.clients, dtype=bool)
        self._takes_part = self._objective.counts > 0
        if phase.clients is not None:
            self._takes_part = self._takes_part & phase.clients

    def build(self) -> None:
        """Build the batches that all rounds share ahead of the first round; this time is not training time."""
        if self.scored:
            self._state.scorer.build()
        if self._takes_part.any() and self._schedule.participation >= 1.0 and self._at_once >= self._setup.clients:
            self._batches.build(np.flatnonzero(self._takes_part))

    def has_next(self) -> bool:
        """Return whether the phase has another round.

        Returns:
            False after the last round, and when all clients have left.
        """
        return self.number + 1 < self._phase.rounds and not (self._left.any() and self._left[self._takes_part].all())

    def run_round(self) -> Trained | None:
        """Run one round without scoring it.

        Returns:
            Results of local training. None if a total loss is nan, or exceeds `EXPLODED_LOSS` in a scored phase.
        """
        began, method = time.perf_counter(), self._method
        self.number += 1
        active = self._draw()
        if self._schedule.optimiser_state == "reset":
            self._optimiser.reset()
        self.received, self.trained = self.current, stacked.clone(self.current)
        losses = self._local.run(self.number, active, self.trained, self.received, self._optimiser)
        self.current, self.mixing, self.rebuilt = dict(self.trained), None, None
        if not np.all(losses.totals[active] <= (EXPLODED_LOSS if self.scored else np.inf)):  # also catches nan
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
        number = self._recorder.rounds if self.scored else self.number  # only scored rounds are numbered across phases
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
        """Compute the clients' validation scores [C] under some parameters; nan without validation targets."""
        return self._recorder.validation_of(self._state.scorer.predictions(parameters))

    def _answer(self, round: ClientRound, uploads: Mapping[str, Tensor]) -> None:
        """Aggregate the uploads group by group, and send the server's answer to the clients."""
        held = {name: round.parameters[name] for name in self._shared}
        sent = self._protected(held, round.clients)
        self._setup.synchronise()
        began = time.perf_counter()
        mixed = dict(sent)
        context = round.number, round.clients, round.counts, round.weights
        at_server = Round(*context, sent, self._answered, round.schedule, uploads)
        self.weights = round.weights
        for group, weights in self._method.aggregate(at_server).items():
            mixed |= stacked.mix(sent, self._groups[group], weights)
            if weights.dim() == 1:
                self.weights = weights
            elif self.mixing is None:  # a common row is already in `weights`
                self.mixing = weights
        self._method.server_update(at_server, mixed)
        self._mixed, self._answered = mixed, self._unless_left(mixed, sent)
        unchanged = {name: held[name] for name in mixed if mixed[name] is sent[name]}  # not changed by the server
        self.current |= self._unless_left(mixed | unchanged, held)
        self._setup.synchronise()
        self._recorder.server_seconds += time.perf_counter() - began

    def _protected(self, held: Parameters, active: np.ndarray) -> Parameters:
        """Return the parameters that the server sees.

        Without local differential privacy these are the parameters that the clients hold. With it, the server uses its
        own last answer for a client that did not train in this round, and the last upload for a client that has left.
        """
        if self._state.noise is None:
            return held
        trained = torch.from_numpy(np.isin(np.arange(self._setup.clients), active)).to(self._setup.device)
        unprotected = stacked.where(trained, held, self._unless_left(self._answered, self._sent or held))
        self._sent = self._state.noise.protect(unprotected, self._answered, active)
        return self._sent

    def _unless_left(self, answer: Parameters, kept: Parameters) -> Parameters:
        """Return the server's answer to clients that take part, and `kept` for clients that have left."""
        if not self._left.any():
            return answer
        return stacked.where(torch.from_numpy(self._left).to(self._setup.device), kept, answer)

    def _count(self, active: int, up: int, down: int) -> None:
        size = stacked.bytes_of(self.current, self._shared)
        self._recorder.sent(size * active + up, size * active + down)

    def end(self) -> None:
        """Pass on the parameters, and the graphs that the method changes for the following phases."""
        if self.scored:
            self._state.current = self.current | self._returning()
        prepared = self._setup.method.finish(self._phase, self.current)
        if prepared is not None:
            self._recorder.sent(prepared.bytes_up, prepared.bytes_down)
            self._state.use(prepared.federation)

    def _returning(self) -> Parameters:
        """Return the shared parameters after the phase, in which clients that left take the server's last answer."""
        if not (self._phase.leavers_return and self._left.any()):
            return {}
        has_left = torch.from_numpy(self._left).to(self._setup.device)
        return stacked.where(has_left, self._mixed, {name: self.current[name] for name in self._mixed})

    def apply_stop_rule(self, losses: np.ndarray, validation: np.ndarray) -> None:
        """Apply the phase's stop rule after the scores of a round, and let the stopped clients leave.

        From the next round on these clients keep the parameters that they trained in this round.

        Args:
            losses: [C] float32 losses of the round; nan for a client that did not train.
            validation: [C] validation scores of the clients; nan if there are none.
        """
        if self._phase.stop_rule is None:
            return
        leaving = self._takes_part & ~self._left & self._phase.stop_rule.stops(losses, validation)
        if leaving.any():
            mask = torch.from_numpy(leaving).to(self._setup.device)
            self.current = stacked.where(mask, self.trained, self.current)
        self._left |= leaving
