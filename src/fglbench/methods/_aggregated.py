"""A method that leaves aggregation to another one: FGL models that combine with any strategy (FedGTA, table 5)."""

from typing import Any

import numpy as np
from torch import Tensor

from fglbench import registry
from fglbench.backbones.base import Backbone
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.methods import base


class Method(base.Method):
    """Every hook of aggregation is the inner method's, which is none that changes graphs (`config.entries`).

    The inner method knows the clients' graphs as they were split, not what this one made of them.

    Attributes:
        inner: the method named `aggregation`.
    """

    def __init__(self, settings: Any, backbone: Backbone, federation: Federation):
        super().__init__(settings, backbone, federation)
        inner_settings = registry.declaration("method", settings.aggregation).settings(**settings.aggregation_settings)
        inner: base.Method = registry.module("method", settings.aggregation).Method(
            inner_settings, backbone, federation
        )
        self.inner = inner

    def not_applicable(self) -> str | None:
        return self.inner.not_applicable()

    def shared(self, names: list[str]) -> list[str]:
        return self.inner.shared(names)

    def download(self, number: int, clients: np.ndarray) -> dict[str, Tensor]:
        return self.inner.download(number, clients)

    def loss(self, step: base.Step) -> Tensor | None:
        return self.inner.loss(step)

    def correct(self, step: base.Step, gradients: Parameters) -> None:
        self.inner.correct(step, gradients)

    def upload(self, round: base.Round) -> dict[str, Tensor]:
        return self.inner.upload(round)

    def mixing(self, round: base.Round) -> Tensor | None:
        return self.inner.mixing(round)

    def after(self, round: base.Round, mixed: Parameters) -> None:
        self.inner.after(round, mixed)
