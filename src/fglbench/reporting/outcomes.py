"""How a run may end, and the symbol that tables print where it did not end well."""

from collections.abc import Iterable
from typing import NamedTuple


class Outcome(NamedTuple):
    """One way of having no number: the printed symbol and its meaning in a legend."""

    symbol: str
    meaning: str


OUTCOMES = {
    "diverged": Outcome("†", "diverged"),
    "oom": Outcome("‡", "out of memory"),
    "timeout": Outcome("§", "time limit reached"),
    "failed": Outcome("¶", "failed with an error"),
    "not_applicable": Outcome("—", "not applicable"),
    "not_run": Outcome("○", "not run"),
    "no_value": Outcome("∅", "ran, but gave no such value: no client has such nodes, or it was not recorded"),
    "mixed_devices": Outcome("≠", "seeds ran on different devices; their times are not averaged"),
}


def symbols(states: Iterable[str]) -> str:
    """The symbols of the given states in the fixed order of `OUTCOMES`, each once."""
    present = set(states)
    return "".join(outcome.symbol for state, outcome in OUTCOMES.items() if state in present)
