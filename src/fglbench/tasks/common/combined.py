"""A loss of nodes and a loss of links on the same outputs, in one objective (Fed-GALA, eq. 3.1)."""

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
    """A batch that is restricted to some of its targets; a `Batch` for losses.

    Attributes:
        whole: the batch with all its targets.
        rows: [T] int64 positions of the kept targets among those of `whole`.
        target_ptr: [S + 1] boundaries of the kept targets by client.
        client_mean: [S, T] operator that averages the kept targets per client.
    """

    whole: Batch
    rows: Tensor
    target_ptr: list[int]
    client_mean: SparseOperator

    @classmethod
    def of(cls, batch: Batch, targets: np.ndarray) -> "SomeTargets":
        """Restrict a batch to some targets.

        Args:
            batch: the batch with all its targets.
            targets: ascending int64 positions in the federation; those outside the batch are ignored.

        Returns:
            The batch with those of its targets that are in `targets`.
        """
        rows = np.flatnonzero(np.isin(batch.targets.cpu().numpy(), targets))
        ptr = np.searchsorted(rows, batch.target_ptr).tolist()
        device = batch.targets.device
        return cls(batch, torch.from_numpy(rows).to(device), ptr, client_means(ptr, device))

    @property
    def clients(self) -> np.ndarray:
        """[S] int64 client ids of the federation."""
        return self.whole.clients

    @property
    def targets(self) -> Tensor:
        """[T] int64 positions of the kept targets in the federation."""
        return self.whole.targets[self.rows]

    @property
    def labels(self) -> Tensor:
        """[T] int64 labels of the kept targets."""
        return self.whole.labels[self.rows]

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        """Select the rows of the kept targets.

        Args:
            x: [rows of level, width] float32 hidden rows of the whole batch.
            level: of the whole batch on which these rows are.

        Returns:
            [T, width] float32.
        """
        return self.whole.at_targets(x, level)[self.rows]


class WithLinks(Objective):
    """(1 - share) times an objective of nodes plus share times a link loss, on the outputs of all nodes of a client.

    The node loss of a client without training nodes is 0, and so is the link loss of a client without edges. `counts`
    is the number of training nodes plus the number of edges of each client.

    Args:
        federation: the client graphs.
        nodes: makes the objective of nodes.
        share: weight of the link loss, from 0 to 1.
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
        batch = self._last[1]
        output = replace(step.output, logits=step.output.logits[batch.rows])
        of_nodes = self._nodes.loss(replace(step, output=output, batch=batch))
        return (1 - self._share) * of_nodes + self._share * self._links.loss(step)
