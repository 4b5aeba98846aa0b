"""Number of clients that are trained at once under a memory limit."""

import numpy as np

from fglbench.federation.federation import Federation
from fglbench.federation.partly_dense import PartlyDense
from fglbench.federation.propagation import Features
from fglbench.settings import Propagation

_COPIES_OF_ROWS = 8  # activations, their gradients, dropout bits and masks of a layer
_OPERATORS = 2  # one to the output rows and one to the rows below them, each with its transpose
_COPIES_OF_PARAMETERS = 3  # gradients, and temporary tensors of the update


def clients_at_once(
    federation: Federation,
    request: Propagation,
    width: int,
    parameter_bytes: int,
    memory_mb: int | None,
    edge_values: int = 0,
    added_rows: int = 0,
    pair_bytes: int = 0,
) -> int | None:
    """Return the largest number of clients whose working memory fits into a limit.

    The working memory of a client is estimated from its rows, the widest layer, its features, operators and parameters.
    The graph and the stacked parameters are not counted, because they are in memory in any case. The clients with the
    largest estimates are added up first, so any chunk of this size fits.

    Args:
        federation: the client graphs.
        request: propagation request of the backbone.
        width: columns of the widest layer, times the number of hops that are kept side by side.
        parameter_bytes: bytes of the parameters of one client.
        memory_mb: limit in MiB; None for no limit.
        edge_values: float32 numbers that a step keeps for every edge.
        added_rows: rows with dense features that a method adds for each row, each connected to it by one edge.
        pair_bytes: bytes that a step keeps for every ordered pair of a client's nodes.

    Returns:
        The number of clients, at least 1; None (all clients) without a limit.
    """
    if memory_mb is None:
        return None
    nodes = np.diff(federation.ptr)
    added = added_rows * nodes
    rows = nodes + added
    propagated = federation.propagated(request)
    features = sum(_feature_bytes(matrix, federation.ptr, added_rows) for matrix in propagated.features)
    edges = np.diff(propagated.operator.indptr[federation.ptr]) + 2 * added  # both directions
    client_bytes = (
        features
        + (_OPERATORS * 16 + 4 * edge_values) * edges
        + 4 * rows * width * _COPIES_OF_ROWS
        + parameter_bytes * _COPIES_OF_PARAMETERS
        + pair_bytes * nodes**2
    )
    largest_first = np.cumsum(np.sort(client_bytes)[::-1])
    return max(1, int(np.searchsorted(largest_first, memory_mb * 2**20, side="right")))


def _feature_bytes(features: Features, ptr: np.ndarray, added_rows: int) -> np.ndarray:
    """Compute the bytes [C] of each client's feature rows, including the rows that a method adds."""
    rows: np.ndarray = np.diff(ptr)
    columns = int(features.shape[1])
    if isinstance(features, np.ndarray):
        return 4 * rows * (1 + added_rows) * columns
    sparse = features.sparse if isinstance(features, PartlyDense) else features
    entries: np.ndarray = 16 * np.diff(sparse.indptr[ptr])  # values and 32-bit indices, twice because of the transpose
    if isinstance(features, PartlyDense):
        dense: np.ndarray = np.diff(np.searchsorted(features.dense_index, ptr))
        return np.asarray(entries + 4 * dense * columns)
    if added_rows:
        # Added rows are dense. Propagation makes them copies of the other rows, and makes these dense.
        return np.asarray((entries + 4 * rows * columns) * (1 + added_rows))
    return entries
