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
