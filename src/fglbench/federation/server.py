"""A model that the server trains on the uploads of the clients."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.optimiser import Adam
from fglbench.federation.parameters import Parameters, gradients, stack


class ServerModel:
    """A model at the server with its own Adam optimiser; parameters have a client axis of size 1, as backbones need it.

    Methods train the model in `server_update`, so the time counts as time of the server.

    Args:
        start: [...] initial values by name.
        lr: learning rate of Adam.
        weight_decay: L2 penalty of Adam.
        device: device of the parameters.

    Attributes:
        parameters: [1, ...] by name, leaves under autograd.
    """

    def __init__(self, start: Parameters, lr: float, weight_decay: float, device: torch.device | str):
        self.parameters = {name: tensor.to(device).requires_grad_() for name, tensor in stack(start, 1).items()}
        self._optimiser = Adam(self.parameters, lr, weight_decay)

    def step(self, loss: Callable[[Parameters], Tensor]) -> float:
        """Take one optimiser step along the gradient of a loss.

        Args:
            loss: function from the parameters [1, ...] to a scalar.

        Returns:
            The loss before the step.
        """
        value = loss(self.parameters)
        computed = gradients(value, self.parameters)
        with torch.no_grad():
            self._optimiser.step(np.zeros(1, dtype=np.int64), slice(0, 1), self.parameters, computed)
        return float(value.detach())

    def values(self) -> Parameters:
        """Return the current parameters without the client dimension.

        Returns:
            [...] by name: detached views, which later steps change.
        """
        return {name: tensor.detach()[0] for name, tensor in self.parameters.items()}
