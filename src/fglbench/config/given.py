"""Values from the command line (`--config`): their problems name the command line and not the file."""

import re
from collections.abc import Mapping
from typing import Any

COMMAND_LINE = "--config"


def blamed(problem: str, source: str, given: Mapping[str, Any]) -> str:
    """Return a problem that names the command line as its source, if the command line gave the key.

    Args:
        problem: "<source>: <key>: ...", as `load_config` words it.
        source: the file that the other values came from.
        given: the values from the command line; they replace single keys of a mapping, and lists as a whole.

    Returns:
        The problem with `--config` as its source; the text unchanged if the file gave the key, or if the text does not
        start with `source`.
    """
    head = f"{source}: "
    if not problem.startswith(head):
        return problem
    rest = problem.removeprefix(head)
    path = re.split(r"[.\[]", re.split(r"[:\s]", rest)[0])
    return f"{COMMAND_LINE}: {rest}" if _gives(given, path) else problem


def _gives(given: Any, path: list[str]) -> bool:
    if not (path and isinstance(given, Mapping)):
        return True
    return path[0] in given and _gives(given[path[0]], path[1:])
