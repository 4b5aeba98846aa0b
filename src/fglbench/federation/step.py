"""One local step: what the model gives, and what losses and gradient hooks see of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from torch import Tensor

from fglbench.federation.batch import Batch
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule

Messages: TypeAlias = Mapping[str, Tensor | Sequence[Tensor]]
"""What S clients receive beside the parameters, by name: [S, ...], or a tensor for each where sizes differ."""


@dataclass(frozen=True)
class Output:
    """What a forward pass gives, for the output rows of its batch.

    Attributes:
        logits: [outputs, classes] float32.
        hidden: the representation before the classifier, [rows of the level it lives on, width] float32; the logits
            themselves where the classifier is the only layer.
        hidden_level: that level of the batch.
        buffers: new values [S, ...] of buffers that a training pass updates.
        penalty: [S] what the model itself adds to the loss of its clients in a training pass.
    """

    logits: Tensor
    hidden: Tensor
    hidden_level: int = 0
    buffers: Parameters = field(default_factory=dict)
    penalty: Tensor | None = None


@dataclass(frozen=True)
class Step:
    """One local step of some clients, as the loss and gradient hooks see it.

    Attributes:
        seed: of the cell; a loss that draws derives streams of each client from it, the round and the epoch.
        round: 0-based, of the phase.
        epoch: 0-based local epoch.
        clients: [S] int64 ids of the clients in this step; they may be a chunk of the round's clients.
        parameters: the current parameters, [S, ...] leaves under autograd, and the buffers.
        received: the same at the start of the round, [S, ...] constants.
        downloads: what `download` gave these clients.
        output: logits [outputs, classes] of the batch's output rows, and the representation before the classifier.
        batch: the rows the step computes on.
        schedule: rounds and local optimiser.
    """

    seed: int
    round: int
    epoch: int
    clients: np.ndarray
    parameters: Parameters
    received: Parameters
    downloads: Messages
    output: Output
    batch: Batch
    schedule: Schedule
