"""What several methods keep of local training: every client's mean gradient."""

import numpy as np
import torch

from fglbench.federation.parameters import Parameters, by_client, put, rows_of, take
from fglbench.federation.step import Step


class MeanGradients:
    """The mean of the gradients of each client's local steps in a round, weight decay included.

    After steps of plain SGD it is (theta received - theta trained) / (K lr), K the number of steps, if the gradients
    are those that the optimiser was given; unlike this quotient it means the same under any optimiser.

    Args:
        clients: of the federation.
    """

    def __init__(self, clients: int):
        self._sums: Parameters = {}
        self._steps = np.zeros(clients, dtype=np.float32)

    def add(self, step: Step, gradients: Parameters, names: list[str]) -> None:
        """Adds the named gradients [S, ...] of one step."""
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
        """The means [S, ...] of the clients that trained, in their order; then forgets all steps."""
        means = {}
        for name, total in self._sums.items():
            steps = torch.from_numpy(self._steps[clients]).to(total.device)
            means[name] = total[rows_of(clients)] / by_client(steps, total)
            total.zero_()
        self._steps[:] = 0
        return means
