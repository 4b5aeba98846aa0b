"""Content of a partition file, and the check of its consistency."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fglbench.errors import PartitionError

ROLE_NAMES = ("none", "train", "val", "test")
"""The names of the codes 0 to 3; a .csv file has an empty field instead of "none"."""
HELD_OUT = "held_out"


@dataclass(frozen=True)
class StoredPartition:
    """Content of a partition file, with N rows for C clients.

    Attributes:
        nodes: [N] int64 global ids, client by client, ascending inside a client.
        ptr: [C + 1] int64; client c holds rows ptr[c] to ptr[c + 1] - 1.
        role: [N] int8: 0 none, 1 train, 2 val, 3 test; None: the file has no roles.
        copy: [N] bool, nodes that another client owns; None: the file defines no owners.
        held_out: ascending int64 ids of the nodes that no client gets, for the global test.
        held_out_clients: ascending numbers of the clients that are tested but do not train and do not select rounds.
    """

    nodes: np.ndarray
    ptr: np.ndarray
    role: np.ndarray | None = None
    copy: np.ndarray | None = None
    held_out: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    held_out_clients: tuple[int, ...] = ()

    @property
    def clients(self) -> int:
        """The number of clients C."""
        return len(self.ptr) - 1

    @property
    def highest(self) -> int:
        """The highest node id in the file."""
        return int(max(self.nodes.max(), self.held_out.max(initial=0)))


@dataclass(frozen=True)
class Rows:
    """The rows of a partition file, in the order of the file.

    Attributes:
        client: [N] int64 client of each row.
        node: [N] int64 global node id.
        role: [N] integer, 0 to 3; None: the file has no roles.
        copy: [N] bool, nodes that another client owns; None: the file defines no owners.
        held_out: int64 ids of the nodes that no client gets.
        held_out_clients: numbers of the clients that are only tested.
        place: returns the place of a row in the file, such as "line 7", for messages.
    """

    client: np.ndarray
    node: np.ndarray
    role: np.ndarray | None
    copy: np.ndarray | None
    held_out: np.ndarray
    held_out_clients: set[int]
    place: Callable[[int], str]


def checked(rows: Rows, path: Path) -> StoredPartition:
    """Check the rows of a file and sort them.

    Args:
        rows: of the file.
        path: of the file, for messages.

    Returns:
        The partition, sorted by client and node.

    Raises:
        PartitionError: the rows are inconsistent; the message names the file and the place.
    """
    client, node = rows.client, rows.node

    def refuse(wrong: np.ndarray, text: Callable[[int], str]) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            raise PartitionError(f"{path}: {rows.place(first)}: {text(first)}")

    refuse(node < 0, lambda row: f"{node[row]} is not a node id; ids count from 0.")
    sizes = np.bincount(client, minlength=1)
    if not sizes.all():
        raise PartitionError(f"{path}: client {sizes.argmin()} has no node; clients count from 0 without a gap.")
    order = np.lexsort((node, client))
    repeated = np.zeros(len(node), dtype=bool)
    repeated[order[1:]] = (np.diff(node[order]) == 0) & (np.diff(client[order]) == 0)
    refuse(repeated, lambda row: f"client {client[row]} has node {node[row]} a second time; keep one of the two.")
    _, first, which, times = np.unique(node, return_index=True, return_inverse=True, return_counts=True)
    if rows.role is not None:
        refuse(
            rows.role != rows.role[first][which],
            lambda row: f"node {node[row]} has another role at {rows.place(first[which[row]])}; give it one role.",
        )
    if rows.copy is not None:
        owners = np.bincount(which, ~rows.copy)[which]
        refuse(
            owners != 1,
            lambda row: (
                f"node {node[row]} is owned by {owners[row]:.0f} clients; make one owner and the others copies."
            ),
        )
    refuse(
        np.isin(node, rows.held_out),
        lambda row: f"node {node[row]} belongs to a client and is also held out; keep one of the two.",
    )
    if (rows.held_out < 0).any():
        raise PartitionError(f"{path}: the held-out node {rows.held_out.min()} is not a node id; ids count from 0.")
    unseen = rows.held_out_clients
    if unseen and not unseen < set(range(len(sizes))):
        raise PartitionError(
            f"{path}: the held-out clients are {sorted(unseen)}; expected numbers from 0 to {len(sizes) - 1}, and at "
            "least one client that trains."
        )
    refuse(
        np.isin(client, list(unseen)) & (times[which] > 1),
        lambda row: f"client {client[row]} is held out and shares node {node[row]}; it may share no nodes.",
    )
    return StoredPartition(
        node[order],
        np.cumsum([0, *sizes]),
        None if rows.role is None else rows.role[order].astype(np.int8),
        None if rows.copy is None else rows.copy[order],
        np.unique(rows.held_out),
        tuple(sorted(unseen)),
    )
