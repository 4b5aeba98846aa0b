"""FedPer (Arivazhagan et al., 2019): FedAvg on the base layers; the last layer stays with its client."""

import torch

from fglbench.methods import base, fedavg
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    pass


class Method(fedavg.Method):
    def not_applicable(self) -> str | None:
        if self.shared(self.backbone.initial(torch.Generator())):
            return None
        return "the backbone has one layer, so that no base layer is left to share"

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {base.SHARED: [name for name in names if name not in self.backbone.head]}
