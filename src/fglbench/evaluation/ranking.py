"""Scores of real-valued outputs, per client and over all clients: AUC, average precision and loss.

Clients are counted as in `metrics.scores`: a client without a value enters no mean. No score in an entry is ever NaN.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from scipy.special import log_softmax

from fglbench.evaluation.client_means import ClientMeans, means


def ranking_scores(
    outputs: np.ndarray, labels: np.ndarray, ptr: np.ndarray, tested: np.ndarray, share: np.ndarray | None = None
) -> dict[str, ClientMeans]:
    """Compute AUC, average precision (AP) and, for classes, the mean cross-entropy of one set of nodes or pairs.

    For logits of classes, AUC and AP are computed one class against the rest on the softmax, and averaged over the
    classes that occur among the scored labels, except a class that all of them have. Scores of one positive class, as
    in link prediction (FedVGAE, table 2), are ranked directly. AP is the sum of precision times the increase of recall
    (scikit-learn's).

    Args:
        outputs: [N, classes] float32 logits, or [N] scores of the positive class, clients one after another.
        labels: [N] integer class, -1 for a row without one; 0 or 1 with [N] scores.
        ptr: [C + 1] integer; rows `ptr[c]:ptr[c + 1]` belong to client c.
        tested: [N] bool, the rows to score.
        share: [N] float64 weights of the rows for `node_mean`, see `metrics.scores`; None if clients share no nodes.

    Returns:
        `auc`, `ap` and, for logits, `loss`, each with an entry as in `metrics.scores`; None if no class can be ranked.
    """
    scored = np.asarray(tested, dtype=bool) & (labels >= 0)
    rows = [start + np.flatnonzero(scored[start:stop]) for start, stop in pairwise(ptr)]
    all_rows = np.flatnonzero(scored)
    logs = log_softmax(outputs.astype(np.float64), axis=1) if outputs.ndim == 2 else None
    ranked = outputs.reshape(-1, 1) if logs is None else np.exp(logs)

    def entry_of(value: Callable[[np.ndarray, np.ndarray | None], float | None]) -> ClientMeans:
        entry = means(value(all_rows, None), [value(part, None) for part in rows], len(all_rows))
        if share is not None:
            entry["node_mean"] = value(all_rows, share[all_rows])
        return entry

    entries = {
        "auc": entry_of(lambda part, weights: _auc(ranked[part], labels[part], weights)),
        "ap": entry_of(lambda part, weights: _average_precision(ranked[part], labels[part], weights)),
    }
    if logs is not None:
        entries["loss"] = entry_of(lambda part, weights: _loss(logs[part, labels[part]], weights))
    return entries


def auc_of_clients(scores: np.ndarray, positive: np.ndarray, client: np.ndarray, clients: int) -> np.ndarray:
    """Compute the AUC of each client's rows, all clients at once.

    The AUC is the share of pairs of a positive and a negative row in which the positive row has the larger score; ties
    count half (Mann and Whitney 1947).

    Args:
        scores: [T] real numbers.
        positive: [T] bool.
        client: [T] integer client of each row, from 0.
        clients: number of clients C.

    Returns:
        [C] float64; NaN for a client without positive rows, without negative rows, or with a NaN score.
    """
    order = np.lexsort((scores, client))
    scores, positive, client = scores[order], positive[order], client[order]
    tie_ids = np.cumsum(np.append(True, scores[1:] != scores[:-1])[: len(scores)]) * clients + client
    _, tie, sizes = np.unique(tie_ids, return_inverse=True, return_counts=True)
    rank = (np.cumsum(sizes) - (sizes - 1) / 2)[tie]  # tied rows share a mean rank; from 1 over all clients
    rows = np.bincount(client, minlength=clients)
    ones = np.bincount(client, positive, minlength=clients)
    sums = np.bincount(client, rank * positive, minlength=clients) - ones * (np.cumsum(rows) - rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        auc = (sums - ones * (ones + 1) / 2) / (ones * (rows - ones))
    return np.where(np.bincount(client, np.isnan(scores), minlength=clients) > 0, np.nan, auc)


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
    """Return the mean over the classes (columns) that some rows have and some have not; None if there is none."""
    truth = labels.reshape(-1, 1) == (np.arange(ranked.shape[1]) if ranked.shape[1] > 1 else np.ones(1))
    both = truth.any(axis=0) & ~truth.all(axis=0)
    if not both.any():
        return None
    return float(score(truth[:, both], ranked[:, both], average="macro", sample_weight=weights))
