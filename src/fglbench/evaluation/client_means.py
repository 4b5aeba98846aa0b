"""Means over clients, of scores in the history of training and of scores of stored predictions."""

import math
from collections.abc import Sequence
from typing import NotRequired

import numpy as np
from typing_extensions import TypedDict  # pydantic needs this one in Python 3.11


class ClientMeans(TypedDict):
    """The values of one metric.

    A value is None if no target was scored, or if the metric is not defined on the targets.

    Attributes:
        pooled: over the scored targets of all clients, counted together.
        macro: plain mean over the clients with scored targets.
        clients: of each client.
        evaluated: number of clients with scored targets.
        of: number of clients.
        nodes: number of scored targets.
        node_mean: over nodes that count once each, in equal parts at the clients that hold them; only if clients share
            nodes.
        weighted: mean with the clients' weights at the server; only if the mean over clients is "weighted".
    """

    pooled: float | None
    macro: float | None
    clients: list[float | None]
    evaluated: int
    of: int
    nodes: int
    node_mean: NotRequired[float | None]
    weighted: NotRequired[float | None]


def mean_of(sums: np.ndarray, sizes: np.ndarray, mean: str) -> np.ndarray:
    """Compute the mean over clients of a score that is itself a mean over targets.

    Args:
        sums: [..., C] sum of the score over the targets of each client.
        sizes: [C] number of these targets.
        mean: "macro" for the plain mean over the clients that have targets; any other value weighs all targets equally.

    Returns:
        [...] float64; nan if no client has targets.
    """
    present = sizes > 0
    if not present.any():
        return np.full(sums.shape[:-1], np.nan)
    if mean == "macro":
        return (sums[..., present] / sizes[present]).mean(-1)
    return sums.sum(-1) / sizes.sum()


def each_of(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Compute the mean score of each client.

    Args:
        sums: [C] sum of the score over the targets of each client.
        sizes: [C] number of these targets.

    Returns:
        [C] float64; nan for clients without targets.
    """
    return np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan)


def means(pooled: float | None, per_client: list[float | None], nodes: int) -> ClientMeans:
    """Compute the means of one metric.

    Args:
        pooled: the value over all scored targets; None if there is no value.
        per_client: one value for each client; None: the client has no value, for example no scored target.
        nodes: number of scored targets.

    Returns:
        The means without `node_mean` and `weighted`.
    """
    # fsum rounds once, so the mean does not depend on the order of summation.
    present = [value for value in per_client if value is not None]
    return {
        "pooled": pooled,
        "macro": math.fsum(present) / len(present) if present else None,
        "clients": list(per_client),
        "evaluated": len(present),
        "of": len(per_client),
        "nodes": nodes,
    }


def value_of(entry: ClientMeans, mean: str) -> float | None:
    """Return the value of a metric by a mean over clients.

    Args:
        entry: of one metric.
        mean: "pooled", "macro", "nodes", or "weighted". "nodes" reads `node_mean`, or `pooled` if no node is shared.

    Returns:
        The value; None if no target was scored, or if the metric lacks this mean.

    Raises:
        ValueError: `mean` is unknown.
    """
    match mean:
        case "pooled":
            return entry["pooled"]
        case "macro":
            return entry["macro"]
        case "nodes":
            return entry.get("node_mean", entry["pooled"])
        case "weighted":
            return entry.get("weighted")
    raise ValueError(f"'{mean}' is not a mean over clients; expected 'pooled', 'macro', 'nodes' or 'weighted'")


def weighted_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Compute the weighted mean over the clients that have a value.

    Args:
        values: one for each client; None: the client has none.
        weights: one for each client.

    Returns:
        The mean; None if the weights of these clients sum to 0.
    """
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    total = math.fsum(weight for _, weight in pairs)
    return math.fsum(value * weight for value, weight in pairs) / total if total else None


def shares(nodes: np.ndarray) -> np.ndarray | None:
    """Compute the weight of each row, so that every node counts once in a mean over rows.

    Args:
        nodes: [N] global ids of all rows of all clients.

    Returns:
        [N] float64, 1 / the number of clients that hold the row's node; None if no node is shared.
    """
    _, node, times = np.unique(nodes, return_inverse=True, return_counts=True)
    return 1.0 / times[node] if len(times) < len(nodes) else None
