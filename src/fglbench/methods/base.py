"""Base class of all methods, and the records of a round that its hooks receive.

The round loop (`engine/loop.py`) calls the hooks of a method. A file of this folder declares `VERSION`,
`class Settings(ComponentSettings)` and `class Method(base.Method)`. With `CENTRALISED = True` the method is trained on
the whole graph, as a federation of one client. The default of every hook changes nothing; a method overrides the hooks
that it needs. By default all parameters form one group, which is communicated and counts in bytes. A method that
aggregates no parameters returns no group from `groups`.

Hooks of the clients see the clients' parameters. Hooks of the server see only what the clients uploaded.
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
"""Name of the default group, which holds all parameters."""


@dataclass(frozen=True)
class ClientRound:
    """One round after local training, as the hooks of the clients see it.

    Attributes:
        number: 0-based number of the round in its phase.
        clients: [S] int64, ascending ids of the clients that trained.
        counts: [C] int64, training targets of each client.
        weights: [C] float32, `counts` of the clients that count in this round; 0 for the others.
        parameters: [C, ...] parameters and buffers after local training.
        received: [C, ...] parameters and buffers at the start of the round.
        losses: [C] float32, loss of the objective in the last local epoch; nan for clients that did not train.
        schedule: rounds and local optimiser.
        logits: function that returns the logits [N, outputs] float32 of all nodes of the method's `federation`, each
            under the `parameters` of its own client and without dropout.
        validation: function that maps parameters [C, ...] to the clients' validation scores [C]; nan for clients
            without a score.
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
    """One round after local training, as the hooks of the server see it.

    Attributes:
        number, clients, counts, weights, schedule: as in `ClientRound`.
        parameters: [C, ...] of every group, as the clients uploaded them. A client that did not train has the
            parameters that it holds; under local differential privacy, those that the server last sent to it, or its
            last upload if it has left.
        received: [C, ...] of the same names, as the server sent them at the start of the round.
        uploads: what the method's `upload` returned.
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
    """The graphs that training starts from, or continues with after a phase.

    Attributes:
        federation: the graphs to train on; models are scored on its `scored` graphs. Clients and nodes are those of the
            method's `federation`. Where rows were added, `original` gives the rows of these nodes.
        bytes_up, bytes_down: bytes that all clients together sent and received for these graphs.
    """

    federation: Federation
    bytes_up: int = 0
    bytes_down: int = 0


class Method:
    """Base class of all methods: trains locally and communicates all parameters, but aggregates none of them.

    Attributes:
        settings: the resolved settings.
        backbone: the local model. A method may wrap it in another backbone, for example to mask its parameters.
        federation: the clients' training graphs as they were split; never modified. In the inductive setting they lack
            the nodes of its `evaluated` graphs, which serve only for scoring.
        needs_classes: whether the method reads predictions as classes, so that it applies only to tasks with classes.
        added_rows: largest number of rows that the method adds for each row, for estimates of memory.
    """

    needs_classes: bool = False
    added_rows: int = 0

    def __init__(self, settings: Any, backbone: Backbone, federation: Federation):
        self.settings = settings
        self.backbone = backbone
        self.federation = federation

    def not_applicable(self) -> str | None:
        """Explain why the method does not apply to its backbone.

        Returns:
            The reason, shown in tables; None if the method applies.
        """
        return None

    # Before training

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> Prepared:
        """Prepare the federation to train on; the time counts as training time.

        Args:
            seed: of the cell.
            device: of the training.
            chunk_clients: number of clients to process at once; the results must not depend on it.

        Returns:
            The graphs, and the bytes that clients exchanged for them.
        """
        return Prepared(self.federation)

    def initial(self, parameters: Parameters, stream: torch.Generator) -> Parameters:
        """Return the initial parameters of a client.

        Args:
            parameters: [...] by name, without a client axis, as the backbone initialises them.
            stream: random stream of the method's initialisation.

        Returns:
            [...] by name. The method may change the values of the backbone, and may add parameters under new names;
            the loss must depend on them.
        """
        return parameters

    def groups(self, names: list[str]) -> Mapping[str, list[str]]:
        """Return which parameters and buffers are communicated, by group.

        Args:
            names: of all parameters and buffers.

        Returns:
            The names of each group. Parameters and buffers in no group stay with their client.
        """
        return {SHARED: names}

    def shared(self, names: Iterable[str]) -> list[str]:
        """Return the names that belong to any group.

        Args:
            names: of parameters and buffers.

        Returns:
            Those of `names` that are in a group, group by group.
        """
        names = list(names)
        return [name for group in self.groups(names).values() for name in group]

    def phases(self, schedule: Schedule) -> Iterable[Phase]:
        """Return the phases of training, in their order.

        Args:
            schedule: of the cell.

        Returns:
            An iterable of phases. The round loop requests the next phase when the previous one has ended.
        """
        return [training_phase(schedule, self.federation.num_clients)]

    # At the clients

    def download(self, number: int, clients: np.ndarray) -> Messages:
        """Return the messages that clients receive in addition to the parameters.

        Messages count in bytes, and `Step.downloads` holds them.

        Args:
            number: 0-based number of the round in its phase.
            clients: [S] int64, ascending ids of some clients of the round.

        Returns:
            By name, a tensor [S, ...], or one tensor for each client where sizes differ.
        """
        return {}

    def loss(self, step: Step) -> Tensor | None:
        """Return the additional loss term of each client in a step.

        Args:
            step: the local step.

        Returns:
            [S] float32; None for no term.
        """
        return None

    def modify_gradients(self, step: Step, gradients: Parameters) -> None:
        """Modify the clients' gradients in place, before the step of the optimiser.

        Args:
            step: the local step.
            gradients: [S, ...] by name, of all trained parameters.
        """

    def upload(self, round: ClientRound) -> Mapping[str, Tensor]:
        """Return the messages that the clients that trained send in addition to their parameters.

        Args:
            round: the round after local training.

        Returns:
            By name, one tensor with the messages of all these clients; it counts in bytes.
        """
        return {}

    def client_update(self, round: ClientRound, current: Parameters) -> None:
        """Update the clients' state after the server's answer.

        The hook may replace entries of `current` by other tensors [C, ...]. It must not write to the tensors
        themselves: they share memory among clients, or with `round.parameters`.

        Args:
            round: the round after local training.
            current: [C, ...] by name, the parameters and buffers that the clients now hold.
        """

    # At the server

    def aggregate(self, round: Round) -> Mapping[str, Tensor]:
        """Return the aggregation weights of each group.

        Args:
            round: what the clients uploaded.

        Returns:
            By group, weights [C, C] float32 with one row for each receiving client, or [C] for one row common to all
            clients. Every row must sum to 1. The server does not aggregate a group that is missing.
        """
        return {}

    def server_update(self, round: Round, mixed: Parameters) -> None:
        """Update the server's state after aggregation.

        The hook may replace entries of `mixed` by other tensors [C, ...]. It must not write to the tensors themselves.

        Args:
            round: what the clients uploaded.
            mixed: [C, ...] by name, the parameters of all groups after aggregation.
        """

    def server_parameters(self) -> Parameters:
        """Return the parameters that only the server holds, for the checkpoint.

        Returns:
            [...] by name, without a client axis.
        """
        return {}

    # Between rounds and phases

    def rebuild(self, round: ClientRound) -> Federation | None:
        """Return changed graphs, to score this round on and to train the next rounds on.

        The objective keeps the targets and links of the graphs at the start of the phase. If a method's file defines
        this hook itself and does not only inherit it, no features are propagated before training.

        Args:
            round: the round after local training and the clients' update.

        Returns:
            Graphs with the same rows; in the inductive setting they have `evaluated` graphs too. None keeps the graphs.
        """
        return None

    def finish(self, phase: Phase, parameters: Parameters) -> Prepared | None:
        """Return changed graphs for the phases that follow.

        Args:
            phase: the phase that has ended.
            parameters: [C, ...] by name, at the end of this phase.

        Returns:
            The graphs, and the bytes that clients exchanged for them; None keeps the graphs.
        """
        return None
