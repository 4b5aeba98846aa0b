"""Which tests on pairs of components a run takes: the option `--pairs` of pytest.

core (the default): all but those on pairs beyond the core (`pairs`)
all: all
3/10: the third of ten parts of those beyond the core, and no other test
"""

import pytest

BEYOND_CORE = "beyond_core"
"""The marker of a test on such a pair; its argument numbers the pair."""


def chosen(number: int | None, wanted: str) -> bool:
    """Whether a run takes a test.

    Args:
        number: of its pair, where that is beyond the core; None: of all other tests.
        wanted: `--pairs`.

    Raises:
        pytest.UsageError: there is no such choice.
    """
    if wanted in ("all", "core"):
        return wanted == "all" or number is None
    part, _, parts = wanted.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise pytest.UsageError(f"--pairs {wanted}: write core, all, or a part such as 3/10")
    return number is not None and number % int(parts) == int(part) - 1


def choose(items: list[pytest.Item], wanted: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests that a run takes, and those that it leaves out."""
    markers = [item.get_closest_marker(BEYOND_CORE) for item in items]
    taken = [chosen(marker.args[0] if marker else None, wanted) for marker in markers]
    both = list(zip(items, taken, strict=True))
    return [item for item, take in both if take], [item for item, take in both if not take]
