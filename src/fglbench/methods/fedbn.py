"""FedBN (Li et al., ICLR 2021): FedAvg whose normalisation layers stay with their clients, statistics included.

It needs a backbone with normalisation (`norm: batch` of gcn and mlp). FedAvg shares these layers too, running
statistics included.
"""

from fglbench.methods import base, fedavg
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    pass


class Method(fedavg.Method):
    def not_applicable(self) -> str | None:
        if self.backbone.norms:
            return None
        return "the backbone has no normalisation to keep at the clients; set norm: batch of gcn or mlp"

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {base.SHARED: [name for name in names if name not in self.backbone.norms]}
