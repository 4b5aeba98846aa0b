"""The client graphs of one seed: `federation.npz`.

The file contains its own checksum, and those of the split and the graph that it was made from.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fglbench.errors import StorageError
from fglbench.records.checksums import check_file, check_listed
from fglbench.records.graph import graph_checksum
from fglbench.records.split import split_checksum
from fglbench.storage import hash_arrays, hash_npz, read_npz, write_npz

FEDERATION = "federation.npz"
CONTENT = "content"
"""The name of the array with the checksum of all other arrays."""


def save_federation(folder: Path, arrays: Mapping[str, np.ndarray], split_folder: Path, graph_folder: Path) -> None:
    """Write the client graphs of one seed.

    Args:
        folder: of the seed, in the results of preprocess.
        arrays: the client graphs.
        split_folder: of the split that they were made from.
        graph_folder: of the graph that they were made from.
    """
    sources = {"split": _as_bytes(split_checksum(split_folder))}
    if graph := graph_checksum(graph_folder):
        sources["graph"] = _as_bytes(graph)
    content = {**arrays, **sources}
    write_npz(folder / FEDERATION, {**content, CONTENT: _as_bytes(hash_arrays(content))})


def read_federation(folder: Path) -> dict[str, np.ndarray]:
    """Load the client graphs of one seed, after a check of the checksum.

    Args:
        folder: of the seed, in the results of preprocess.

    Returns:
        The arrays by name, with the checksums.

    Raises:
        StorageError: the file is missing, damaged or altered.
    """
    check_federation(folder)
    return read_npz(folder / FEDERATION)


def check_federation(folder: Path) -> None:
    """Compare the file with the checksum that it contains.

    Files of older versions contain none; they are compared with the lists of their jobs.

    Args:
        folder: of the seed, in the results of preprocess.

    Raises:
        StorageError: the file is missing, damaged or altered.
    """
    expected = _checksum(folder, CONTENT)
    if expected:
        check_file(folder / FEDERATION, expected, folder / FEDERATION, _content_hash)
    else:
        check_listed(folder / FEDERATION)


def _content_hash(path: Path) -> str:
    return hash_npz(path, skipped=(CONTENT,))


def is_unharmed(folder: Path) -> bool:
    """Return whether `check_federation` finds no problem.

    Args:
        folder: of the seed, in the results of preprocess.

    Returns:
        False for a missing, damaged or altered file.
    """
    try:
        check_federation(folder)
    except StorageError:
        return False
    return True


def is_current(folder: Path, split_folder: Path, graph_folder: Path) -> bool:
    """Return whether the file of a seed exists, is undamaged, and was made from the current split and graph.

    Args:
        folder: of the seed, in the results of preprocess.
        split_folder: of the seed's split.
        graph_folder: of the dataset's graph.

    Returns:
        False if preprocessing must run again.
    """
    graph = _checksum(folder, "graph")  # None: a file of an older version, which does not contain it
    return (
        split_of(folder) == split_checksum(split_folder)
        and graph in (None, graph_checksum(graph_folder))
        and is_unharmed(folder)
    )


def split_of(folder: Path) -> str | None:
    """Return the checksum of the split that the file was made from.

    Args:
        folder: of the seed, in the results of preprocess.

    Returns:
        64 hexadecimal digits (SHA-256); None if there is no such file.
    """
    return _checksum(folder, "split")


def _checksum(folder: Path, name: str) -> str | None:
    try:
        return read_npz(folder / FEDERATION, [name])[name].tobytes().hex()
    except StorageError:
        return None


def _as_bytes(checksum: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(checksum), dtype=np.uint8)
