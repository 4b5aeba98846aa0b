"""Batches of samples: every target reads a fixed number of rows of its own, which a sampler draws.

The rows that a batch reads are multiplied by the first weights once each, however many targets read them, so that
sparse features stay sparse; then every target gets copies of what it reads, [T, k, width].
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

_EVALUATED_AT_ONCE = 2**15  # targets, whose copies of hidden representations take some hundred MiB


@dataclass(frozen=True)
class SampleBatch:
    """Targets, and k rows for each of them; a `Batch`.

    Attributes:
        clients: [S] int64 client ids of the federation.
        targets: [T] int64 positions in the federation, ascending.
        target_ptr: [S + 1] boundaries of the targets by client.
        labels: [T] int64.
        client_mean: [S, T] operator that averages targets per client.
        rows: [R] int64 positions in the federation of all rows that are read, each once, ascending.
        row_ptr: [S + 1] boundaries of the rows by client.
        positions: [T, k] int64, where in `rows` each target's rows are.
        features: of the rows, ready to multiply stacked weights.
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
        """Hidden rows are the targets' own."""
        return x

    def input_linear(self, weight: Tensor) -> Tensor:
        """The features of the rows times each client's weights: [S, num_features, out] -> [R, out]."""
        return times(self.features, weight, self.row_ptr)

    def row_linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """Each client's rows times its weights: [R, in] x [S, in, out] -> [R, out]."""
        return stacked_linear(x, weight, self.row_ptr)

    def row_bias(self, x: Tensor, bias: Tensor) -> Tensor:
        """Adds each client's bias [S, out] to its rows [R, out]."""
        return stacked_bias(x, bias, self.row_ptr)

    def gather(self, x: Tensor) -> Tensor:
        """What each target reads: [R, width] -> [T, k, width]; the gradient sums the copies of a row."""
        # With 64-bit indices as fast as a sparse operator, which every batch would have to make: see benchmarks.
        return x.index_select(0, self.positions.flatten()).view(*self.positions.shape, -1)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """What each client's targets have times its weights: [T, ..., in] x [S, in, out] -> [T, ..., out]."""
        rows, ptr = self.by_client(x)
        return stacked_linear(rows, weight, ptr).view(*x.shape[:-1], -1)

    def bias(self, x: Tensor, bias: Tensor) -> Tensor:
        """Adds each client's bias [S, out] to what its targets have, [T, ..., out]."""
        rows, ptr = self.by_client(x)
        return stacked_bias(rows, bias, ptr).view(x.shape)

    def by_client(self, x: Tensor) -> tuple[Tensor, list[int]]:
        """[T, ..., width] as a matrix [T * ..., width], and the boundaries of its rows by client."""
        copies = x.shape[1:-1].numel()
        return x.flatten(0, -2), [copies * boundary for boundary in self.target_ptr]


def sample_batch(
    federation: Federation,
    clients: np.ndarray,
    targets: np.ndarray,
    drawn: np.ndarray,
    device: torch.device | str = "cpu",
) -> SampleBatch:
    """A batch of targets and what a sampler drew for them.

    Args:
        federation: the client graphs.
        clients: [S] ascending ids, each with a target.
        targets: [T] ascending positions in the federation.
        drawn: [T, k] positions in the federation of what each target reads.
        device: where the batch's tensors live.
    """
    read = np.zeros(len(federation.labels), dtype=bool)
    read[drawn] = True
    rows = np.flatnonzero(read)
    place = np.empty(len(read), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    row_ptr, target_ptr = (_boundaries(federation, clients, found) for found in (rows, targets))

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
        positions=tensor(place[drawn]),
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
    """All nodes of some clients in their order, but for rows that a method added; every call draws the same.

    Args:
        federation: whose nodes are predicted.
        sampler: of its adjacency.
        clients: ascending ids.
        seed: of the cell.
        device: where batches live.
        whole: whether a client's nodes must be in one batch.
    """
    original = np.arange(len(federation.labels)) if federation.original is None else federation.original
    targets = original[np.isin(federation.client_of[original], clients)]
    client_of = federation.client_of[targets]
    clients = np.unique(client_of)
    streams = [numpy_stream(seed, "sampling", "evaluation", client) for client in clients.tolist()]
    bounds = _boundaries(federation, clients, targets)
    drawn = sampler.draw(targets, bounds, streams)
    for first, last in pairwise(bounds if whole else [*range(0, len(targets), _EVALUATED_AT_ONCE), len(targets)]):
        some = slice(first, last)
        yield sample_batch(federation, np.unique(client_of[some]), targets[some], drawn[some], device)


class Samples:
    """Batches of samples; see `Minibatches` for their targets.

    Args:
        sampler: makes one of an adjacency.
        batch_size: training targets of a client in a step; None for all of them.
        seed: of the cell.
        clients: of the federation.
        device: where batches live.
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
        """Goes on with other graphs of the same clients, or other targets."""
        self._federation, self._sampler = federation, self._make(federation.adjacency)
        self._minibatches.use(objective.targets, federation.ptr)
        self._everyone = np.flatnonzero(objective.counts)
        self._stays = self._whole and self._sampler.settings.redraw == "never"
        self._last: SampleBatch | None = None
        self._once: _Drawn | None = None

    def build(self, clients: np.ndarray) -> None:
        """Makes the batch of some clients ahead of the first round, where it is one that stays."""
        if self._stays:
            list(self.epoch(clients))

    def epoch(self, clients: np.ndarray) -> Iterator[SampleBatch]:
        """The batches of one local epoch, a step each.

        Args:
            clients: ascending ids, each with training targets.
        """
        if self._last is not None and np.array_equal(self._last.clients, clients):
            yield self._last
            return
        self._last = None  # its memory serves the next one
        known = self._known(clients)
        for present, targets in self._minibatches.epoch(clients):
            drawn = self._draw(present, targets) if known is None else known.of(targets)
            batch = sample_batch(self._federation, present, targets, drawn, self._device)
            if self._stays:
                self._last = batch
            yield batch

    def _known(self, clients: np.ndarray) -> "_Drawn | None":
        """What is drawn before the first step, as the sampler's settings say: for all clients once, or for these."""
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
    """Targets [T], ascending, and what was drawn for them, [T, k]."""

    targets: np.ndarray
    positions: np.ndarray

    def of(self, some: np.ndarray) -> np.ndarray:
        return self.positions[np.searchsorted(self.targets, some)]


def _boundaries(federation: Federation, clients: np.ndarray, positions: np.ndarray) -> list[int]:
    """[S + 1], where in ascending positions those of each of some clients begin; all are of these clients."""
    return [*np.searchsorted(positions, federation.ptr[clients]).tolist(), len(positions)]
