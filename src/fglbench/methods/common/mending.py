"""Client graphs with hidden nodes, and client graphs with added neighbours (FedSage+)."""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from fglbench.federation.federation import Federation
from fglbench.federation.partly_dense import PartlyDense
from fglbench.federation.propagation import Features, Propagated
from fglbench.seeding import numpy_stream
from fglbench.settings import Propagation

MEAN = Propagation(r=0.0, self_loops=False, hops=1, combine="each")
"""The mean over neighbours, which GraphSAGE needs."""


@dataclass(frozen=True)
class Impaired:
    """Client graphs without their hidden nodes.

    Attributes:
        federation: the impaired graphs, of the n nodes that stay.
        lost: [n, N] float32 CSR, with an entry for each hidden neighbour of each node; columns are rows of the whole
            federation.
    """

    federation: Federation
    lost: sp.csr_matrix

    @property
    def missing(self) -> np.ndarray:
        """[n] int64 number of hidden neighbours of each node that stays."""
        return np.diff(self.lost.indptr).astype(np.int64)


def some_clients(federation: Federation, clients: np.ndarray) -> Federation:
    """Return the graphs of some clients.

    Args:
        federation: of all clients.
        clients: [S] int64 ids.

    Returns:
        A federation of these clients, in this order.
    """
    ptr = np.concatenate([[0], np.cumsum(np.diff(federation.ptr)[clients])])
    return _chosen(federation, federation.rows_of(clients), ptr)


def impair(federation: Federation, share: float, seed: int, clients: np.ndarray) -> Impaired:
    """Hide a share of every client's nodes, rounded down, but never all of them.

    Args:
        federation: the graphs of these clients.
        share: in [0, 1].
        seed: of the cell.
        clients: [S] int64 ids; every client draws from its own random stream.

    Returns:
        The graphs of the nodes that stay, and their hidden neighbours.
    """
    hidden = np.zeros(len(federation.labels), dtype=bool)
    for client, start, stop in zip(clients, federation.ptr, federation.ptr[1:], strict=False):
        count = max(0, min(int(share * (stop - start)), stop - start - 1))
        chosen = numpy_stream(seed, "fedsage+ hidden", int(client)).choice(stop - start, count, replace=False)
        hidden[start + chosen] = True
    kept = np.flatnonzero(~hidden)
    ptr = np.searchsorted(kept, federation.ptr)
    lost = (federation.adjacency[kept] @ sp.diags(hidden.astype(np.float32), format="csr")).tocsr()
    lost.eliminate_zeros()
    return Impaired(_chosen(federation, kept, ptr), lost)


def mend(
    federation: Federation, owners: np.ndarray, features: np.ndarray | None, *, ahead: bool = False
) -> tuple[Federation, np.ndarray]:
    """Add neighbours to client graphs, each with one edge to its owner.

    The neighbours that a client gets follow its own nodes.

    Args:
        federation: the graphs to add to.
        owners: [G] int64 row of each neighbour's owner, client by client.
        features: [G, num_features] float32; None leaves the added rows zero.
        ahead: whether to propagate the features here, once, if they are dense or partly dense.

    Returns:
        The mended federation and the positions [G] int64 of the added rows. These rows have no label and no role, and
        are not among `original`. `evaluated` is unchanged.
    """
    client = np.searchsorted(federation.ptr, owners, side="right") - 1
    before = np.concatenate([[0], np.cumsum(np.bincount(client, minlength=federation.num_clients))])
    original = np.arange(len(federation.labels)) + before[federation.client_of]
    added = np.arange(len(owners)) + federation.ptr[client + 1]
    size = len(original) + len(added)
    edges = federation.adjacency.tocoo()
    rows = np.concatenate([original[edges.row], original[owners], added])
    columns = np.concatenate([original[edges.col], added, original[owners]])
    ones = np.ones(len(rows), dtype=np.float32)
    adjacency = sp.csr_matrix((ones, (rows, columns)), shape=(size, size))
    labels, role = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int8)
    labels[original], role[original] = federation.labels, federation.role
    x: Features = _spread(federation.features, original, size)
    if isinstance(x, np.ndarray) and features is not None:
        x[added] = features
    elif not isinstance(x, np.ndarray) and features is not None and len(features):
        x = PartlyDense(x, features, added)
    mended = replace(
        federation,
        ptr=federation.ptr + before,
        labels=labels,
        role=role,
        adjacency=adjacency,
        x=x,
        precomputed={},
        nodes=None,
        copy=None,
        original=original,
    )
    if ahead and not sp.issparse(x):
        operator = mended.propagated(MEAN).operator
        hop = x.propagated(operator) if isinstance(x, PartlyDense) else operator @ x
        mended = replace(mended, precomputed={MEAN: Propagated(operator, [x, hop], 1)})
    return mended, added


def _spread(features: np.ndarray | sp.csr_matrix, rows: np.ndarray, size: int) -> np.ndarray | sp.csr_matrix:
    """Return [size, num_features] with the features in these ascending rows, and zeros in the others."""
    if isinstance(features, np.ndarray):
        spread = np.zeros((size, features.shape[1]), dtype=np.float32)
        spread[rows] = features
        return spread
    entries = np.zeros(size + 1, dtype=features.indptr.dtype)
    entries[rows + 1] = np.diff(features.indptr)
    return sp.csr_matrix((features.data, features.indices, np.cumsum(entries)), shape=(size, features.shape[1]))


def _chosen(federation: Federation, rows: np.ndarray, ptr: np.ndarray) -> Federation:
    return Federation(
        ptr=ptr,
        labels=federation.labels[rows],
        role=federation.role[rows],
        classes=federation.classes,
        adjacency=federation.adjacency[rows][:, rows],
        x=federation.features[rows],
    )
