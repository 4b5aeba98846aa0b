"""Client graphs from which nodes are hidden, and client graphs to which neighbours are added (FedSage+)."""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from fglbench.federation.adjacency import DENSE_PER_SPARSE, adjacency_of, normalised
from fglbench.federation.federation import Federation
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
        ahead: whether dense features, given or mostly generated, are to be propagated here, once.

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
    order = np.argsort(np.concatenate([given, added]))
    own = federation.features
    if isinstance(own, np.ndarray):
        block = np.zeros((len(added), own.shape[1]), dtype=np.float32) if features is None else features
        stacked: np.ndarray | sp.csr_matrix = np.concatenate([own, block])[order]
    else:
        block = sp.csr_matrix((len(added), own.shape[1]), dtype=np.float32) if features is None else features
        if isinstance(block, np.ndarray) and DENSE_PER_SPARSE * block.size > size * own.shape[1]:
            stacked = np.concatenate([own.toarray(), block])[order]
        else:
            stacked = sp.vstack([own, sp.csr_matrix(block)], format="csr")[order]
    hops = (operator @ stacked)[np.newaxis] if ahead and isinstance(stacked, np.ndarray) else None
    mended = replace(
        federation,
        ptr=federation.ptr + before,
        labels=np.concatenate([federation.labels, np.full(len(added), -1)])[order],
        role=np.concatenate([federation.role, np.zeros(len(added), dtype=np.int8)])[order],
        operator=operator,
        features=stacked,
        propagated=0 if hops is None else 1,
        hop_features=hops,
        nodes=None,
        given=given,
    )
    return mended, added


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
