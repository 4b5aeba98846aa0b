"""Users' component files that changed while their VERSION did not: records keep the hash of each file's content.

What comes with the suite has no hash here: its VERSION speaks for it, and a golden test for the VERSION.
"""

from collections.abc import Mapping
from typing import Any, Literal

from fglbench import registry
from fglbench.storage import hash_file

KEY = "component_files"
"""In a record: from "<kind> <name>" to the SHA-256 of the file. Records of older versions do not have it."""

Trust = Literal["again", "warn"]
"""What a changed file means for what was made with the other one: it is made again, or kept with a warning."""


def own_file(kind: str, name: str) -> dict[str, str]:
    """The hash of a user's component file; empty for a component that comes with the suite."""
    path = registry.own_path(kind, name)
    return {f"{kind} {name}": hash_file(path)} if path else {}


def own_files(specs: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of all files of users that a cell uses.

    Args:
        specs: see `stages.train.train`.
    """
    method = specs["method"]
    used = [
        ("dataset", specs["dataset"]["name"]),
        ("scheme", specs["partition"]["scheme"]),
        ("method", method["method"]),
        ("method", method["settings"].get("aggregation")),
        ("backbone", method["backbone"]["name"]),
        ("sampler", method["backbone"]["settings"].get("sampler")),
        ("task", method.get("task", {}).get("name")),
    ]
    return {key: digest for kind, name in used if name for key, digest in own_file(kind, name).items()}


def changes(recorded: Mapping[str, str] | None, files: Mapping[str, str]) -> list[str]:
    """A line for each file that is another one than a record was made with; none where the record does not say.

    Args:
        recorded: the hashes that a stage stored with its results.
        files: the hashes now.
    """
    if recorded is None:
        return []
    return [
        f"{registry.own_path(*component.split(' ', 1))} changed and its VERSION did not: SHA-256 {digest[:12]}, "
        f"recorded {recorded.get(component, 'none')[:12]}"
        for component, digest in files.items()
        if recorded.get(component) != digest
    ]
