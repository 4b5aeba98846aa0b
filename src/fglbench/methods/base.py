"""The contract of a method: a few small pieces around the one round loop (`federation/loop.py`).

A file of this folder declares `VERSION`, `class Settings(ComponentSettings)` and `class Method(base.Method)`; with
`CENTRALISED = True` the method is trained on the whole graph as a federation of one client. Every hook below has a
default that changes nothing; a method overrides those it needs. By default all parameters travel and count in bytes;
a method that mixes none says so by `shared`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglbench.backbones.base import Backbone, Output
from fglbench.federation.federation import Federation, View
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule


@dataclass(frozen=True)
class Step:
    """One local step of some clients, as the loss and gradient hooks see it.

    Attributes:
        round: 0-based.
        epoch: 0-based local epoch.
        clients: [S] int64 ids of the clients in this step; they may be a chunk of the round's clients.
        parameters: the current parameters, [S, ...] leaves under autograd.
        received: the same clients' parameters at the start of the round, [S, ...] constants.
        output: logits [outputs, classes] of the view's output rows, and the representation before the classifier with
            the level whose rows it lives on: those of client s are `view.ptrs[level][s]:view.ptrs[level][s + 1]`.
        view: the rows the step computes on.
        schedule: rounds and local optimiser.
    """

    round: int
    epoch: int
    clients: np.ndarray
    parameters: Parameters
    received: Parameters
    output: Output
    view: View
    schedule: Schedule


@dataclass(frozen=True)
class Round:
    """One round after local training, as the server's hooks see it.

    Attributes:
        number: 0-based.
        clients: [S] int64 ids of the clients that trained.
        weights: [C] float32 training nodes of the clients that trained, 0 for the others.
        parameters: [C, ...] after local training.
        received: [C, ...] at the start of the round.
        schedule: rounds and local optimiser.
        logits: computes [N, classes] float32 of all nodes of the method's `federation`, each under its own client's
            `parameters`, without dropout.
        uploads: what the method's `upload` gave.
    """

    number: int
    clients: np.ndarray
    weights: Tensor
    parameters: Parameters
    received: Parameters
    schedule: Schedule
    logits: Callable[[], Tensor]
    uploads: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """What training starts from.

    Attributes:
        federation: the graphs to train on and, in its `scored`, to predict on: of the same clients and nodes, `given`
            where rows were added.
        bytes_up, bytes_down: what all clients together sent and received for it.
    """

    federation: Federation
    bytes_up: int = 0
    bytes_down: int = 0


class Method:
    """Base of all methods: trains locally, and all parameters travel, though nothing mixes them.

    Attributes:
        settings: the resolved settings.
        backbone: the local model.
        federation: the clients' graphs of training as they were split; never modified. What is not in them, the
            `evaluated` graphs of the inductive setting, is only for what the scores are made on.
        added_rows: most rows that `prepare` adds for each row, which counts where memory is limited.
    """

    added_rows: int = 0

    def __init__(self, settings: Any, backbone: Backbone, federation: Federation):
        self.settings = settings
        self.backbone = backbone
        self.federation = federation

    def not_applicable(self) -> str | None:
        """The reason why this pair of method and backbone makes no sense, or None."""
        return None

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> Prepared:
        """The federation to train on; its seconds count as training.

        Args:
            seed: of the cell.
            device: of the training.
            chunk_clients: clients to work on at once; must not change a number.
        """
        return Prepared(self.federation)

    def shared(self, names: list[str]) -> list[str]:
        """The parameter names that travel, count in bytes and are mixed; none where the method mixes nothing."""
        return names

    def download(self, number: int, clients: np.ndarray) -> dict[str, Tensor]:
        """Tensors that the clients of round `number` receive beside the parameters, [S, ...] each; counted in bytes."""
        return {}

    def loss(self, step: Step) -> Tensor | None:
        """Extra loss term of each client in the step, [S], or None."""
        return None

    def correct(self, step: Step, gradients: Parameters) -> None:
        """Changes the clients' gradients [S, ...] in place, before the optimiser's step."""

    def upload(self, round: Round) -> dict[str, Tensor]:
        """Tensors that every training client sends beside its parameters, [S, ...] each; counted in bytes."""
        return {}

    def mixing(self, round: Round) -> Tensor | None:
        """The mixing matrix: [C, C], or [C] for one row common to all clients; None mixes nothing.

        Rows are the receivers and must sum to 1.
        """
        return None

    def after(self, round: Round, mixed: Parameters) -> None:
        """The method's own state after aggregation; may put other tensors [C, ...] in place of entries of `mixed`.

        The tensors themselves are not to be written to: they share memory among clients, or with `round.parameters`.
        """

    def rebuild(self, round: Round) -> Federation | None:
        """Other graphs of the same rows to score this round and to train the next ones on; None keeps them.

        Under the inductive setting they have an `evaluated` too. A file whose class defines it, not only inherits it,
        gets graphs of which nothing was propagated ahead.
        """
        return None
