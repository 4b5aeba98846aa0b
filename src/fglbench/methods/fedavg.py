"""FedAvg (McMahan et al., AISTATS 2017, algorithm 1): the server averages the clients' parameters.

Every client receives sum_j (n_j / n) theta_j over the clients that trained, n_j its number of training nodes.
"""

from torch import Tensor

from fglbench.methods import base
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    pass


class Method(base.Method):
    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        return {base.SHARED: round.weights / round.weights.sum()}
