"""A loss of nodes and the loss of links on the same outputs, in one objective (Fed-GALA, eq. 3.1)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, client_means
from fglbench.federation.step import Step
from fglbench.tasks.base import Objective
from fglbench.tasks.common.links import LinkObjective, SampledPairs

MakeObjective: TypeAlias = Callable[[Federation], Objective]


@dataclass(frozen=True)
class SomeTargets:
    """Some of a batch's targets, as losses see a batch."""

    whole: Batch
    rows: Tensor
    target_ptr: list[int]
    client_mean: SparseOperator

    @classmethod
    def of(cls, batch: Batch, targets: np.ndarray) -> "SomeTargets":
        """Args: targets, ascending positions in the federation; those of other clients are left out."""
        held = np.flatnonzero(np.isin(batch.targets.cpu().numpy(), targets))
        ptr = np.searchsorted(held, batch.target_ptr).tolist()
        device = batch.targets.device
        return cls(batch, torch.from_numpy(held).to(device), ptr, client_means(ptr, device))

    @property
    def clients(self) -> np.ndarray:
        return self.whole.clients

    @property
    def targets(self) -> Tensor:
        return self.whole.targets[self.rows]

    @property
    def labels(self) -> Tensor:
        return self.whole.labels[self.rows]

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        return self.whole.at_targets(x, level)[self.rows]


class WithLinks(Objective):
    """(1 - share) times an objective of nodes plus share times a link loss, on outputs of all nodes of a client.

    A client without training nodes has share times the link loss alone, one without edges (1 - share) times the loss of
    nodes. `counts` adds training nodes and edges.

    Args:
        federation: the client graphs.
        nodes: makes the objective of nodes.
        share: of the link loss, within 0 and 1.
        links: makes the link loss.
    """

    def __init__(
        self, federation: Federation, nodes: MakeObjective, share: float, links: type[LinkObjective] = SampledPairs
    ):
        self._nodes, self._links, self._share = nodes(federation), links(federation), share
        self.counts = self._nodes.counts + self._links.counts
        original = np.arange(len(federation.labels)) if federation.original is None else federation.original
        self.targets = original[(self.counts > 0)[federation.client_of[original]]]
        self._last: tuple[Batch, SomeTargets] | None = None

    def loss(self, step: Step) -> Tensor:
        if self._last is None or self._last[0] is not step.batch:
            self._last = step.batch, SomeTargets.of(step.batch, self._nodes.targets)
        some = self._last[1]
        output = replace(step.output, logits=step.output.logits[some.rows])
        of_nodes = self._nodes.loss(replace(step, output=output, batch=some))
        return (1 - self._share) * of_nodes + self._share * self._links.loss(step)
