"""The contract of a method: a few small pieces around the one round loop (`engine/loop.py`).

A file of this folder declares `VERSION`, `class Settings(ComponentSettings)` and `class Method(base.Method)`; with
`CENTRALISED = True` the method is trained on the whole graph as a federation of one client. Every hook below has a
default that changes nothing; a method overrides those it needs. By default all parameters travel, in one group that
counts in bytes; a method that aggregates none says so by `groups`.

Hooks of the clients see their parameters; hooks of the server see what clients uploaded, and nothing else.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglbench.backbones.base import Backbone
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule
from fglbench.federation.step import Messages as Messages
from fglbench.federation.step import Step as Step
from fglbench.methods.common.phases import Phase, training_phase

SHARED = "shared"
"""The group that all parameters are in, unless a method says otherwise."""


@dataclass(frozen=True)
class ClientRound:
    """One round after local training, as the clients' hooks see it.

    Attributes:
        number: 0-based, of the phase.
        clients: [S] int64 ids of the clients that trained.
        counts: [C] int64 training targets of each client.
        weights: [C] float32 the same of the clients that count in this round, 0 for the others.
        parameters: [C, ...] after local training, buffers among them.
        received: [C, ...] at the start of the round.
        losses: [C] float32 of the objective in the last local epoch, nan where a client did not train.
        schedule: rounds and local optimiser.
        logits: computes [N, outputs] float32 of all nodes of the method's `federation`, each under its own client's
            `parameters`, without dropout.
        validation: gives, for other parameters [C, ...], the clients' validation scores [C], nan where there are none.
    """

    number: int
    clients: np.ndarray
    counts: np.ndarray
    weights: Tensor
    parameters: Parameters
    received: Parameters
    losses: np.ndarray
    schedule: Schedule
    logits: Callable[[], Tensor]
    validation: Callable[[Parameters], np.ndarray]


@dataclass(frozen=True)
class Round:
    """The same round as the server's hooks see it.

    Attributes:
        number, clients, counts, weights, schedule: as in `ClientRound`.
        parameters: [C, ...] of every group as the clients uploaded it; of those that did not train, what they hold.
        received: [C, ...] of the same names, as the server sent them at the start of the round.
        uploads: what the method's `upload` gave.
    """

    number: int
    clients: np.ndarray
    counts: np.ndarray
    weights: Tensor
    parameters: Parameters
    received: Parameters
    schedule: Schedule
    uploads: Mapping[str, Tensor]


@dataclass(frozen=True)
class Prepared:
    """What training starts from, or goes on with after a phase.

    Attributes:
        federation: the graphs to train on and, in its `scored`, to predict on: of the same clients and nodes, `given`
            where rows were added.
        bytes_up, bytes_down: what all clients together sent and received for it.
    """

    federation: Federation
    bytes_up: int = 0
    bytes_down: int = 0


class Method:
    """Base of all methods: trains locally, and all parameters travel, though nothing aggregates them.

    Attributes:
        settings: the resolved settings.
        backbone: the local model; a method may put another one around it, as for masks on its parameters.
        federation: the clients' graphs of training as they were split; never modified. What is not in them, the
            `evaluated` graphs of the inductive setting, is only for what the scores are made on.
        needs_classes: whether it reads predictions as classes, so that it makes no sense for other tasks.
        added_rows: most rows that the method adds for each row, which counts where memory is limited.
    """

    needs_classes: bool = False
    added_rows: int = 0

    def __init__(self, settings: Any, backbone: Backbone, federation: Federation):
        self.settings = settings
        self.backbone = backbone
        self.federation = federation

    def not_applicable(self) -> str | None:
        """The reason why this pair of method and backbone makes no sense, or None."""
        return None

    # Before training

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> Prepared:
        """The federation to train on; its seconds count as training.

        Args:
            seed: of the cell.
            device: of the training.
            chunk_clients: clients to work on at once; must not change a number.
        """
        return Prepared(self.federation)

    def initial(self, parameters: Parameters, stream: torch.Generator) -> Parameters:
        """One client's start, from the backbone's [...]: other values, or further parameters that its loss trains."""
        return parameters

    def groups(self, names: list[str]) -> Mapping[str, list[str]]:
        """Which parameters and buffers travel, by group; those in none stay with their client."""
        return {SHARED: names}

    def shared(self, names: Iterable[str]) -> list[str]:
        """Of these names those in any group."""
        own = list(names)
        return [name for group in self.groups(own).values() for name in group]

    def phases(self, schedule: Schedule) -> Iterable[Phase]:
        """The stretches of training, one after another; each is asked for when the one before has ended."""
        return [training_phase(schedule, self.federation.num_clients)]

    # At the clients

    def download(self, number: int, clients: np.ndarray) -> Messages:
        """What some clients of round `number` receive beside the parameters; counted in bytes, and in `Step`."""
        return {}

    def loss(self, step: Step) -> Tensor | None:
        """Extra loss term of each client in the step, [S], or None."""
        return None

    def modify_gradients(self, step: Step, gradients: Parameters) -> None:
        """Changes the clients' gradients [S, ...] in place, before the optimiser's step."""

    def upload(self, round: ClientRound) -> Mapping[str, Tensor]:
        """What the clients that trained send beside their parameters, all in one tensor a name; counted in bytes."""
        return {}

    def client_update(self, round: ClientRound, current: Parameters) -> None:
        """The clients' state once they received; may put other tensors [C, ...] in place of entries of `current`.

        The tensors themselves are not to be written to: they share memory among clients, or with `round.parameters`.
        """

    # At the server

    def aggregate(self, round: Round) -> Mapping[str, Tensor]:
        """The weights of each group that is aggregated: [C, C], or [C] for one row common to all clients.

        Rows are the receivers and must sum to 1. A group that is left out stays as the clients have it.
        """
        return {}

    def server_update(self, round: Round, mixed: Parameters) -> None:
        """The server's state after aggregation; may put other tensors [C, ...] in place of entries of `mixed`.

        `mixed` holds the names of all groups. The tensors themselves are not to be written to.
        """

    def server_parameters(self) -> Parameters:
        """What the server trained and no client holds, for the checkpoint: [...] each."""
        return {}

    # Between rounds and phases

    def rebuild(self, round: ClientRound) -> Federation | None:
        """Other graphs of the same rows to score this round and to train the next ones on; None keeps them.

        Under the inductive setting they have an `evaluated` too. A file whose class defines it, not only inherits it,
        gets graphs of which nothing was propagated ahead.
        """
        return None

    def finish(self, phase: Phase, parameters: Parameters) -> Prepared | None:
        """Other graphs for the phases that follow, from the parameters [C, ...] at the end of one; None keeps them."""
        return None
