"""Phases: sequences of rounds, each with its own loss, and the rules by which clients leave them early."""

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
"""`local_step(losses, parameters)` returns the direction of the optimiser's step by name, as gradients do.

`losses` maps stacked parameters to the loss [S] of each client.
"""


class StopRule(ABC):
    """Rule that decides after every round which clients leave a phase."""

    @abstractmethod
    def stops(self, losses: np.ndarray, validation: np.ndarray) -> np.ndarray:
        """Return the clients that leave after this round.

        Args:
            losses: [C] loss of each client in its last local epoch; nan for clients that did not train.
            validation: [C] validation scores; nan for clients without validation targets, or if the phase is not
                scored.

        Returns:
            [C] bool.
        """


class Settled(StopRule):
    """Rule by which a client leaves when its loss changes by less than alpha between two of its rounds (Fed-GALA, 4.2).

    Args:
        clients: number of clients of the federation.
        alpha: the threshold.

    Attributes:
        rounds: number of rounds so far.
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
    """Rule by which a client leaves when its validation score has not risen for some rounds.

    Args:
        clients: number of clients of the federation.
        rounds: number of these rounds, at least 1.
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
    """A sequence of rounds. Where an attribute is None, the phase uses that of the cell.

    Attributes:
        name: of the phase in the history.
        rounds: largest number of rounds; the phase ends earlier if all its clients have left.
        objective: makes the objective of local training from the phase's graphs.
        schedule: local optimiser, epochs and participation. `batch_size` and `ldp` must be the cell's. A phase with its
            own backbone may have another `batch_size`; it always uses the noise of the cell.
        clients: [C] bool, the clients that take part; None: all.
        stop_rule: decides who leaves after a round; None: no client leaves.
        leavers_count: whether the last parameters of clients that left still count in the aggregation.
        leavers_return: whether clients that left continue, after the phase, from the parameters that the server last
            sent to the others.
        local_step: gives the direction of the optimiser's step; None: the gradient of the loss.
        chunk_clients: clients trained at once, if fewer than the cell's.
        backbone: another model, which is initialised for the phase and whose parameters end with it; its rounds are not
            scored.
        method: the method whose hooks the rounds call, used with `backbone`; None: the method of the cell.
        initialisation: name of the random stream that initialises this model.
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
    """Return the phase in which clients train for the cell's own task.

    If the schedule has a `tolerance`, clients that have converged leave, and their last parameters still count.

    Args:
        schedule: of the cell.
        clients: number of clients of the federation.
        rounds: of the phase; None: all rounds of the schedule.

    Returns:
        The phase "train".
    """
    rounds = schedule.rounds if rounds is None else rounds
    if schedule.tolerance is None:
        return Phase("train", rounds)
    return Phase("train", rounds, stop_rule=Settled(clients, schedule.tolerance), leavers_count=True)
