"""Outcomes of runs, and the symbols that tables print for runs without a number."""

from collections.abc import Iterable
from typing import NamedTuple


class OutcomeSymbol(NamedTuple):
    """One reason for a missing number.

    Attributes:
        symbol: printed symbol.
        meaning: text of the legend.
    """

    symbol: str
    meaning: str


OUTCOMES = {
    "diverged": OutcomeSymbol("†", "diverged"),
    "oom": OutcomeSymbol("‡", "out of memory"),
    "timeout": OutcomeSymbol("§", "time limit reached"),
    "failed": OutcomeSymbol("¶", "failed with an error"),
    "not_applicable": OutcomeSymbol("—", "not applicable"),
    "not_run": OutcomeSymbol("○", "not run"),
    "no_value": OutcomeSymbol("∅", "no value: no client has nodes to score, or the value was not recorded"),
    "mixed_devices": OutcomeSymbol("≠", "seeds ran on different devices; their times are not averaged"),
}


def symbols(states: Iterable[str]) -> str:
    """Return the symbols of outcomes.

    Args:
        states: names of outcomes, with repetitions.

    Returns:
        Each symbol once, in the order of `OUTCOMES`.
    """
    present = set(states)
    return "".join(outcome.symbol for state, outcome in OUTCOMES.items() if state in present)
