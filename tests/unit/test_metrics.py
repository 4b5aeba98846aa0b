"""Scores against hand-worked numbers and scikit-learn."""

from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from fglbench.evaluation.client_means import shares, value_of, weighted_mean
from fglbench.evaluation.metrics import scores


def test_hand_worked_scores_of_three_clients():
    labels = np.array([0, 0, 1, 1, 2, 2])
    predicted = np.array([0, 1, 1, 1, 0, 0])
    ptr = np.array([0, 4, 4, 6])  # four nodes, none, two nodes
    result = scores(predicted, labels, ptr, np.ones(6, dtype=bool))
    accuracy = result["accuracy"]
    assert accuracy["pooled"] == 0.5
    assert accuracy["clients"] == [0.75, None, 0.0]
    assert accuracy["macro"] == 0.375
    assert (accuracy["evaluated"], accuracy["of"], accuracy["nodes"]) == (2, 3, 6)
    # Client 0: class 0 has TP 1, FN 1: 2/3; class 1 has TP 2, FP 1: 4/5.
    assert result["f1_macro"]["clients"][0] == pytest.approx((2 / 3 + 4 / 5) / 2)
    # Client 2 has label 2 and prediction 0: both classes count, both with 0.
    assert result["f1_macro"]["clients"][2] == 0.0
    # All: class 0 TP 1, FN 1, FP 2: 2/5; class 1: 4/5; class 2: 0.
    assert result["f1_macro"]["pooled"] == pytest.approx((0.4 + 0.8 + 0.0) / 3)
    assert result["f1_micro"] == accuracy


@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_scikit_learn(seed):
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 40, size=6)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    labels = random.integers(-1, 7, size=ptr[-1])
    predicted = random.integers(0, 9, size=ptr[-1])
    tested = random.random(ptr[-1]) < 0.5
    result = scores(predicted, labels, ptr, tested)
    scored = tested & (labels >= 0)
    for client, (start, end) in enumerate(pairwise(ptr)):
        mask = scored[start:end]
        truth, guess = labels[start:end][mask], predicted[start:end][mask]
        if not len(truth):
            assert result["accuracy"]["clients"][client] is None
            continue
        assert result["accuracy"]["clients"][client] == pytest.approx(accuracy_score(truth, guess))
        assert result["f1_micro"]["clients"][client] == pytest.approx(f1_score(truth, guess, average="micro"))
        macro = f1_score(truth, guess, average="macro", zero_division=0)
        assert result["f1_macro"]["clients"][client] == pytest.approx(macro)
    truth, guess = labels[scored], predicted[scored]
    assert result["accuracy"]["pooled"] == pytest.approx(accuracy_score(truth, guess))
    assert result["f1_macro"]["pooled"] == pytest.approx(f1_score(truth, guess, average="macro", zero_division=0))


def test_nodes_without_label_and_untested_nodes_count_nowhere():
    labels = np.array([-1, 0, 1])
    result = scores(np.array([0, 0, 0]), labels, np.array([0, 3]), np.array([True, True, False]))
    assert result["accuracy"]["nodes"] == 1
    assert result["accuracy"]["pooled"] == 1.0


def test_no_tested_node_gives_none_not_nan():
    result = scores(np.zeros(3, int), np.zeros(3, int), np.array([0, 1, 3]), np.zeros(3, dtype=bool))
    for metric in ("accuracy", "f1_micro", "f1_macro"):
        assert result[metric] == {
            "pooled": None,
            "macro": None,
            "clients": [None, None],
            "evaluated": 0,
            "of": 2,
            "nodes": 0,
        }


def test_a_shared_node_counts_once_for_each_holder_in_pooled_and_once_in_the_mean_over_nodes():
    """Node 7 is at all three clients, and right at two of them; nodes 3 and 5 are at one each, right and wrong."""
    nodes, labels = np.array([3, 7, 7, 5, 7]), np.array([0, 1, 1, 0, 1])
    predicted, ptr = np.array([0, 1, 1, 1, 0]), np.array([0, 2, 4, 5])
    share = shares(nodes)
    assert share.tolist() == [1, 1 / 3, 1 / 3, 1, 1 / 3]
    result = scores(predicted, labels, ptr, np.ones(5, dtype=bool), share)
    assert result["accuracy"]["pooled"] == 3 / 5
    assert result["accuracy"]["node_mean"] == pytest.approx((1 + 0 + 2 / 3) / 3)
    assert result["f1_micro"] == result["accuracy"]
    # Class 0: TP 1, FP 1/3, FN 1; class 1: TP 2/3, FP 1, FN 1/3.
    expected = (2 / (2 + 4 / 3) + (4 / 3) / (4 / 3 + 4 / 3)) / 2
    assert result["f1_macro"]["node_mean"] == pytest.approx(expected)
    truth = f1_score(labels, predicted, average="macro", sample_weight=share)
    assert result["f1_macro"]["node_mean"] == pytest.approx(truth)
    assert value_of(result["accuracy"], "nodes") == result["accuracy"]["node_mean"]
    nobody = scores(predicted, labels, ptr, np.zeros(5, dtype=bool), share)
    assert nobody["accuracy"]["node_mean"] is nobody["f1_macro"]["node_mean"] is None


def test_where_no_node_is_shared_the_mean_over_nodes_is_the_pooled_one():
    assert shares(np.array([4, 0, 9])) is None
    entry = scores(np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([0, 2, 3]), np.ones(3, dtype=bool))["accuracy"]
    assert set(entry) == {"pooled", "macro", "clients", "evaluated", "of", "nodes"}
    assert value_of(entry, "nodes") == entry["pooled"] == 2 / 3
    assert value_of(entry, "macro") == 0.75


def test_the_weighted_mean_leaves_out_who_has_no_value_or_counts_for_nothing():
    assert weighted_mean([0.5, None, 1.0, 0.0], [1.0, 5.0, 3.0, 0.0]) == 0.875
    assert weighted_mean([0.5, None], [0.0, 2.0]) is None
