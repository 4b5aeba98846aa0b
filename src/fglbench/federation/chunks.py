"""How many clients to train at once under a memory limit."""

import numpy as np

from fglbench.federation.federation import Federation

_COPIES_OF_ROWS = 8  # activations, their gradients, dropout bits and masks of a layer
_OPERATORS = 2  # one that reaches the outputs, one that reaches the rows below; each with its transpose
_COPIES_OF_PARAMETERS = 3  # gradients, and the update's temporaries


def clients_at_once(
    federation: Federation,
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
    columns = federation.features.shape[1]
    if isinstance(federation.features, np.ndarray):
        hops = 1 if federation.hop_features is None else 1 + len(federation.hop_features)
        features = 4 * rows * columns * hops
    else:
        entries = np.diff(federation.features.indptr[federation.ptr])
        features = 16 * (entries + added * columns)  # values and 32-bit indices, and the transposed copy
        if added_rows:
            features = np.minimum(features, 2 * 4 * rows * columns)  # dense and propagated where that is less
    edges = np.diff(federation.operator.indptr[federation.ptr]) + 2 * added  # both directions
    each = (
        features
        + (_OPERATORS * 16 + 4 * edge_values) * edges
        + 4 * rows * width * _COPIES_OF_ROWS
        + parameter_bytes * _COPIES_OF_PARAMETERS
    )
    largest_first = np.cumsum(np.sort(each)[::-1])
    return max(1, int(np.searchsorted(largest_first, memory_mb * 2**20, side="right")))
