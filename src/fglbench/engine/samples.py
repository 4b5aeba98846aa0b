"""Batches of samples: every target reads a fixed number of rows of its own, which a sampler draws.

Each row that a batch reads is multiplied by the first weights once, even if many targets read it, so sparse features
stay sparse. After that, every target gets copies of the rows that it reads, [T, k, width].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglbench.engine.minibatches import Minibatches
from fglbench.federation.features import FeatureRows, feature_rows, times
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, client_means, stacked_bias, stacked_linear
from fglbench.samplers.base import Sampler
from fglbench.seeding import numpy_stream
from fglbench.tasks.base import Objective

_EVALUATED_AT_ONCE = 2**15  # targets; their copies of hidden representations take some hundred MiB


@dataclass(frozen=True)
class SampleBatch:
    """Targets with k rows for each of them; a `Batch`.

    Attributes:
        clients: [S] int64 client ids of the federation.
        targets: [T] int64 positions in the federation, ascending.
        target_ptr: [S + 1] boundaries of the targets by client.
        labels: [T] int64 labels of the targets.
        client_mean: [S, T] operator that averages targets per client.
        rows: [R] int64 positions in the federation of all rows that are read, each once, ascending.
        row_ptr: [S + 1] boundaries of the rows by client.
        positions: [T, k] int64 positions in `rows` of the rows that each target reads.
        features: features of the rows, in a form that multiplies stacked weights.
    """

    clients: np.ndarray
    targets: Tensor
    target_ptr: list[int]
    labels: Tensor
    client_mean: SparseOperator
    rows: Tensor
    row_ptr: list[int]
    positions: Tensor
    features: FeatureRows

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        """Return `x`, since hidden representations have one row for each target.

        Args:
            x: [T, width] float32.
            level: not used.

        Returns:
            [T, width] float32.
        """
        return x

    def input_linear(self, weight: Tensor) -> Tensor:
        """Multiply the features of each client's rows by that client's weights.

        Args:
            weight: [S, num_features, out] float32.

        Returns:
            [R, out] float32.
        """
        return times(self.features, weight, self.row_ptr)

    def row_linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """Multiply each client's rows by that client's weights.

        Args:
            x: [R, in] float32.
            weight: [S, in, out] float32.

        Returns:
            [R, out] float32.
        """
        return stacked_linear(x, weight, self.row_ptr)

    def row_bias(self, x: Tensor, bias: Tensor) -> Tensor:
        """Add each client's bias to its rows.

        Args:
            x: [R, out] float32.
            bias: [S, out] float32.

        Returns:
            [R, out] float32.
        """
        return stacked_bias(x, bias, self.row_ptr)

    def gather(self, x: Tensor) -> Tensor:
        """Copy the rows that each target reads; the gradient of a row is the sum over its copies.

        Args:
            x: [R, width] float32.

        Returns:
            [T, k, width] float32.
        """
        # With 64-bit indices, `index_select` is as fast as a sparse operator, which each batch would have to build.
        # See benchmarks/sample_trees.py.
        return x.index_select(0, self.positions.flatten()).view(*self.positions.shape, -1)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """Multiply the entries of each client's targets by that client's weights.

        Args:
            x: [T, ..., in] float32.
            weight: [S, in, out] float32.

        Returns:
            [T, ..., out] float32.
        """
        rows, ptr = self.by_client(x)
        return stacked_linear(rows, weight, ptr).view(*x.shape[:-1], -1)

    def bias(self, x: Tensor, bias: Tensor) -> Tensor:
        """Add each client's bias to the entries of its targets.

        Args:
            x: [T, ..., out] float32.
            bias: [S, out] float32.

        Returns:
            [T, ..., out] float32.
        """
        rows, ptr = self.by_client(x)
        return stacked_bias(rows, bias, ptr).view(x.shape)

    def by_client(self, x: Tensor) -> tuple[Tensor, list[int]]:
        """Flatten the entries of the targets to a matrix that is grouped by client.

        Args:
            x: [T, ..., width].

        Returns:
            The matrix [T * ..., width], and the boundaries [S + 1] of its rows by client.
        """
        copies = x.shape[1:-1].numel()
        return x.flatten(0, -2), [copies * boundary for boundary in self.target_ptr]


def sample_batch(
    federation: Federation,
    clients: np.ndarray,
    targets: np.ndarray,
    drawn: np.ndarray,
    device: torch.device | str = "cpu",
) -> SampleBatch:
    """Build a batch from targets and the rows that a sampler drew for them.

    Args:
        federation: the client graphs.
        clients: [S] int64 ascending ids, each with a target.
        targets: [T] int64 ascending positions in the federation.
        drawn: [T, k] int64 positions in the federation of the rows that each target reads.
        device: device of the batch's tensors.

    Returns:
        The batch, in which each row occurs once.
    """
    read = np.zeros(len(federation.labels), dtype=bool)
    read[drawn] = True
    rows = np.flatnonzero(read)
    position = np.empty(len(read), dtype=np.int64)
    position[rows] = np.arange(len(rows))
    row_ptr, target_ptr = (_boundaries(federation, clients, nodes) for nodes in (rows, targets))

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    return SampleBatch(
        clients=clients,
        targets=tensor(targets),
        target_ptr=target_ptr,
        labels=tensor(federation.labels[targets]),
        client_mean=client_means(target_ptr, device),
        rows=tensor(rows),
        row_ptr=row_ptr,
        positions=tensor(position[drawn]),
        features=feature_rows(federation.features, rows, row_ptr, device),
    )


def evaluation_samples(
    federation: Federation,
    sampler: Sampler,
    clients: np.ndarray,
    seed: int,
    device: torch.device | str = "cpu",
    whole: bool = False,
) -> Iterator[SampleBatch]:
    """Iterate over batches of all original nodes of some clients, in ascending order.

    Every call draws the same samples.

    Args:
        federation: graphs to predict on.
        sampler: sampler of the federation's adjacency.
        clients: ascending ids.
        seed: seed of the cell.
        device: device of the batches.
        whole: True builds one batch for each client; False builds batches of 2^15 nodes across clients.

    Yields:
        Batches that together contain each of these nodes once.
    """
    original = np.arange(len(federation.labels)) if federation.original is None else federation.original
    targets = original[np.isin(federation.client_of[original], clients)]
    client_of = federation.client_of[targets]
    clients = np.unique(client_of)
    streams = [numpy_stream(seed, "sampling", "evaluation", client) for client in clients.tolist()]
    bounds = _boundaries(federation, clients, targets)
    drawn = sampler.draw(targets, bounds, streams)
    for first, last in pairwise(bounds if whole else [*range(0, len(targets), _EVALUATED_AT_ONCE), len(targets)]):
        part = slice(first, last)
        yield sample_batch(federation, np.unique(client_of[part]), targets[part], drawn[part], device)


class Samples:
    """Batches of samples for local epochs; `Minibatches` chooses their targets.

    Args:
        sampler: function from an adjacency to its sampler.
        batch_size: training targets of a client in a step; None for all of them.
        seed: seed of the cell.
        clients: number of clients of the federation.
        device: device of the batches.
    """

    def __init__(
        self,
        sampler: Callable[[sp.csr_matrix], Sampler],
        batch_size: int | None,
        seed: int,
        clients: int,
        device: torch.device | str,
    ):
        self._make = sampler
        self._whole = batch_size is None
        self._minibatches = Minibatches(batch_size, seed, clients)
        self._streams = [numpy_stream(seed, "sampling", client) for client in range(clients)]
        self._device = device

    def use(self, federation: Federation, objective: Objective) -> None:
        """Switch to other graphs of the same clients, or to other targets.

        Args:
            federation: the client graphs to train on.
            objective: its `targets` are the training targets.
        """
        self._federation, self._sampler = federation, self._make(federation.adjacency)
        self._minibatches.use(objective.targets, federation.ptr)
        self._everyone = np.flatnonzero(objective.counts)
        self._stays = self._whole and self._sampler.settings.redraw == "never"
        self._last: SampleBatch | None = None
        self._once: _Drawn | None = None

    def build(self, clients: np.ndarray) -> None:
        """Build the batch of some clients before the first round, if all rounds use the same batch.

        Args:
            clients: [S] int64 ascending ids, each with training targets.
        """
        if self._stays:
            list(self.epoch(clients))

    def epoch(self, clients: np.ndarray) -> Iterator[SampleBatch]:
        """Iterate over the batches of one local epoch.

        Args:
            clients: [S] int64 ascending ids, each with training targets.

        Yields:
            One batch for each local step.
        """
        if self._last is not None and np.array_equal(self._last.clients, clients):
            yield self._last
            return
        self._last = None  # frees its memory for the next batch
        samples = self._drawn_before(clients)
        for present, targets in self._minibatches.epoch(clients):
            drawn = self._draw(present, targets) if samples is None else samples.of(targets)
            batch = sample_batch(self._federation, present, targets, drawn, self._device)
            if self._stays:
                self._last = batch
            yield batch

    def _drawn_before(self, clients: np.ndarray) -> "_Drawn | None":
        """Return the samples drawn before the first step, as the setting `redraw` says; None to draw in each step."""
        redraw = self._sampler.settings.redraw
        if redraw == "never":
            self._once = self._once or self._drawn(self._everyone)
            return self._once
        return self._drawn(clients) if redraw == "epoch" else None

    def _drawn(self, clients: np.ndarray) -> "_Drawn":
        targets = self._minibatches.of(clients)
        return _Drawn(targets, self._draw(clients, targets))

    def _draw(self, clients: np.ndarray, targets: np.ndarray) -> np.ndarray:
        streams = [self._streams[client] for client in clients]
        return self._sampler.draw(targets, _boundaries(self._federation, clients, targets), streams)


@dataclass(frozen=True)
class _Drawn:
    """Ascending targets [T] and the rows [T, k] that were drawn for them."""

    targets: np.ndarray
    positions: np.ndarray

    def of(self, targets: np.ndarray) -> np.ndarray:
        return self.positions[np.searchsorted(self.targets, targets)]


def _boundaries(federation: Federation, clients: np.ndarray, positions: np.ndarray) -> list[int]:
    """Return the boundaries [S + 1] by client of ascending positions, which all belong to these clients."""
    return [*np.searchsorted(positions, federation.ptr[clients]).tolist(), len(positions)]
