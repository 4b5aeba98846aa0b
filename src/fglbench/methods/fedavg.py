"""FedAvg (McMahan et al., AISTATS 2017, algorithm 1): the server averages the clients' parameters.

Every client receives sum_j (w_j / w) theta_j over the clients that count. By default w_j is the number of training
targets of client j: its training nodes, or its training edges in link prediction. With `weights` it is the number of
its training nodes, the number of all its nodes, or the product of both (Fed-GALA, eq. 3.2). If `weights` gives 0 for
all clients that count, the clients keep the parameters that they received.

Defaults:
    weights none: the paper's.
"""

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.methods import base
from fglbench.partition.ratios import TRAIN
from fglbench.settings import AveragedSettings

VERSION = 1


class Settings(AveragedSettings):
    pass


class Method(base.Method):
    """FedAvg, and the base class of methods that average the parameters; the setting `weights` is optional."""

    _all_weights_zero = False

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        by = getattr(self.settings, "weights", None)
        if by is None:
            return {base.SHARED: round.weights / round.weights.sum()}
        weights = client_weights(by, round.weights, self.federation)
        self._all_weights_zero = not weights.any()
        return {} if self._all_weights_zero else {base.SHARED: weights / weights.sum()}

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        if self._all_weights_zero:
            mixed |= round.received


def client_weights(by: str, counted: Tensor, federation: Federation) -> Tensor:
    """Return the weight of each client in the average.

    Args:
        by: "labelled" for training nodes, "nodes" for all nodes that a client holds, "labelled_times_nodes" for the
            product.
        counted: [C] positive for the clients that count.
        federation: the clients' graphs.

    Returns:
        [C] float32 on the device of `counted`; 0 for clients that do not count.
    """
    labelled, nodes = federation.count(TRAIN), np.diff(federation.ptr)
    sizes = {"labelled": labelled, "nodes": nodes, "labelled_times_nodes": labelled * nodes}[by]
    return torch.from_numpy(sizes.astype(np.float32)).to(counted.device).where(counted > 0, 0.0)
