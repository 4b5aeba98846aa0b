"""Statistics against hand-worked numbers and scipy."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from fglbench.evaluation.statistics import (
    critical_difference,
    friedman,
    holm,
    mean_ranks,
    paired_differences,
    paired_test,
    pooled_deviation,
    rank_correlation,
    ranks,
    ranks_over_datasets,
    summarise,
)


def test_sample_deviation_divides_by_n_minus_one():
    summary = summarise([1.0, 2.0, 4.0])
    assert summary.mean == pytest.approx(7 / 3)
    assert summary.std == pytest.approx(math.sqrt(7 / 3))
    assert summary.n == 3


def test_one_value_has_no_deviation():
    assert summarise([0.5]).std is None


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_what_is_no_number_is_refused(values):
    with pytest.raises(ValueError, match="finite"):
        summarise(values)


def test_paired_differences_use_shared_seeds_only():
    summary = paired_differences({0: 3.0, 1: 5.0, 2: 9.0}, {1: 4.0, 0: 1.0, 7: 0.0})
    assert summary is not None
    assert (summary.mean, summary.n) == (1.5, 2)
    assert summary.std == pytest.approx(math.sqrt(0.5))
    assert paired_differences({0: 1.0}, {1: 1.0}) is None


def test_paired_t_test_over_common_seeds():
    test = paired_test({0: 3.0, 1: 5.0, 2: 9.0, 4: 50.0}, {2: 6.0, 1: 3.0, 0: 2.0, 7: 0.0})
    # Differences 1, 2, 3: t = 2 / (1 / sqrt(3)) = sqrt(12), and with two degrees of freedom p = 1 - t / sqrt(t^2 + 2).
    assert test is not None
    assert (test.difference.mean, test.difference.std, test.difference.n) == (2.0, 1.0, 3)
    assert test.p == pytest.approx(1 - math.sqrt(12 / 14))


def test_equal_and_constant_differences_need_no_test():
    same = {0: 80.1, 1: 79.3, 2: 81.7}
    assert paired_test(same, dict(same)).p == 1.0
    # 80.2 - 80.1 and 79.4 - 79.3 differ in their last binary digits.
    assert paired_test({0: 80.2, 1: 79.4, 2: 81.8}, same).p == 0.0
    assert paired_test({0: 80.2}, same) is None
    assert paired_test({5: 80.2, 6: 81.0}, same) is None


def test_holm_s_published_procedure():
    # The textbook example: of 0.01, 0.04, 0.03, 0.005 only the two smallest are rejected at 5 %.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_is_the_closed_test_of_bonferroni():
    # Each hypothesis is rejected where every set of hypotheses that contains it is, by Bonferroni's bound.
    p = np.random.default_rng(3).random(5) ** 3
    sets = [set(chosen) for size in range(1, 6) for chosen in combinations(range(5), size)]
    expected = [max(min(1.0, len(s) * min(p[list(s)])) for s in sets if i in s) for i in range(5)]
    assert holm(p.tolist()) == pytest.approx(expected)


def test_pooled_deviation_weighs_by_degrees_of_freedom():
    assert pooled_deviation([(1.0, 5), (2.0, 9)]) == pytest.approx(math.sqrt((4 * 1 + 8 * 4) / 12))
    assert pooled_deviation([(1.0, None), (2.0, 9)]) == pytest.approx(math.sqrt(2.5))
    assert pooled_deviation([(None, 1), (2.0, 9)]) == 2.0
    assert pooled_deviation([(None, 1)]) == 0.0


def test_ranks_start_at_the_best_and_ties_share():
    values = np.array([[90.0, 80.0, 80.0, 70.0], [1.0, 2.0, 3.0, 4.0]])
    assert ranks(values, "higher").tolist() == [[1, 2.5, 2.5, 4], [4, 3, 2, 1]]
    assert ranks(values, "lower")[0].tolist() == [4, 2.5, 2.5, 1]
    assert mean_ranks(values, ["a"] * len(values), "higher").tolist() == [[2.5, 2.75, 2.25, 2.5]]


def test_friedman_equals_scipy_and_knows_its_limits():
    values = np.random.default_rng(0).random((6, 4))
    expected = stats.friedmanchisquare(*values.T)
    assert friedman(values) == pytest.approx((expected.statistic, expected.pvalue))
    assert friedman(values[:, :2]) is None
    assert friedman(np.ones((6, 4))) is None


def test_critical_difference_of_the_published_table():
    # Demsar 2006, table 5: q at 0.05 is 2.728 for five methods; his example with 4 methods on 14 sets gives 1.25.
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
    assert critical_difference(5, 1) == pytest.approx(2.728 * math.sqrt(5), abs=0.002)


def test_rank_correlation():
    result = rank_correlation([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 40.0, 30.0])
    assert result is not None
    assert result.spearman == pytest.approx(0.8)
    assert result.kendall == pytest.approx(4 / 6)
    assert rank_correlation([1.0, 2.0], [1.0, 2.0]) is None
    assert rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None


def test_average_ranks_are_over_the_columns_that_all_methods_share():
    scores = {
        "a": {("cora", 5): 0.9, ("cora", 10): 0.8, ("photo", 5): 0.7, ("cs", 5): 0.5},
        "b": {("cora", 5): 0.8, ("cora", 10): 0.9, ("photo", 5): 0.6, ("cs", 5): None},
        "c": {("cora", 5): 0.7, ("cora", 10): 0.7, ("photo", 5): 0.8},
    }
    found = ranks_over_datasets(scores, "higher")
    assert (found.columns, found.datasets) == (3, 2)  # `cs` is not shared; the two columns of Cora count once
    assert found.order == [("a", 1.75), ("c", 2.0), ("b", 2.25)]  # a: 1.5 on Cora and 2 on Photo
    assert found.critical_difference == pytest.approx(critical_difference(3, 2))
    assert ranks_over_datasets({"a": scores["a"]}, "higher") is None
    one = {
        name: {column: score for column, score in known.items() if column[0] == "cora"}
        for name, known in scores.items()
    }
    assert ranks_over_datasets(one, "higher").critical_difference is None
