"""Scores of predicted classes, per client and over all clients.

Only requested nodes with a label (>= 0) are scored. A client without such nodes has no score (None) and enters no mean;
every mean is stored with the number of clients that enter it. No value is ever NaN.
"""

import math

import numpy as np

from fglbench.evaluation.client_means import ClientMeans, means


def scores(
    predicted: np.ndarray, labels: np.ndarray, ptr: np.ndarray, tested: np.ndarray, share: np.ndarray | None = None
) -> dict[str, ClientMeans]:
    """Compute accuracy, micro F1 and macro F1 of one set of nodes.

    One class per node is predicted, so micro F1 equals accuracy. Macro F1 is the plain mean of the F1 of every class
    that occurs among the labels or the predictions of the scored nodes of that client (for `pooled`: of all clients
    together), with F1 = 2 TP / (2 TP + FP + FN). It equals `sklearn.metrics.f1_score(average="macro", zero_division=0)`
    without `labels`. All clients are counted in one pass, which scikit-learn does not support.

    Args:
        predicted: [N] integer class of every client node, clients one after another.
        labels: [N] integer class; -1 for a node without a label.
        ptr: [C + 1] integer; rows `ptr[c]:ptr[c + 1]` belong to client c.
        tested: [N] bool, the nodes to score.
        share: [N] float64, as `shares` returns it; None if clients share no nodes.

    Returns:
        The means of each metric as fractions from 0 to 1. In `pooled` and `nodes`, a shared node counts once for each
        client that holds it; `node_mean` is included if `share` is given.
    """
    clients = len(ptr) - 1
    scored = np.asarray(tested, dtype=bool) & (labels >= 0)
    owner = np.repeat(np.arange(clients), np.diff(ptr))[scored]
    classes, codes = np.unique(np.stack([labels[scored], predicted[scored]]), return_inverse=True)
    actual, guessed = codes.reshape(2, -1)

    def count(rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Count how often each client has each class: [C, classes] int64."""
        flat = np.bincount(rows * len(classes) + codes, minlength=clients * len(classes))
        return flat.reshape(clients, len(classes))

    right = actual == guessed
    hits, true = count(owner[right], actual[right]), count(owner, actual)
    predictions = count(owner, guessed)
    nodes = true.sum(axis=1)
    accuracy = [_ratio(int(h), int(n)) for h, n in zip(hits.sum(axis=1), nodes, strict=True)]
    f1 = [_macro_f1(*rows) if n else None for *rows, n in zip(hits, true, predictions, nodes, strict=True)]
    total = int(nodes.sum())
    pooled_accuracy = _ratio(int(hits.sum()), total)
    pooled_f1 = _macro_f1(hits.sum(axis=0), true.sum(axis=0), predictions.sum(axis=0)) if total else None
    by_accuracy, by_f1 = means(pooled_accuracy, accuracy, total), means(pooled_f1, f1, total)
    if share is not None:
        part = share[scored]
        weighed = (
            np.bincount(c, w, len(classes)) for c, w in ((actual[right], part[right]), (actual, part), (guessed, part))
        )
        by_accuracy["node_mean"] = math.fsum(part[right]) / math.fsum(part) if total else None
        by_f1["node_mean"] = _macro_f1(*weighed) if total else None
    return {"accuracy": by_accuracy, "f1_micro": by_accuracy.copy(), "f1_macro": by_f1}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _macro_f1(hits: np.ndarray, true: np.ndarray, predictions: np.ndarray) -> float:
    present = (true + predictions) > 0
    f1 = 2 * hits[present] / (true[present] + predictions[present])
    return math.fsum(f1.tolist()) / len(f1)
