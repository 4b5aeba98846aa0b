"""One local step: the output of the model, and the inputs of losses and gradient hooks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from torch import Tensor

from fglbench.federation.batch import Batch
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule

Messages: TypeAlias = Mapping[str, Tensor | Sequence[Tensor]]
"""Messages to S clients beside the parameters, by name: [S, ...], or one tensor per client if sizes differ."""


@dataclass(frozen=True)
class Output:
    """Output of a forward pass for the output rows of its batch.

    Attributes:
        logits: [outputs, columns] float32 of the last layer: class logits, or node embeddings or reconstructed
            features, as the task needs.
        hidden: [rows of its level, width] float32 representation before the classifier; the logits themselves if the
            classifier is the only layer.
        hidden_level: level of the batch that the rows of `hidden` belong to.
        buffers: new values [S, ...] of the buffers that a training pass updates.
        penalty: [S] term that the model adds to the loss of each client in a training pass; None for no term.
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
        seed: seed of the cell; a loss with random draws derives a stream for each client from it, the round and the
            epoch.
        round: 0-based round of the phase.
        epoch: 0-based local epoch.
        clients: [S] int64 ids of the clients in this step, which may be a chunk of the round's clients.
        parameters: current parameters, [S, ...] leaves under autograd, and the buffers.
        received: parameters and buffers at the start of the round, [S, ...] constants.
        downloads: messages from `download` to these clients.
        output: logits [outputs, classes] of the batch's output rows, and the representation before the classifier.
        batch: rows that the step computes on.
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
