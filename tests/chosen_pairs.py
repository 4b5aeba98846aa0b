"""Selection of the tests on pairs of components: the option `--pairs` of pytest.

core (the default): all tests except those on pairs beyond the core (`pairs`)
all: all tests
3/10: the third of ten parts of the tests on pairs beyond the core, and no other test
"""

import pytest

BEYOND_CORE = "beyond_core"
"""Marker of a test on a pair beyond the core; its argument is the number of the pair."""


def chosen(number: int | None, wanted: str) -> bool:
    """Return whether a run takes a test.

    Args:
        number: number of the test's pair if the pair is beyond the core; None for all other tests.
        wanted: value of `--pairs`.

    Raises:
        pytest.UsageError: unknown value of `--pairs`.
    """
    if wanted in ("all", "core"):
        return wanted == "all" or number is None
    part, _, parts = wanted.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise pytest.UsageError(f"--pairs {wanted}: write core, all, or a part such as 3/10")
    return number is not None and number % int(parts) == int(part) - 1


def choose(items: list[pytest.Item], wanted: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests that a run takes, and the tests that it leaves out."""
    markers = [item.get_closest_marker(BEYOND_CORE) for item in items]
    taken = [chosen(marker.args[0] if marker else None, wanted) for marker in markers]
    both = list(zip(items, taken, strict=True))
    return [item for item, take in both if take], [item for item, take in both if not take]
