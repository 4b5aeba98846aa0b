"""The mean local gradient of every client, which several methods use."""

import numpy as np
import torch

from fglbench.federation.parameters import Parameters, by_client, put, rows_of, take
from fglbench.federation.step import Step


class MeanGradients:
    """The mean of the gradients of each client's local steps in a round, weight decay included.

    With plain SGD the mean equals (theta received - theta trained) / (K lr), where K is the number of steps, if the
    optimiser steps along the added gradients. Under other optimisers only the mean is a gradient; the quotient is not.

    Args:
        clients: number of clients of the federation.
    """

    def __init__(self, clients: int):
        self._sums: Parameters = {}
        self._steps = np.zeros(clients, dtype=np.float32)

    def add(self, step: Step, gradients: Parameters, names: list[str]) -> None:
        """Add the gradients of one step.

        Args:
            step: the local step.
            gradients: [S, ...] by name.
            names: of the parameters to sum up.
        """
        if not self._sums:
            self._sums = {
                name: gradients[name].new_zeros(len(self._steps), *gradients[name].shape[1:]) for name in names
            }
        rows = rows_of(step.clients)
        sums = take(self._sums, rows)
        for name, total in sums.items():
            total.add_(gradients[name]).add_(step.parameters[name], alpha=step.schedule.weight_decay)
        put(self._sums, rows, sums)
        self._steps[step.clients] += 1

    def take(self, clients: np.ndarray) -> Parameters:
        """Return the means of some clients, and forget the steps of all clients.

        Args:
            clients: [S] int64, ascending ids of the clients that trained.

        Returns:
            [S, ...] float32 by name.
        """
        means = {}
        for name, total in self._sums.items():
            steps = torch.from_numpy(self._steps[clients]).to(total.device)
            means[name] = total[rows_of(clients)] / by_client(steps, total)
            total.zero_()
        self._steps[:] = 0
        return means
