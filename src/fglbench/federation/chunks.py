"""How many clients to train at once under a memory limit."""

import numpy as np

from fglbench.federation.federation import Federation
from fglbench.federation.partly_dense import PartlyDense
from fglbench.federation.propagation import Features
from fglbench.settings import Propagation

_COPIES_OF_ROWS = 8  # activations, their gradients, dropout bits and masks of a layer
_OPERATORS = 2  # one that reaches the outputs, one that reaches the rows below; each with its transpose
_COPIES_OF_PARAMETERS = 3  # gradients, and the update's temporaries


def clients_at_once(
    federation: Federation,
    request: Propagation,
    width: int,
    parameter_bytes: int,
    memory_mb: int | None,
    edge_values: int = 0,
    added_rows: int = 0,
) -> int | None:
    """The largest number of clients whose working memory fits, at least one; None (all) without a limit.

    The working memory of a client is estimated from its rows, the widest layer, its features, operators and parameters;
    the graph and the stacked parameters themselves are there in any case and not counted.

    Args:
        federation: the client graphs.
        request: what the backbone reads of them.
        width: columns of the widest layer, hops that are kept beside each other counted together.
        parameter_bytes: of one client's parameters.
        memory_mb: limit in MiB.
        edge_values: numbers that a step keeps for every edge.
        added_rows: rows with dense features that a method adds for each row, each with one edge to it.
    """
    if memory_mb is None:
        return None
    given = np.diff(federation.ptr)
    added = added_rows * given
    rows = given + added
    made = federation.propagated(request)
    features = sum(_feature_bytes(matrix, federation.ptr, added_rows) for matrix in made.features)
    edges = np.diff(made.operator.indptr[federation.ptr]) + 2 * added  # both directions
    each = (
        features
        + (_OPERATORS * 16 + 4 * edge_values) * edges
        + 4 * rows * width * _COPIES_OF_ROWS
        + parameter_bytes * _COPIES_OF_PARAMETERS
    )
    largest_first = np.cumsum(np.sort(each)[::-1])
    return max(1, int(np.searchsorted(largest_first, memory_mb * 2**20, side="right")))


def _feature_bytes(features: Features, ptr: np.ndarray, added_rows: int) -> np.ndarray:
    """[C] bytes of each client's rows of a matrix, and of those that a method adds."""
    given, columns = np.diff(ptr), features.shape[1]
    if isinstance(features, np.ndarray):
        return 4 * given * (1 + added_rows) * columns
    sparse = features.sparse if isinstance(features, PartlyDense) else features
    entries = 16 * np.diff(sparse.indptr[ptr])  # values and 32-bit indices, and the transposed copy
    if isinstance(features, PartlyDense):
        return entries + 4 * np.diff(np.searchsorted(features.places, ptr)) * columns
    if added_rows:  # which are dense; propagated, they are copies of the given ones, and these dense
        return (entries + 4 * given * columns) * (1 + added_rows)
    return entries
