"""Search for the nearest feature row in each of several groups. FedSage+ pulls generated neighbours towards them."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fglbench.federation.features import dense_rows
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator

_BLOCK = {"cpu": 2**18, "cuda": 2**26}  # distances held at once: they fit a core's cache; 256 MB on a GPU
_FEWEST = 64  # least vectors in a block, because the sparse product is slow with fewer


class Candidates:
    """Groups of feature rows in which to look up the nearest row to a vector.

    Args:
        features: [rows, num_features] float32, dense or CSR.
        ptr: boundaries of the groups, none of which is empty.
        device: where the products are computed.
    """

    def __init__(
        self, features: np.ndarray | sp.csr_matrix, ptr: Sequence[int] | np.ndarray, device: torch.device | str
    ):
        self._groups: list[tuple[int, SparseOperator | Tensor, Tensor]] = []  # first row, rows, half of their squares
        self._block = _BLOCK[torch.device(device).type]
        for start, stop in pairwise(ptr):
            block_features = features[start:stop]
            if isinstance(block_features, np.ndarray):
                rows: SparseOperator | Tensor = torch.from_numpy(block_features).to(device)
                squares = np.square(block_features).sum(1, keepdims=True)
            else:
                rows = SparseOperator(block_features, device)
                squares = block_features.multiply(block_features).sum(1)
            half = torch.from_numpy(np.asarray(squares, dtype=np.float32) / 2).to(device)
            self._groups.append((int(start), rows, half))

    def nearest(self, vectors: Tensor, allowed: Tensor | None = None, without: int | None = None) -> np.ndarray:
        """Return the row of each group that has the least squared distance to each vector.

        Args:
            vectors: [M, num_features] float32.
            allowed: [M, rows] bool, the rows that each vector may match, for a single group; None allows all.
            without: number of a group to leave out; None: none.

        Returns:
            [M, groups] int64 rows of the features.
        """
        groups = [group for number, group in enumerate(self._groups) if number != without]
        nearest = np.empty((len(vectors), len(groups)), dtype=np.int64)
        size = max(_FEWEST, self._block // max(len(half) for _, _, half in groups))
        for first in range(0, len(vectors), size):
            block = slice(first, first + size)
            columns = vectors[block].T.contiguous()
            for number, (start, rows, half) in enumerate(groups):
                # Half the squared distance, less a term of the vector alone that does not change the nearest row.
                distance = half - rows @ columns
                if allowed is not None:
                    distance = distance.masked_fill(~allowed[block].T, torch.inf)
                nearest[block, number] = start + distance.argmin(0).cpu().numpy()
        return nearest


def others_mean(everyone: Candidates, federation: Federation, vectors: Tensor, clients: np.ndarray) -> Tensor:
    """Return, for each vector, the mean over all other clients of the features of their closest node.

    The mean of the squared distances to these nodes has the same gradient as the squared distance to their mean.

    Args:
        everyone: the features of all clients that have nodes, one group for each client.
        federation: all clients; at least two have nodes.
        vectors: [M, num_features] float32.
        clients: [M] int64 ascending, the client of each vector.

    Returns:
        [M, num_features] float32.
    """
    present = np.flatnonzero(np.diff(federation.ptr))
    chosen = [np.empty(0, dtype=np.int64)]
    for client in np.unique(clients):
        start, stop = np.searchsorted(clients, [client, client + 1])
        position = int(np.searchsorted(present, client))
        chosen.append(everyone.nearest(vectors[start:stop], without=position).ravel())
    others = len(present) - 1
    indptr = np.arange(len(clients) + 1) * others
    shares = np.full(indptr[-1], 1.0 / others, dtype=np.float32)
    pick = sp.csr_matrix((shares, np.concatenate(chosen), indptr), shape=(len(clients), len(federation.labels)))
    return dense_rows(pick @ federation.features, vectors.device)
