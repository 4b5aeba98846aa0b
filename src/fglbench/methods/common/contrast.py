"""The model-contrastive loss of MOON: representations near the received model's, far from the client's earlier ones."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fglbench.backbones.base import Backbone
from fglbench.federation.batch import Batch
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import Parameters, rows_of, take
from fglbench.federation.step import Step


class Contrast:
    """Model-contrastive loss with one or more earlier models of each client.

    The loss of a client is the mean over its targets of -log(e^(sim(z, z_glob) / T) / (e^(sim(z, z_glob) / T) + sum
    over q of e^(sim(z, z_q) / T))), where sim is the cosine. z is the representation under the current parameters,
    z_glob under the received ones, and z_q under the q-th earlier ones. z_glob and z_q are computed without gradient
    and without dropout.

    Args:
        backbone: the model that computes representations.
        temperature: T.
    """

    def __init__(self, backbone: Backbone, temperature: float):
        self._backbone = backbone
        self._temperature = temperature
        self._fixed: tuple[int, Batch, list[Tensor]] | None = None  # round, batch, z_glob and all z_q

    def loss(self, step: Step, earlier: Sequence[Parameters], received: Parameters | None = None) -> Tensor:
        """Return the contrastive loss of each client in a step.

        Args:
            step: the local step, of all clients of the round or some of them.
            earlier: one or more earlier models, each [C, ...] by name for all clients.
            received: [C, ...] by name for all clients, the parameters of z_glob; None: `step.received`.

        Returns:
            [S] float32.
        """
        of_server, *others = self._constants(step, earlier, received)
        z = self._backbone.representation(step.output, step.batch)
        near, *away = (cosine_similarity(z, other) for other in (of_server, *others))
        far = away[0] if len(away) == 1 else self._temperature * _log_sum(away, self._temperature)
        contrast = softplus(-(near - far) / self._temperature).unsqueeze(1)
        return (step.batch.client_mean @ contrast).squeeze(1)

    def _constants(self, step: Step, earlier: Sequence[Parameters], received: Parameters | None) -> list[Tensor]:
        """Return z_glob and all z_q, which are the same in all local epochs of the step's clients."""
        if self._fixed is None or self._fixed[0] != step.round or self._fixed[1] is not step.batch:
            rows = rows_of(step.clients)
            models = [take(received, rows) if received else step.received, *(take(model, rows) for model in earlier)]
            with torch.no_grad():
                outputs = [self._backbone.forward(model, step.batch, no_dropout) for model in models]
            embeddings = [self._backbone.representation(output, step.batch) for output in outputs]
            self._fixed = step.round, step.batch, embeddings
        return self._fixed[2]


def _log_sum(similarities: Sequence[Tensor], temperature: float) -> Tensor:
    return (torch.stack(list(similarities)) / temperature).logsumexp(0)
