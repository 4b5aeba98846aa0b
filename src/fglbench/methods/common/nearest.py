"""Nearest rows of features, in groups: what the vectors of FedSage+'s generator are drawn to."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglbench.federation.features import dense_rows
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator

_BLOCK = {"cpu": 2**18, "cuda": 2**26}  # distances held at once: what a core's cache holds; 256 MB
_FEWEST = 64  # vectors in a block; with fewer the sparse product is slow


class Candidates:
    """Groups of feature rows, to look up the nearest one of each in.

    Args:
        features: [rows, num_features] dense or CSR.
        ptr: boundaries of the groups, none empty.
        device: where the products run.
    """

    def __init__(
        self, features: np.ndarray | sp.csr_matrix, ptr: Sequence[int] | np.ndarray, device: torch.device | str
    ):
        self._groups: list[tuple[int, SparseOperator | Tensor, Tensor]] = []  # first row, rows, half their squares
        self._block = _BLOCK[torch.device(device).type]
        for start, stop in pairwise(ptr):
            own = features[start:stop]
            if isinstance(own, np.ndarray):
                rows: SparseOperator | Tensor = torch.from_numpy(own).to(device)
                squares = np.square(own).sum(1, keepdims=True)
            else:
                rows = SparseOperator(own, device)
                squares = own.multiply(own).sum(1)
            half = torch.from_numpy(np.asarray(squares, dtype=np.float32) / 2).to(device)
            self._groups.append((int(start), rows, half))

    def nearest(self, vectors: Tensor, allowed: Tensor | None = None, without: int | None = None) -> np.ndarray:
        """[M, groups] int64: the row of each group with the least squared distance to a vector.

        Args:
            vectors: [M, num_features].
            allowed: [M, rows] bool, of a single group; None allows all.
            without: a group to leave out.
        """
        groups = [group for number, group in enumerate(self._groups) if number != without]
        found = np.empty((len(vectors), len(groups)), dtype=np.int64)
        size = max(_FEWEST, self._block // max(len(half) for _, _, half in groups))
        for first in range(0, len(vectors), size):
            block = slice(first, first + size)
            columns = vectors[block].T.contiguous()
            for number, (start, rows, half) in enumerate(groups):
                distance = half - rows @ columns  # less the vectors' own squares, and halved
                if allowed is not None:
                    distance = distance.masked_fill(~allowed[block].T, torch.inf)
                found[block, number] = start + distance.argmin(0).cpu().numpy()
        return found


def others_mean(everyone: Candidates, federation: Federation, vectors: Tensor, clients: np.ndarray) -> Tensor:
    """[M, num_features]: the mean over all other clients of their node closest to each vector.

    The squared distances to these nodes have the same gradient, in the mean, as that to their mean.

    Args:
        everyone: the features of all clients that have nodes, each a group.
        federation: all clients, at least two of them with nodes.
        vectors: [M, num_features].
        clients: [M] whose each vector is, ascending.
    """
    present = np.flatnonzero(np.diff(federation.ptr))
    chosen = [np.empty(0, dtype=np.int64)]
    for client in np.unique(clients):
        start, stop = np.searchsorted(clients, [client, client + 1])
        own = int(np.searchsorted(present, client))
        chosen.append(everyone.nearest(vectors[start:stop], without=own).ravel())
    others = len(present) - 1
    indptr = np.arange(len(clients) + 1) * others
    shares = np.full(indptr[-1], 1.0 / others, dtype=np.float32)
    pick = sp.csr_matrix((shares, np.concatenate(chosen), indptr), shape=(len(clients), len(federation.labels)))
    return dense_rows(pick @ federation.features, vectors.device)
