"""FedPer (Arivazhagan et al., 2019): FedAvg on the base layers; the last layer stays with its client.

With `mu` the local loss has FedProx's term on the base layers, as in table 5 of FedVGAE, where only the encoder is
shared.

Defaults:
    mu none: the paper's.
    weights none: the paper's.
"""

import torch

from fglbench.methods import base, fedprox
from fglbench.settings import AveragedSettings, Field

VERSION = 1


class Settings(AveragedSettings):
    mu: float | None = Field(None, ge=0, description="Weight of FedProx's term on the base layers; null: none.")


class Method(fedprox.Method):
    def not_applicable(self) -> str | None:
        if self.shared(self.backbone.initial(torch.Generator())):
            return None
        return "the backbone has one layer, so that no base layer is left to share"

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {base.SHARED: [name for name in names if name not in self.backbone.head]}
