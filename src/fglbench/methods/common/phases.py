"""Phases: stretches of rounds, each under a loss of its own, and the rules by which clients leave them early."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from torch import Tensor

from fglbench.backbones.base import Backbone
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule
from fglbench.tasks.base import Objective

if TYPE_CHECKING:
    from fglbench.methods.base import Method

Losses: TypeAlias = Callable[[Parameters], Tensor]
LocalStep: TypeAlias = Callable[[Losses, Parameters], Parameters]
"""Gives, for a loss [S] of stacked parameters and these, the direction of the optimiser's step."""


class StopRule(ABC):
    """Says after every round which clients have had enough of a phase."""

    @abstractmethod
    def stops(self, losses: np.ndarray, validation: np.ndarray) -> np.ndarray:
        """[C] bool: the clients that leave after this round.

        Args:
            losses: [C] of the clients' last local epoch; nan where one did not train.
            validation: [C] its validation score; nan where it has no such targets or the phase is not scored.
        """


class Settled(StopRule):
    """A client leaves when its loss changes by less than alpha from one of its rounds to the next (Fed-GALA, 4.2).

    Args:
        clients: of the federation.
        alpha: the threshold.

    Attributes:
        rounds: seen so far.
    """

    def __init__(self, clients: int, alpha: float):
        self.rounds = 0
        self._alpha = alpha
        self._last = np.full(clients, np.nan)

    def stops(self, losses: np.ndarray, validation: np.ndarray) -> np.ndarray:
        self.rounds += 1
        with np.errstate(invalid="ignore"):
            settled = np.abs(losses - self._last) < self._alpha
        self._last = np.where(np.isnan(losses), self._last, losses)
        return settled


class Patience(StopRule):
    """A client leaves when its validation score has not risen for so many rounds.

    Args:
        clients: of the federation.
        rounds: at least 1.
    """

    def __init__(self, clients: int, rounds: int):
        self._rounds = rounds
        self._best = np.full(clients, -np.inf)
        self._since = np.zeros(clients, dtype=np.int64)

    def stops(self, losses: np.ndarray, validation: np.ndarray) -> np.ndarray:
        better = validation > self._best
        self._best = np.where(better, validation, self._best)
        self._since = np.where(better | np.isnan(validation), 0, self._since + 1)
        return self._since >= self._rounds


@dataclass(frozen=True)
class Phase:
    """A stretch of rounds. What is None is the cell's own.

    Attributes:
        name: as the history calls it.
        rounds: at most so many; the phase ends earlier when all its clients have left.
        objective: gives what local training minimises on the phase's graphs.
        schedule: local optimiser, epochs and participation. Batches and noise are the cell's, unless the phase has a
            backbone of its own.
        clients: [C] bool, who takes part.
        stop_rule: who leaves after a round.
        leavers_count: whether the last parameters of clients that left go on counting in the aggregation.
        leavers_return: whether clients that left go on, after the phase, from what the server last sent to the others.
        local_step: another inner step than one of the optimiser along the gradient of the loss.
        chunk_clients: clients trained at once, where they are fewer than the cell's.
        backbone: another model, which starts anew and whose parameters end with the phase; its rounds are not scored.
        method: whose hooks this model's rounds call; with `backbone` alone.
        initialisation: name of the random stream of this model's start.
    """

    name: str
    rounds: int
    objective: Callable[[Federation], Objective] | None = None
    schedule: Schedule | None = None
    clients: np.ndarray | None = None
    stop_rule: StopRule | None = None
    leavers_count: bool = False
    leavers_return: bool = False
    local_step: LocalStep | None = None
    chunk_clients: int | None = None
    backbone: Backbone | None = None
    method: "Method | None" = None
    initialisation: str = "initialisation"


def training_phase(schedule: Schedule, clients: int, rounds: int | None = None) -> Phase:
    """The stretch in which clients train to the cell's own end. With a `tolerance` those that have converged leave it,
    and their last parameters go on counting.

    Args:
        schedule: of the cell.
        clients: of the federation.
        rounds: of the phase; None: all of the schedule.
    """
    rounds = schedule.rounds if rounds is None else rounds
    if schedule.tolerance is None:
        return Phase("train", rounds)
    return Phase("train", rounds, stop_rule=Settled(clients, schedule.tolerance), leavers_count=True)
