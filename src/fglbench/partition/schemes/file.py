"""Clients read from a partition file: published, made by other software, or written by `fglbench export`.

The file is npz, csv or json. It contains the node ids of each client. Optionally it contains the roles of nodes (for
`split.kind: file`), the nodes that are copies, and held-out nodes and clients; docs/partitions.md describes the
formats. The number of clients must be the file's. The identity of a cell contains the hash of the file's content, not
its path.
"""

from pathlib import Path

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment
from fglbench.partition.files import read_partition
from fglbench.settings import ComponentSettings, Field
from fglbench.storage import hash_file

VERSION = 1
OVERLAPS = True
LEAVES_OUT = True


class Settings(ComponentSettings):
    path: str = Field("", description="The file: .npz, .csv or .json; from the working directory or from the root.")
    sha256: str | None = Field(None, description="SHA-256 of the file that is meant; null: whatever lies there.")


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Give every client the nodes that the file lists for it.

    Args:
        graph: a canonical graph.
        clients: number of clients.
        rng: not used.
        settings: path and checksum of the file.

    Returns:
        The assignment, with copies, roles and held-out nodes if the file has them.

    Raises:
        PartitionError: the file is unreadable or has another checksum, or its number of clients or its node ids do not
            fit.
    """
    path = Path(settings.path)
    stored = read_partition(path)
    if settings.sha256 is not None and (actual := hash_file(path)) != settings.sha256:
        raise PartitionError(
            f"{path} has the SHA-256 {actual}, and the setting sha256 expects {settings.sha256}. Put the expected file "
            "there, or correct the setting."
        )
    if clients != stored.clients:
        raise PartitionError(f"{path} contains {stored.clients} clients; request {stored.clients}.")
    if stored.highest >= graph.num_nodes:
        raise PartitionError(
            f"{path} contains node {stored.highest}; the graph has nodes 0 to {graph.num_nodes - 1}. Use the partition "
            "file of this dataset."
        )
    roles = None
    if stored.role is not None:
        roles = np.zeros(graph.num_nodes, dtype=np.int8)
        roles[stored.nodes] = stored.role
    return Assignment(
        np.split(stored.nodes, stored.ptr[1:-1]),
        [f"read from a file with the SHA-256 {hash_file(path)}"],
        None if stored.copy is None else np.split(stored.copy, stored.ptr[1:-1]),
        stored.held_out,
        stored.held_out_clients,
        roles,
    )
