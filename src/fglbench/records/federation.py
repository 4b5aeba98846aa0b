"""The client graphs of one seed: `federation.npz`, which holds its own checksum and those of what it was made from."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fglbench.errors import StorageError
from fglbench.records.checksums import check_file, check_listed
from fglbench.records.graph import graph_checksum
from fglbench.records.split import split_checksum
from fglbench.storage import hash_arrays, hash_npz, read_npz, write_npz

FILE = "federation.npz"
CONTENT = "content"
"""The array with the checksum of all others."""


def save_federation(folder: Path, arrays: Mapping[str, np.ndarray], split_folder: Path, graph_folder: Path) -> None:
    """Writes the file of one seed.

    Args:
        folder: of the seed.
        arrays: the client graphs.
        split_folder, graph_folder: what they were made from.
    """
    made_from = {"split": _as_bytes(split_checksum(split_folder))}
    if graph := graph_checksum(graph_folder):
        made_from["graph"] = _as_bytes(graph)
    known = {**arrays, **made_from}
    write_npz(folder / FILE, {**known, CONTENT: _as_bytes(hash_arrays(known))})


def read_federation(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of one seed.

    Raises:
        StorageError: the file is missing, damaged or altered.
    """
    check_federation(folder)
    return read_npz(folder / FILE)


def check_federation(folder: Path) -> None:
    """Compares the file with the checksum that it holds itself; files of older versions, which hold none, with lists
    of jobs.

    Raises:
        StorageError: the file is missing, damaged or altered.
    """
    expected = _checksum(folder, CONTENT)
    if expected:
        check_file(folder / FILE, expected, folder / FILE, _content_hash)
    else:
        check_listed(folder / FILE)


def _content_hash(path: Path) -> str:
    return hash_npz(path, skipped=(CONTENT,))


def is_unharmed(folder: Path) -> bool:
    """Whether `check_federation` has nothing to say."""
    try:
        check_federation(folder)
    except StorageError:
        return False
    return True


def is_current(folder: Path, split_folder: Path, graph_folder: Path) -> bool:
    """Whether the file of a seed is there, unharmed, and made from this split and this graph."""
    graph = _checksum(folder, "graph")  # files of older versions do not say
    return (
        split_of(folder) == split_checksum(split_folder)
        and graph in (None, graph_checksum(graph_folder))
        and is_unharmed(folder)
    )


def split_of(folder: Path) -> str | None:
    """The checksum of the split that the file was made from; None where there is no such file."""
    return _checksum(folder, "split")


def _checksum(folder: Path, name: str) -> str | None:
    try:
        return read_npz(folder / FILE, [name])[name].tobytes().hex()
    except StorageError:
        return None


def _as_bytes(checksum: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(checksum), dtype=np.uint8)
