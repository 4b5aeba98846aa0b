"""Statistics over seeds, methods and columns.

Deviations are sample deviations (n - 1) everywhere. Ranks start at 1 for the best; ties share the mean of their ranks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation (None for one value) and number of values."""

    mean: float
    std: float | None
    n: int


def summarise(values: Sequence[float]) -> Summary:
    """The summary of at least one finite value.

    Raises:
        ValueError: no value, or one that is not finite; a missing value is an outcome, never a number.
    """
    numbers = [float(value) for value in values]
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"a mean needs finite values, got {numbers}")
    mean = math.fsum(numbers) / len(numbers)
    if len(numbers) == 1:
        return Summary(mean, None, 1)
    squares = math.fsum((number - mean) ** 2 for number in numbers)
    return Summary(mean, math.sqrt(squares / (len(numbers) - 1)), len(numbers))


def paired_differences(first: Mapping[int, float], second: Mapping[int, float]) -> Summary | None:
    """Summary of `first - second` over the seeds that both have; None where they share no seed."""
    shared = sorted(first.keys() & second.keys())
    return summarise([first[seed] - second[seed] for seed in shared]) if shared else None


@dataclass(frozen=True)
class PairedTest:
    """A paired difference and the two-sided p-value of its t-test."""

    difference: Summary
    p: float


def paired_test(first: Mapping[int, float], second: Mapping[int, float]) -> PairedTest | None:
    """The paired t-test of `first - second` over the seeds that both have; None below two such seeds.

    It is not Wilcoxon's test: over n seeds the smallest p-value of that one is 2 / 2^n, which stays above 5 % below six
    seeds and, corrected for eight methods, below nine. Equal values have p = 1, a constant difference has p = 0.
    """
    shared = sorted(first.keys() & second.keys())
    if len(shared) < 2:
        return None
    # Rounded so that equal values stay equal, and a constant difference constant, in the last binary digit.
    differences = [round(first[seed] - second[seed], 9) for seed in shared]
    difference = summarise(differences)
    if len(set(differences)) == 1:
        return PairedTest(difference, 0.0 if difference.mean else 1.0)
    return PairedTest(difference, float(stats.ttest_1samp(differences, 0.0).pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, adjusted so that the chance of any false rejection stays below the level.

    The smallest of m is multiplied by m, the next by m - 1, and so on; none is smaller than the one before it, nor
    above 1. Source: Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6, 1979.
    """
    adjusted = [1.0] * len(p_values)
    so_far = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = so_far
    return adjusted


def pooled_deviation(deviations: Sequence[tuple[float | None, int | None]]) -> float:
    """Pooled standard deviation of (deviation, n) pairs, weighted by n - 1.

    Pairs without a deviation are left out; where an n is unknown, all weigh the same. 0 where no pair is left.
    """
    known = [(std, n) for std, n in deviations if std is not None and n != 1]
    if not known:
        return 0.0
    weights = [1 if any(n is None for _, n in known) else int(n or 0) - 1 for _, n in known]
    return math.sqrt(sum(w * std**2 for w, (std, _) in zip(weights, known, strict=True)) / sum(weights))


def ranks(values: np.ndarray, better: str) -> np.ndarray:
    """[columns, methods] ranks within each row of `values` [columns, methods]; `better` is "higher" or "lower"."""
    return stats.rankdata(-values if better == "higher" else values, method="average", axis=1)


def mean_ranks(values: np.ndarray, datasets: Sequence[str], better: str) -> np.ndarray:
    """[datasets, methods] mean ranks over the columns of each dataset, datasets in alphabetical order; see `ranks`.

    Columns of one dataset (schemes, numbers of clients) are not independent, so tests count a dataset once.

    Args:
        values: [columns, methods].
        datasets: [columns], the dataset of each.
        better: "higher" or "lower".
    """
    found, of = ranks(values, better), np.array(datasets)
    return np.array([found[of == dataset].mean(axis=0) for dataset in sorted(set(datasets))])


def friedman(values: np.ndarray) -> tuple[float, float] | None:
    """Friedman's chi-square with its p-value over [columns, methods]; None below 3 methods or 2 columns, or where every
    method ties in every column."""
    columns, methods = values.shape
    if methods < 3 or columns < 2 or np.all(values == values[:, :1]):
        return None
    result = stats.friedmanchisquare(*values.T)
    return float(result.statistic), float(result.pvalue)


def critical_difference(methods: int, columns: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of average ranks: q_alpha sqrt(k (k + 1) / (6 N)).

    q_alpha is the studentised range for k groups and infinite degrees of freedom, divided by sqrt(2). Source: Demsar,
    "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006.
    """
    quantile = stats.studentized_range.ppf(1 - alpha, methods, np.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(methods * (methods + 1) / (6 * columns)))


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho and Kendall's tau-b over n methods."""

    spearman: float
    kendall: float
    n: int


def rank_correlation(ours: Sequence[float], printed: Sequence[float]) -> RankCorrelation | None:
    """Agreement of two orders of the same methods; None below 3 methods or where one side is constant."""
    if len(ours) < 3 or len(set(ours)) == 1 or len(set(printed)) == 1:
        return None
    rho = stats.spearmanr(ours, printed).statistic
    tau = stats.kendalltau(ours, printed).statistic
    return RankCorrelation(float(rho), float(tau), len(ours))
