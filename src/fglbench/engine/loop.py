"""The round loop: trains all clients of a federation, for any task and any method.

Each round draws clients, trains them locally (all at once, or in chunks under a memory limit), uploads, aggregates and
evaluates. The loop does not depend on particular tasks or methods.
"""

import math
import time
from collections.abc import Callable

import numpy as np
import torch

from fglbench.engine.local import Trained
from fglbench.engine.record import Recorder, Result
from fglbench.engine.rounds import Rounds
from fglbench.engine.state import Setup, State
from fglbench.errors import ComponentError
from fglbench.federation.federation import Federation
from fglbench.federation.schedule import Schedule
from fglbench.methods.base import Method
from fglbench.tasks.base import Task


def train(
    federation: Federation,
    method: Method,
    task: Task,
    schedule: Schedule,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    chunk_clients: int | None = None,
    on_round: Callable[[int, float, float], None] | None = None,
) -> Result:
    """Train one cell.

    Args:
        federation: the client graphs to train on; its `scored` graphs are evaluated.
        method: the method, with its backbone.
        task: objective and scores.
        schedule: rounds and local optimiser.
        seed: seed of the cell, from which all random streams derive.
        device: device of the tensors.
        chunk_clients: number of clients trained at once; None for all. It changes memory use, not results.
        on_round: called after every scored round with (round, mean training loss, validation score or nan).

    Returns:
        History, predictions and parameters of the readings, and the state. The state is "diverged" with its round if a
        client's total loss is nan, or exceeds `EXPLODED_LOSS` in a scored phase, or if an output is not finite in
        evaluation.

    Raises:
        ComponentError: the method changes graphs on which features were propagated ahead, or a phase of the cell's
            backbone changes `batch_size` or `ldp`.
    """
    backbone = method.backbone
    if federation.propagated(backbone.propagation).hops and type(method).rebuild is not Method.rebuild:
        raise ComponentError(
            f"{type(method).__module__}: its class changes graphs by `rebuild`, but preprocessing propagated the "
            "features on the unchanged graphs. Define `rebuild` in the method's own file "
            "(it may return super().rebuild(round))."
        )
    clients = federation.num_clients
    setup = Setup(backbone, method, task, schedule, seed, clients, chunk_clients, torch.device(device))
    recorder = Recorder(federation.scored, task, schedule.selection_mean)
    with recorder.training(setup.synchronise):
        prepared = method.prepare(seed, device, setup.at_once)
        recorder.sent(prepared.bytes_up, prepared.bytes_down)
    state = State(setup, prepared.federation)
    for phase in method.phases(schedule):
        recorder.begin(phase.name)
        with recorder.training(setup.synchronise):
            rounds = Rounds(phase, setup, state, recorder)
        rounds.build()
        while rounds.has_next():
            trained = rounds.run_round()
            if trained is None or not _record(rounds, trained, setup, state, recorder):
                return recorder.diverged()
            if on_round is not None and rounds.scored:
                on_round(recorder.rounds - 1, _mean(trained.losses), recorder.validation)
        with recorder.training(setup.synchronise):
            rounds.end()
        recorder.end()
    return recorder.finished(method.server_parameters())


def _record(rounds: Rounds, trained: Trained, setup: Setup, state: State, recorder: Recorder) -> bool:
    """Score a round, and record its results and costs; return False if an output of a model is not finite."""
    if not rounds.scored:
        recorder.add_unscored(trained.losses)
        rounds.apply_stop_rule(trained.losses, np.full(setup.clients, math.nan))
        return True
    began = time.perf_counter()
    if rounds.rebuilt is not None:
        state.use(rounds.rebuilt)
    scored = rounds.trained if setup.schedule.evaluate == "trained" else rounds.current
    predictions = state.scorer.run(scored)
    if predictions is None:
        return False
    recorder.add(predictions, scored, trained, rounds.mixing, rounds.weights, state.federation.scored)
    rounds.apply_stop_rule(trained.losses, recorder.client_validation)
    recorder.eval_seconds += time.perf_counter() - began
    return True


def _mean(losses: np.ndarray) -> float:
    present = losses[~np.isnan(losses)]
    return float(np.mean(present)) if len(present) else math.nan
