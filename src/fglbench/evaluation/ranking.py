"""Scores of real-valued outputs, per client and over all clients: AUC, average precision and loss.

The counting of clients is that of `metrics.scores`: a client without a value enters no mean, and nothing is ever NaN.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import log_softmax

from fglbench.evaluation.metrics import means


def ranking_scores(
    outputs: np.ndarray, labels: np.ndarray, ptr: np.ndarray, tested: np.ndarray, share: np.ndarray | None = None
) -> dict[str, dict[str, Any]]:
    """AUC, average precision (AP) and, where there are classes, the mean cross-entropy of one set of nodes or edges.

    With classes, AUC and AP are one against the rest on the softmax of the logits, then the plain mean over the classes
    that occur among the scored labels but are not all of them; without, the scores are of one positive class, as in
    link prediction (FedVGAE, table 2). AP is the sum of precision times the increase of recall (scikit-learn's).

    Args:
        outputs: [N, classes] float32 logits, or [N] scores of the positive class, clients one after another.
        labels: [N] integer class, -1 where there is none; 0 or 1 beside [N] scores.
        ptr: [C + 1] integer; rows `ptr[c]:ptr[c + 1]` belong to client c.
        tested: [N] bool, the rows to score.
        share: [N] float64, see `metrics.scores`; rows are weighed by it for `node_mean`.

    Returns:
        `auc`, `ap` and, for logits, `loss`, each as in `metrics.scores`. None where no class can be ranked.
    """
    scored = np.asarray(tested, dtype=bool) & (labels >= 0)
    rows = [start + np.flatnonzero(scored[start:stop]) for start, stop in pairwise(ptr)]
    everyone = np.flatnonzero(scored)
    logs = log_softmax(outputs.astype(np.float64), axis=1) if outputs.ndim == 2 else None
    ranked = outputs.reshape(-1, 1) if logs is None else np.exp(logs)

    def over(value: Callable[[np.ndarray, np.ndarray | None], float | None]) -> dict[str, Any]:
        entry = means(value(everyone, None), [value(own, None) for own in rows], len(everyone))
        return entry if share is None else entry | {"node_mean": value(everyone, share[everyone])}

    found = {
        "auc": over(lambda own, weights: _auc(ranked[own], labels[own], weights)),
        "ap": over(lambda own, weights: _average_precision(ranked[own], labels[own], weights)),
    }
    if logs is not None:
        found["loss"] = over(lambda own, weights: _loss(logs[own, labels[own]], weights))
    return found


def auc_of_clients(scores: np.ndarray, positive: np.ndarray, client: np.ndarray, clients: int) -> np.ndarray:
    """AUC of each client's rows, all clients at once: the share of pairs of a positive and another row in which the
    positive has the larger score, ties counting half (Mann and Whitney 1947).

    Args:
        scores: [T] real numbers.
        positive: [T] bool.
        client: [T] integer.
        clients: their number C.

    Returns:
        [C] float64, nan where a client lacks rows of either kind or a score is nan.
    """
    order = np.lexsort((scores, client))
    scores, positive, client = scores[order], positive[order], client[order]
    alike = np.cumsum(np.append(True, scores[1:] != scores[:-1])[: len(scores)]) * clients + client
    _, tie, sizes = np.unique(alike, return_inverse=True, return_counts=True)
    rank = (np.cumsum(sizes) - (sizes - 1) / 2)[tie]  # ties have their mean rank, from 1 over all clients
    rows = np.bincount(client, minlength=clients)
    ones = np.bincount(client, positive, minlength=clients)
    sums = np.bincount(client, rank * positive, minlength=clients) - ones * (np.cumsum(rows) - rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (sums - ones * (ones + 1) / 2) / (ones * (rows - ones))
    return np.where(np.bincount(client, np.isnan(scores), minlength=clients) > 0, np.nan, found)


def _loss(log_probabilities: np.ndarray, weights: np.ndarray | None) -> float | None:
    if not len(log_probabilities):
        return None
    return float(-log_probabilities.mean() if weights is None else -np.average(log_probabilities, weights=weights))


def _auc(ranked: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> float | None:
    from sklearn.metrics import roc_auc_score

    return _over_classes(ranked, labels, weights, roc_auc_score)


def _average_precision(ranked: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> float | None:
    from sklearn.metrics import average_precision_score

    return _over_classes(ranked, labels, weights, average_precision_score)


def _over_classes(
    ranked: np.ndarray, labels: np.ndarray, weights: np.ndarray | None, score: Callable[..., float]
) -> float | None:
    """The mean over the classes (columns) that some rows have and some have not; None where there is none."""
    truth = labels.reshape(-1, 1) == (np.arange(ranked.shape[1]) if ranked.shape[1] > 1 else np.ones(1))
    both = truth.any(axis=0) & ~truth.all(axis=0)
    if not both.any():
        return None
    return float(score(truth[:, both], ranked[:, both], average="macro", sample_weight=weights))
