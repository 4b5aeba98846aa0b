"""Client graphs from which nodes are hidden, and client graphs to which neighbours are added (FedSage+)."""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from fglbench.federation.adjacency import adjacency_of, normalised
from fglbench.federation.federation import Features, Federation
from fglbench.federation.partly_dense import PartlyDense
from fglbench.seeding import numpy_stream


@dataclass(frozen=True)
class Impaired:
    """Client graphs without their hidden nodes.

    Attributes:
        federation: the n nodes that stay, with nothing propagated.
        lost: [n, N] float32 CSR, ones for the hidden neighbours of each; columns are rows of the whole federation.
    """

    federation: Federation
    lost: sp.csr_matrix

    @property
    def missing(self) -> np.ndarray:
        """[n] int64: hidden neighbours of each node that stays."""
        return np.diff(self.lost.indptr).astype(np.int64)


def some_clients(federation: Federation, clients: np.ndarray) -> Federation:
    """The graphs of some clients by themselves, with nothing propagated."""
    rows = np.concatenate([np.arange(*federation.ptr[client : client + 2]) for client in clients])
    ptr = np.concatenate([[0], np.cumsum(np.diff(federation.ptr)[clients])])
    return _chosen(federation, rows, ptr, federation.operator[rows][:, rows])


def impair(federation: Federation, share: float, seed: int, clients: np.ndarray) -> Impaired:
    """Hides that share of every client's nodes, rounded down, but never all of them.

    Args:
        federation: of these clients.
        share: in [0, 1].
        seed, clients: of the cell, and the clients' ids; every client draws from a stream of its own.
    """
    hidden = np.zeros(len(federation.labels), dtype=bool)
    for client, start, stop in zip(clients, federation.ptr, federation.ptr[1:], strict=False):
        count = max(0, min(int(share * (stop - start)), stop - start - 1))
        chosen = numpy_stream(seed, "fedsage+ hidden", int(client)).choice(stop - start, count, replace=False)
        hidden[start + chosen] = True
    adjacency = adjacency_of(federation.operator)
    kept = np.flatnonzero(~hidden)
    ptr = np.searchsorted(kept, federation.ptr)
    operator = normalised(adjacency[kept][:, kept], 0.0, self_loops=False)
    lost = (adjacency[kept] @ sp.diags(hidden.astype(np.float32), format="csr")).tocsr()
    lost.eliminate_zeros()
    return Impaired(_chosen(federation, kept, ptr, operator), lost)


def mend(
    federation: Federation, owners: np.ndarray, features: np.ndarray | None, *, ahead: bool = False
) -> tuple[Federation, np.ndarray]:
    """Adds neighbours, each with one edge to its owner; a client's are placed behind its own nodes.

    Args:
        federation: with the mean over neighbours as operator.
        owners: [G] rows of the federation, those of a client beside each other and the clients in their order.
        features: [G, num_features] float32; None leaves the added rows zero.
        ahead: whether features that are dense, or some of them, are to be propagated here, once.

    Returns:
        The mended federation, whose added rows have neither label nor role and are not `given` (and whose `evaluated`
        is as it was); their positions [G].
    """
    client = np.searchsorted(federation.ptr, owners, side="right") - 1
    before = np.concatenate([[0], np.cumsum(np.bincount(client, minlength=federation.num_clients))])
    given = np.arange(len(federation.labels)) + before[federation.client_of]
    added = np.arange(len(owners)) + federation.ptr[client + 1]
    size = len(given) + len(added)
    edges = adjacency_of(federation.operator).tocoo()
    rows = np.concatenate([given[edges.row], given[owners], added])
    columns = np.concatenate([given[edges.col], added, given[owners]])
    ones = np.ones(len(rows), dtype=np.float32)
    operator = normalised(sp.csr_matrix((ones, (rows, columns)), shape=(size, size)), 0.0, self_loops=False)
    labels, role = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int8)
    labels[given], role[given] = federation.labels, federation.role
    x: Features = _spread(federation.features, given, size)
    if isinstance(x, np.ndarray) and features is not None:
        x[added] = features
    elif not isinstance(x, np.ndarray) and features is not None and len(features):
        x = PartlyDense(x, features, added)
    hops: list[Features] | None = None
    if ahead and isinstance(x, PartlyDense):
        hops = [x.propagated(operator)]
    elif ahead and isinstance(x, np.ndarray):
        hops = [operator @ x]
    mended = replace(
        federation,
        ptr=federation.ptr + before,
        labels=labels,
        role=role,
        operator=operator,
        features=x,
        propagated=0 if hops is None else 1,
        hop_features=hops,
        nodes=None,
        given=given,
    )
    return mended, added


def _spread(features: np.ndarray | sp.csr_matrix, rows: np.ndarray, size: int) -> np.ndarray | sp.csr_matrix:
    """[size, num_features] with the features in these ascending rows, and zeros in the others."""
    if isinstance(features, np.ndarray):
        spread = np.zeros((size, features.shape[1]), dtype=np.float32)
        spread[rows] = features
        return spread
    entries = np.zeros(size + 1, dtype=features.indptr.dtype)
    entries[rows + 1] = np.diff(features.indptr)
    return sp.csr_matrix((features.data, features.indices, np.cumsum(entries)), shape=(size, features.shape[1]))


def _chosen(federation: Federation, rows: np.ndarray, ptr: np.ndarray, operator: sp.csr_matrix) -> Federation:
    return Federation(
        ptr=ptr,
        labels=federation.labels[rows],
        role=federation.role[rows],
        classes=federation.classes,
        operator=operator,
        features=federation.features[rows],
        combine="each",
    )
