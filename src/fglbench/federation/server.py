"""A model of the server's own, trained on what clients uploaded."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.optimiser import Adam
from fglbench.federation.parameters import Parameters, gradients, stack


class ServerModel:
    """Parameters at the server with an optimiser of their own: a stack of one client, for a backbone's forward pass.

    Its seconds are the server's: methods train it in `server_update`.

    Args:
        start: [...] initial values.
        lr, weight_decay: of its Adam.
        device: where it lives.

    Attributes:
        parameters: [1, ...] by name.
    """

    def __init__(self, start: Parameters, lr: float, weight_decay: float, device: torch.device | str):
        self.parameters = {name: tensor.to(device).requires_grad_() for name, tensor in stack(start, 1).items()}
        self._optimiser = Adam(self.parameters, lr, weight_decay)

    def step(self, loss: Callable[[Parameters], Tensor]) -> float:
        """One step along the gradient of a loss (a scalar of the parameters); returns the loss before it."""
        found = loss(self.parameters)
        own = gradients(found, self.parameters)
        with torch.no_grad():
            self._optimiser.step(np.zeros(1, dtype=np.int64), slice(0, 1), self.parameters, own)
        return float(found.detach())

    def values(self) -> Parameters:
        """[...] by name, constants."""
        return {name: tensor.detach()[0] for name, tensor in self.parameters.items()}
