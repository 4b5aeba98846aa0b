"""FedAvg (McMahan et al., AISTATS 2017, algorithm 1): the server averages the clients' parameters.

Every client receives sum_j (w_j / w) theta_j over the clients that count. w_j is its number of training nodes (of
training edges for links), or with `weights` its number of nodes, or their product (Fed-GALA, eq. 3.2). Where all that
trained count for nothing by it, clients keep what they received.

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
    """Methods that average in this way have the setting `weights`, or are without it."""

    _nobody_counts = False

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        by = getattr(self.settings, "weights", None)
        if by is None:
            return {base.SHARED: round.weights / round.weights.sum()}
        weights = client_weights(by, round.weights, self.federation)
        self._nobody_counts = not weights.any()
        return {} if self._nobody_counts else {base.SHARED: weights / weights.sum()}

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        if self._nobody_counts:
            mixed |= round.received


def client_weights(by: str, counted: Tensor, federation: Federation) -> Tensor:
    """[C] float32: what each client counts by; 0 for those that do not count.

    Args:
        by: "labelled" for training nodes, "nodes" for all nodes that it holds, or "labelled_times_nodes".
        counted: [C] positive for the clients that count.
        federation: the clients' graphs.
    """
    labelled, nodes = federation.count(TRAIN), np.diff(federation.ptr)
    sizes = {"labelled": labelled, "nodes": nodes, "labelled_times_nodes": labelled * nodes}[by]
    return torch.from_numpy(sizes.astype(np.float32)).to(counted.device).where(counted > 0, 0.0)
