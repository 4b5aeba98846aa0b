"""The split of one seed: `split.npz`, and its partition card `card.json`, which is written last."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np

from fglbench.errors import PartitionError, StorageError
from fglbench.partition.card import PartitionCard
from fglbench.partition.links import Pairs
from fglbench.partition.split import check_roles
from fglbench.records.checksums import check_file, check_listed
from fglbench.storage import MAKE_AGAIN, hash_file, read_json, read_npz, replacing_directory, write_json, write_npz

SPLIT_ARRAYS, SPLIT_CARD = "split.npz", "card.json"


@dataclass(frozen=True)
class Split:
    """The nodes of all clients and their roles.

    Attributes:
        nodes: [N] int64 global node ids, client by client, ascending inside a client.
        ptr: [C + 1] int64; client c holds positions ptr[c] to ptr[c + 1] - 1.
        role: [N] int8: 0 none, 1 train, 2 val, 3 test.
        held_out: ascending int64 global ids of the nodes that no client gets, for the global test.
        copy: [N] bool, rows of nodes that another client owns; None: the scheme defines no owners.
        pairs: the scored pairs of nodes, if links are scored; None: nodes are scored.
    """

    nodes: np.ndarray
    ptr: np.ndarray
    role: np.ndarray
    held_out: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    copy: np.ndarray | None = None
    pairs: Pairs | None = None

    @property
    def clients(self) -> int:
        """The number of clients C."""
        return len(self.ptr) - 1


def save_split(folder: Path, arrays: Mapping[str, np.ndarray], card: PartitionCard) -> None:
    """Write both files of a split, or none of them.

    Args:
        folder: of the seed.
        arrays: `nodes`, `ptr` and `role`, and the optional arrays of `Split` and `Pairs`, by name.
        card: the partition card, with the request for this split; the checksum `sha256` is added.
    """
    with replacing_directory(folder) as temporary:
        write_npz(temporary / SPLIT_ARRAYS, arrays)
        write_json(temporary / SPLIT_CARD, {**card, "sha256": hash_file(temporary / SPLIT_ARRAYS)})


def read_split_card(folder: Path) -> PartitionCard:
    """Read the partition card of a seed.

    Args:
        folder: of the seed, in the results of the split stage.

    Returns:
        The content of `card.json`. Cards of older versions lack keys that were added later.

    Raises:
        StorageError: the file is missing or damaged.
    """
    return cast(PartitionCard, read_json(folder / SPLIT_CARD))


def load_split(folder: Path) -> Split:
    """Load the split of one seed.

    Args:
        folder: of the seed, in the results of the split stage.

    Returns:
        The checked split.

    Raises:
        StorageError: a file is missing or damaged, or does not match its checksum, or its content is inconsistent (a
            client without nodes, ids out of order, a node with two roles).
    """
    check_split(folder)
    arrays = read_npz(folder / SPLIT_ARRAYS)
    nodes, ptr, role = arrays["nodes"], arrays["ptr"], arrays["role"]
    lengths = {name: len(arrays[name]) for name in ("nodes", "role", "copy") if name in arrays}
    problem = ""
    if len(ptr) < 2 or ptr[0] != 0 or set(lengths.values()) != {int(ptr[-1])}:
        listed = ", ".join(f"{length} in '{name}'" for name, length in lengths.items())
        pointers = f"from {ptr[0]} to {ptr[-1]}" if len(ptr) else "missing"
        problem = f"the arrays disagree: the entries are {listed}, and the pointers of the clients are {pointers}"
    elif (np.diff(ptr) < 1).any():
        problem = "a client has no nodes, or the pointers of the clients are not ascending"
    elif any((np.diff(held) <= 0).any() for held in np.split(nodes, ptr[1:-1])):
        problem = "the node ids of a client are not ascending"
    else:
        try:
            check_roles(nodes, role)
        except PartitionError as error:
            problem = str(error)
    pairs = Pairs.from_arrays(arrays)
    if pairs and not problem:
        problem = pairs.problem(ptr) or ""
    if problem:
        raise StorageError(f"{folder / SPLIT_ARRAYS}: {problem}. {MAKE_AGAIN}")
    optional = {name: arrays[name] for name in ("held_out", "copy") if name in arrays}
    return Split(nodes, ptr, role, pairs=pairs, **optional)


def check_split(folder: Path) -> None:
    """Compare the split of a seed with its card, and the card with the lists of its jobs.

    Args:
        folder: of the seed, in the results of the split stage.

    Raises:
        StorageError: a file is missing or damaged, or does not match its checksum.
    """
    card = folder / SPLIT_CARD
    check_listed(card)
    check_file(folder / SPLIT_ARRAYS, read_split_card(folder).get("sha256", "none"), card)


def split_checksum(split_folder: Path) -> str:
    """Return the checksum of a seed's split, from its card.

    Args:
        split_folder: of the seed, in the results of the split stage.

    Returns:
        64 hexadecimal digits (SHA-256 of `split.npz`).
    """
    return read_split_card(split_folder)["sha256"]
