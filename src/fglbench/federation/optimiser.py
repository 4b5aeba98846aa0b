"""Local optimisers on stacked parameters: one fused step updates all clients.

The update rules are the functional ones of torch. This module keeps their state for each client, so that clients can
skip rounds and be trained in chunks.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fglbench.federation.parameters import Parameters, Rows, put, take


class Adam:
    """torch.optim.Adam (coupled weight decay, betas 0.9 and 0.999, eps 1e-8) with a step count for each client.

    Args:
        parameters: [C, ...] parameters to train, by name; only their shapes, dtypes and devices are used.
        lr: learning rate.
        weight_decay: L2 penalty added to the gradient.

    Attributes:
        names: names of the parameters to train.
    """

    def __init__(self, parameters: Mapping[str, Tensor], lr: float, weight_decay: float):
        self.names = list(parameters)
        self._lr = lr
        self._weight_decay = weight_decay
        self._mean = {name: torch.zeros_like(tensor) for name, tensor in parameters.items()}
        self._square = {name: torch.zeros_like(tensor) for name, tensor in parameters.items()}
        self._steps = np.zeros(len(next(iter(parameters.values()))), dtype=np.int64)

    def reset(self) -> None:
        """Reset all moments and step counts, as for clients that build a new optimiser in each round."""
        for tensor in (*self._mean.values(), *self._square.values()):
            tensor.zero_()
        self._steps[:] = 0

    def step(self, clients: np.ndarray, rows: Rows, leaves: Parameters, gradients: Parameters) -> None:
        """Update the parameters of some clients in place.

        Args:
            clients: [S] int64 client ids.
            rows: index of these clients into the stack, from `parameters.rows_of`.
            leaves: [S, ...] parameters by name, updated in place.
            gradients: [S, ...] gradients by name, with the shapes of `leaves`.
        """
        mean, square = take(self._mean, rows), take(self._square, rows)
        counts = self._steps[clients]
        tensors = [[part[name] for name in leaves] for part in (leaves, gradients, mean, square)]
        if (counts == counts[0]).all():
            self._update(tensors, [float(counts[0])] * len(leaves))
        else:  # the bias correction depends on the step count, so each client is passed as tensors of its own
            single = [[row for tensor in part for row in tensor.unbind()] for part in tensors]
            self._update(single, [float(count) for count in counts] * len(leaves))
        self._steps[clients] += 1
        put(self._mean, rows, mean)
        put(self._square, rows, square)

    def _update(self, tensors: list[list[Tensor]], counts: list[float]) -> None:
        parameters, gradients, mean, square = tensors
        # One tensor holds all step counts; equal counts need no copy to the device. The update increments its entries.
        device = parameters[0].device
        alike = counts.count(counts[0]) == len(counts)
        steps = torch.full((len(counts),), counts[0], device=device) if alike else torch.tensor(counts, device=device)
        adam(
            parameters,
            gradients,
            mean,
            square,
            [],
            list(steps.unbind()),
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self._lr,
            weight_decay=self._weight_decay,
            eps=1e-8,
            maximize=False,
        )


class SGD:
    """torch.optim.SGD without momentum, hence without state.

    Args:
        parameters: [C, ...] parameters to train, by name; only the names are used.
        lr: learning rate.
        weight_decay: L2 penalty added to the gradient.

    Attributes:
        names: names of the parameters to train.
    """

    def __init__(self, parameters: Mapping[str, Tensor], lr: float, weight_decay: float):
        self.names = list(parameters)
        self._lr = lr
        self._weight_decay = weight_decay

    def reset(self) -> None:
        """Do nothing, because there is no state."""

    def step(self, clients: np.ndarray, rows: Rows, leaves: Parameters, gradients: Parameters) -> None:
        """Update the parameters of some clients in place.

        Args:
            clients: [S] int64 client ids; not used.
            rows: index of these clients into the stack; not used.
            leaves: [S, ...] parameters by name, updated in place.
            gradients: [S, ...] gradients by name, with the shapes of `leaves`.
        """
        sgd(
            list(leaves.values()),
            [gradients[name] for name in leaves],
            [None for _ in leaves],
            fused=True,
            weight_decay=self._weight_decay,
            momentum=0.0,
            lr=self._lr,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


OPTIMISERS: dict[str, type[Adam] | type[SGD]] = {"adam": Adam, "sgd": SGD}
