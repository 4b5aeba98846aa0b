"""What of a configuration the command line gave (`--config`): its problems are not those of the file."""

import re
from collections.abc import Mapping
from typing import Any

COMMAND_LINE = "--config"


def blamed(problem: str, source: str, given: Mapping[str, Any]) -> str:
    """A problem "<source>: <key>: ..." with the command line as its source, where that gave the key.

    Args:
        problem: as `load_config` words it; any other text is returned as it is.
        source: the file that the other values came from.
        given: what the command line gave: it replaces single keys of a mapping, and lists as a whole.
    """
    head = f"{source}: "
    if not problem.startswith(head):
        return problem
    rest = problem.removeprefix(head)
    path = re.split(r"[.\[]", re.split(r"[:\s]", rest)[0])
    return f"{COMMAND_LINE}: {rest}" if _holds(given, path) else problem


def _holds(given: Any, path: list[str]) -> bool:
    if not (path and isinstance(given, Mapping)):
        return True
    return path[0] in given and _holds(given[path[0]], path[1:])
