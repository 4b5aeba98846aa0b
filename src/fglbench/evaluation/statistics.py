"""Statistics over seeds, methods and columns of tables.

All deviations are sample deviations (n - 1). Rank 1 is the best; ties share the mean of their ranks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from fglbench.evaluation.quantities import Direction


@dataclass(frozen=True)
class Summary:
    """Mean and deviation of some values.

    Attributes:
        mean: arithmetic mean.
        std: sample standard deviation; None for one value.
        n: number of values.
    """

    mean: float
    std: float | None
    n: int


def summarise(values: Sequence[float]) -> Summary:
    """Compute the mean and the sample standard deviation of values.

    Args:
        values: at least one; all finite.

    Returns:
        Their summary.

    Raises:
        ValueError: there is no value, or one is not finite; a missing value must be recorded as an outcome, not as a
            number.
    """
    numbers = [float(value) for value in values]
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"a mean requires at least one value and only finite values, got {numbers}")
    mean = math.fsum(numbers) / len(numbers)
    if len(numbers) == 1:
        return Summary(mean, None, 1)
    squares = math.fsum((number - mean) ** 2 for number in numbers)
    return Summary(mean, math.sqrt(squares / (len(numbers) - 1)), len(numbers))


def paired_differences(first: Mapping[int, float], second: Mapping[int, float]) -> Summary | None:
    """Summarise `first - second` over the seeds that both have.

    Args:
        first: value by seed.
        second: value by seed.

    Returns:
        Their summary; None if no seed is shared.
    """
    shared = sorted(first.keys() & second.keys())
    return summarise([first[seed] - second[seed] for seed in shared]) if shared else None


@dataclass(frozen=True)
class PairedTest:
    """A paired t-test.

    Attributes:
        difference: summary of the paired differences.
        p: two-sided p-value.
    """

    difference: Summary
    p: float


def paired_test(first: Mapping[int, float], second: Mapping[int, float]) -> PairedTest | None:
    """Run the paired t-test of `first - second` over the seeds that both have.

    Wilcoxon's test is not used: over n seeds its smallest p-value is 2 / 2^n. This exceeds 5 % for fewer than six
    seeds, and, corrected for eight methods, for fewer than nine. Equal values have p = 1, and a constant difference has
    p = 0.

    Args:
        first: value by seed.
        second: value by seed.

    Returns:
        The test; None if fewer than two seeds are shared.
    """
    shared = sorted(first.keys() & second.keys())
    if len(shared) < 2:
        return None
    # Rounding removes differences in the last binary digit, so that equal and constant differences are recognised.
    differences = [round(first[seed] - second[seed], 9) for seed in shared]
    difference = summarise(differences)
    if len(set(differences)) == 1:
        return PairedTest(difference, 0.0 if difference.mean else 1.0)
    return PairedTest(difference, float(stats.ttest_1samp(differences, 0.0).pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p-values of several tests, to bound the probability of any false rejection by the significance level.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none is smaller than the one before it, nor
    above 1. Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
    6, 1979.

    Args:
        p_values: in any order.

    Returns:
        The adjusted p-values, in the order of `p_values`.
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def pooled_deviation(deviations: Sequence[tuple[float | None, int | None]]) -> float:
    """Compute the pooled standard deviation, weighted by n - 1.

    Pairs without a deviation and pairs with n = 1 are left out. If an n is unknown, all pairs have the same weight.

    Args:
        deviations: pairs of a standard deviation (None: there is none) and a number of values n (None: unknown).

    Returns:
        The pooled deviation; 0 if no pair is left.
    """
    pairs = [(std, n) for std, n in deviations if std is not None and n != 1]
    if not pairs:
        return 0.0
    equal_weights = any(n is None for _, n in pairs)
    weights = [1 if equal_weights else int(n or 0) - 1 for _, n in pairs]
    return math.sqrt(sum(w * std**2 for w, (std, _) in zip(weights, pairs, strict=True)) / sum(weights))


def ranks(values: np.ndarray, better: Direction) -> np.ndarray:
    """Rank the methods within each column of a table.

    Args:
        values: [columns, methods] float; each row of the array is a column of the table.
        better: direction.

    Returns:
        [columns, methods] float64, 1 for the best.
    """
    return stats.rankdata(-values if better == "higher" else values, method="average", axis=1)


def mean_ranks(values: np.ndarray, datasets: Sequence[str], better: Direction) -> np.ndarray:
    """Compute the mean ranks of methods over the columns of each dataset, see `ranks`.

    Columns of one dataset (schemes, numbers of clients) are not independent, so tests count a dataset once.

    Args:
        values: [columns, methods] float.
        datasets: [columns], the dataset of each column.
        better: direction.

    Returns:
        [datasets, methods] float64, datasets in alphabetical order.
    """
    by_column, dataset_of = ranks(values, better), np.array(datasets)
    return np.array([by_column[dataset_of == dataset].mean(axis=0) for dataset in sorted(set(datasets))])


def friedman(values: np.ndarray) -> tuple[float, float] | None:
    """Run Friedman's test over columns and methods.

    Args:
        values: [columns, methods] float.

    Returns:
        Chi-square and its p-value; None for fewer than 3 methods or 2 columns, or if all methods tie in every column.
    """
    columns, methods = values.shape
    if methods < 3 or columns < 2 or np.all(values == values[:, :1]):
        return None
    result = stats.friedmanchisquare(*values.T)
    return float(result.statistic), float(result.pvalue)


def critical_difference(methods: int, columns: int, alpha: float = 0.05) -> float:
    """Compute Nemenyi's critical difference of average ranks: q_alpha sqrt(k (k + 1) / (6 N)).

    q_alpha is the quantile of the studentised range for k groups and infinite degrees of freedom, divided by sqrt(2).
    Source: Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006.

    Args:
        methods: number of methods k.
        columns: number of columns N.
        alpha: significance level.

    Returns:
        The critical difference, in ranks.
    """
    quantile = stats.studentized_range.ppf(1 - alpha, methods, np.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(methods * (methods + 1) / (6 * columns)))


@dataclass(frozen=True)
class RankCorrelation:
    """Agreement of two rankings of the same methods.

    Attributes:
        spearman: Spearman's rho.
        kendall: Kendall's tau-b.
        n: number of methods.
    """

    spearman: float
    kendall: float
    n: int


def rank_correlation(ours: Sequence[float], printed: Sequence[float]) -> RankCorrelation | None:
    """Compute the agreement of two rankings of the same methods.

    Args:
        ours: one value for each method.
        printed: the values of the paper, in the same order.

    Returns:
        The correlations; None for fewer than 3 methods, or if all values of one side are equal.
    """
    if len(ours) < 3 or len(set(ours)) == 1 or len(set(printed)) == 1:
        return None
    rho = stats.spearmanr(ours, printed).statistic
    tau = stats.kendalltau(ours, printed).statistic
    return RankCorrelation(float(rho), float(tau), len(ours))


@dataclass(frozen=True)
class AverageRanks:
    """Average ranks of methods over the columns in which all of them have a number.

    Attributes:
        order: (method, average rank), best first, methods with equal ranks sorted.
        columns: number of these columns.
        datasets: number of their datasets; each counts once.
        critical_difference: Nemenyi's at 5 %; None for a single dataset, whose columns are not independent.
        friedman_p: p-value of Friedman's test; None if it does not apply.
    """

    order: list[tuple[Any, float]]
    columns: int
    datasets: int
    critical_difference: float | None
    friedman_p: float | None


def ranks_over_datasets(scores: Mapping[Any, Mapping[Any, float | None]], better: Direction) -> AverageRanks | None:
    """Rank methods over the columns that all of them share.

    Args:
        scores: by method and column the score; None where the method has none. A method is a name or a tuple of names;
            a column is a tuple that begins with its dataset.
        better: direction.

    Returns:
        The average ranks; None for fewer than two methods or two shared columns.
    """
    columns = {column for row in scores.values() for column in row}
    shared = sorted((c for c in columns if all(row.get(c) is not None for row in scores.values())), key=str)
    if len(scores) < 2 or len(shared) < 2:
        return None
    values = np.array([[row[column] for row in scores.values()] for column in shared], dtype=float)
    by_dataset = mean_ranks(values, [str(column[0]) for column in shared], better)
    pairs = sorted(zip(by_dataset.mean(axis=0).tolist(), scores, strict=True))
    order, datasets = [(name, rank) for rank, name in pairs], len(by_dataset)
    if datasets < 2:
        return AverageRanks(order, len(shared), datasets, None, None)
    test = friedman(-by_dataset)
    difference = critical_difference(len(scores), datasets)
    return AverageRanks(order, len(shared), datasets, difference, test[1] if test else None)
