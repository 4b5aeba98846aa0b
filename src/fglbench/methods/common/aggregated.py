"""Base class of FGL models that combine with the aggregation of any other method (FedGTA, table 5)."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglbench import registry
from fglbench.backbones.base import Backbone
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule
from fglbench.methods import base
from fglbench.methods.common.phases import Phase


class Method(base.Method):
    """Base class of methods that delegate every hook of aggregation to an inner method.

    The inner method changes neither graphs nor phases (`config.entries`). It knows the clients' graphs as they were
    split, without the changes that this method makes.

    Attributes:
        inner: the method that the setting `aggregation` names.
    """

    def __init__(self, settings: Any, backbone: Backbone, federation: Federation):
        super().__init__(settings, backbone, federation)
        inner_settings = registry.declaration("method", settings.aggregation).settings(**settings.aggregation_settings)
        inner: base.Method = registry.module("method", settings.aggregation).Method(
            inner_settings, backbone, federation
        )
        self.inner, self.backbone = inner, inner.backbone
        self.needs_classes = self.needs_classes or inner.needs_classes

    def not_applicable(self) -> str | None:
        return self.inner.not_applicable()

    def initial(self, parameters: Parameters, stream: torch.Generator) -> Parameters:
        return self.inner.initial(parameters, stream)

    def groups(self, names: list[str]) -> Mapping[str, list[str]]:
        return self.inner.groups(names)

    def phases(self, schedule: Schedule) -> Iterable[Phase]:
        return self.inner.phases(schedule)

    def download(self, number: int, clients: np.ndarray) -> base.Messages:
        return self.inner.download(number, clients)

    def loss(self, step: base.Step) -> Tensor | None:
        return self.inner.loss(step)

    def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
        self.inner.modify_gradients(step, gradients)

    def upload(self, round: base.ClientRound) -> Mapping[str, Tensor]:
        return self.inner.upload(round)

    def client_update(self, round: base.ClientRound, current: Parameters) -> None:
        self.inner.client_update(round, current)

    def aggregate(self, round: base.Round) -> Mapping[str, Tensor]:
        return self.inner.aggregate(round)

    def server_update(self, round: base.Round, mixed: Parameters) -> None:
        self.inner.server_update(round, mixed)

    def server_parameters(self) -> Parameters:
        return self.inner.server_parameters()
