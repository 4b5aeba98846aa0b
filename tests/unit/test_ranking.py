"""AUC, average precision and loss against values worked out by hand and against scikit-learn."""

import math
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from fglbench.evaluation.ranking import auc_of_clients, ranking_scores

PTR = np.array([0, 4, 7])
ALL = np.ones(7, dtype=bool)


def test_one_score_an_edge_as_worked_out_by_hand():
    """Client 0: positives at 0.9 and 0.4, negatives at 0.6 and 0.1: 3 of 4 pairs in order; precision 1 at recall 1/2,
    2/3 at recall 1. Client 1: the positive is below both negatives."""
    found = ranking_scores(np.array([0.9, 0.6, 0.4, 0.1, 0.2, 0.3, 0.5]), np.array([1, 0, 1, 0, 1, 0, 0]), PTR, ALL)
    assert set(found) == {"auc", "ap"}
    assert found["auc"]["clients"] == [0.75, 0.0]
    assert found["auc"]["macro"] == 0.375
    assert found["ap"]["clients"] == [pytest.approx(0.5 * 1 + 0.5 * 2 / 3), pytest.approx(1 / 3)]
    # Together: 0.9 is above all four negatives, 0.4 above two, 0.2 above one.
    assert found["auc"]["pooled"] == pytest.approx(7 / 12)
    assert (found["auc"]["evaluated"], found["auc"]["of"], found["auc"]["nodes"]) == (2, 2, 7)


def test_clients_without_a_ranking_have_no_value_and_enter_no_mean():
    labels = np.array([1, 1, 1, 1, 0, 1, -1])
    tested = np.array([1, 1, 1, 1, 1, 1, 1], dtype=bool)
    found = ranking_scores(np.linspace(0, 1, 7), labels, PTR, tested)["auc"]
    assert found["clients"] == [None, 1.0]
    assert (found["macro"], found["evaluated"], found["nodes"]) == (1.0, 1, 6)
    nobody = ranking_scores(np.zeros((7, 3)), np.zeros(7, dtype=int), PTR, np.zeros(7, dtype=bool))
    assert all(entry["pooled"] is entry["macro"] is None for entry in nobody.values())
    assert nobody["loss"]["clients"] == [None, None]


def test_equal_scores_are_worth_a_half():
    assert ranking_scores(np.zeros(7), np.array([1, 0, 1, 0, 1, 0, 0]), PTR, ALL)["auc"]["pooled"] == 0.5


@pytest.mark.parametrize("seed", range(5))
def test_classes_agree_with_scikit_learn(seed):
    stream = np.random.default_rng(seed)
    classes, ptr = 4, np.array([0, 60, 100, 180])
    labels, logits = stream.integers(0, classes, 180), stream.normal(size=(180, classes)).round(1)
    logits[np.arange(180), labels] += 1
    tested = stream.random(180) < 0.8
    found = ranking_scores(logits.astype(np.float32), labels, ptr, tested)
    exponentials = np.exp(logits.astype(np.float32).astype(np.float64))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    for client, (start, stop) in enumerate(pairwise(ptr)):
        rows = start + np.flatnonzero(tested[start:stop])
        true, said = labels[rows], probabilities[rows]
        expected = roc_auc_score(true, said, multi_class="ovr", average="macro")
        assert found["auc"]["clients"][client] == pytest.approx(expected)
        precision = np.mean([average_precision_score(true == k, said[:, k]) for k in range(classes)])
        assert found["ap"]["clients"][client] == pytest.approx(precision)
        assert found["loss"]["clients"][client] == pytest.approx(log_loss(true, said, labels=range(classes)))
    assert found["loss"]["macro"] == pytest.approx(math.fsum(found["loss"]["clients"]) / 3)


def test_a_class_that_no_scored_node_has_is_left_out():
    logits = np.array([[2.0, 1.0, 9.0], [1.0, 2.0, -9.0], [3.0, 1.0, 0.0]])
    labels, ptr = np.array([0, 1, 0]), np.array([0, 3])
    found = ranking_scores(logits, labels, ptr, np.ones(3, dtype=bool))
    # Softmax of class 0: about 0.0009, 0.27, 0.84; of class 1: 0.0003, 0.73, 0.11. Class 2 does not occur.
    assert found["auc"]["pooled"] == pytest.approx((0.5 + 1.0) / 2)


def test_shared_rows_are_weighed_so_that_every_node_counts_once():
    """Two negatives, and a positive that two clients hold: it is above both at one, and below both at the other."""
    outputs, labels = np.array([0.5, 0.9, 0.5, 0.1]), np.array([0, 1, 0, 1])
    share = np.array([1, 0.5, 1, 0.5])
    found = ranking_scores(outputs, labels, np.array([0, 2, 4]), np.ones(4, dtype=bool), share)
    assert found["auc"]["node_mean"] == pytest.approx(0.5)
    assert found["ap"]["node_mean"] == pytest.approx(0.5 * 1 + 0.5 * 1 / 3)  # weights 1/2 of 1/2, then 1 of 3
    assert found["ap"]["pooled"] == pytest.approx(0.5 * 1 + 0.5 * 2 / 4)
    logits = np.log(np.stack([1 - outputs, outputs], axis=1))
    loss = ranking_scores(logits, labels, np.array([0, 2, 4]), np.ones(4, dtype=bool), share)["loss"]
    assert loss["node_mean"] == pytest.approx(-(2 * np.log(0.5) + (np.log(0.9) + np.log(0.1)) / 2) / 3)
    assert loss["pooled"] == pytest.approx(-(2 * np.log(0.5) + np.log(0.9) + np.log(0.1)) / 4)


def test_auc_of_clients_is_scikit_learns_for_each_client():
    stream = np.random.default_rng(0)
    client = np.repeat([0, 1, 3, 4], [20, 15, 9, 4])
    scores, positive = stream.integers(0, 6, 48) / 3, stream.random(48) < 0.5
    positive[client == 3] = True
    found = auc_of_clients(scores, positive, client, 5)
    for number in (0, 1, 4):
        own = client == number
        assert found[number] == pytest.approx(roc_auc_score(positive[own], scores[own]))
    assert np.isnan(found[[2, 3]]).all()  # no row, and one kind alone
    assert auc_of_clients(np.array([np.inf, np.inf, 0.0]), np.array([True, False, False]), np.zeros(3, int), 1) == [
        0.75
    ]
    assert np.isnan(auc_of_clients(np.array([np.nan, 1.0]), np.array([True, False]), np.zeros(2, int), 1)).all()
