"""Changes of users' component files without a new VERSION, found by the hashes of the files that records contain.

Built-in components have no hash here: their VERSION identifies them, and a golden test checks it.
"""

from collections.abc import Mapping
from typing import Literal

from fglbench import registry
from fglbench.records.specs import Specs
from fglbench.storage import hash_file

Trust = Literal["again", "warn"]
"""How to treat results of a changed component file: make them again, or keep them with a warning."""


def own_file(kind: str, name: str) -> dict[str, str]:
    """Compute the hash of a user's component file.

    Args:
        kind: a key of `registry.KINDS`.
        name: of the component.

    Returns:
        The SHA-256 under the key "<kind> <name>"; empty for a built-in component.
    """
    path = registry.own_path(kind, name)
    return {f"{kind} {name}": hash_file(path)} if path else {}


def own_files(specs: Specs) -> dict[str, str]:
    """Compute the hashes of all users' component files that a cell uses.

    Args:
        specs: see `records.specs.Specs`.

    Returns:
        The SHA-256 by "<kind> <name>"; empty if all components are built in.
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
    """Compare users' component files with the hashes in a record.

    Args:
        recorded: the hashes in the record of a stage; None: the record has none.
        files: the current hashes.

    Returns:
        One sentence for each changed file; empty if the record has no hashes.
    """
    if recorded is None:
        return []
    return [
        f"{registry.own_path(*component.split(' ', 1))} changed and its VERSION did not: SHA-256 {digest[:12]}, "
        f"recorded {recorded.get(component, 'none')[:12]}"
        for component, digest in files.items()
        if recorded.get(component) != digest
    ]
