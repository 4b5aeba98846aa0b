"""Interface of partition schemes, and the function that calls them.

A scheme is a file in the folder `schemes`. It declares `VERSION`, `class Settings(ComponentSettings)` and

    def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment

which may raise `PartitionError` with the reason; `assign_clients` adds dataset, scheme and clients to the message. A
scheme whose clients may share nodes declares `OVERLAPS = True`. A scheme that may assign a node to no client declares
`LEAVES_OUT = True`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import ValidationError

from fglbench import registry
from fglbench.datasets.base import Graph
from fglbench.errors import ComponentError, PartitionError
from fglbench.seeding import numpy_stream
from fglbench.settings import ComponentSettings


@dataclass(frozen=True)
class Assignment:
    """The nodes that each client holds.

    Attributes:
        parts: for each client its global node ids, int64, ascending.
        notes: sentences for the partition card, such as the implementation used and repairs made.
        copies: for each client a bool array aligned with its part, true for a copy of a node that another client owns;
            then every node in a part has exactly one owner. None: the scheme defines no owners.
        held_out: ascending int64 ids of the nodes that no client gets; the global test `held_out` uses them.
        held_out_clients: numbers of the clients that are tested but do not train and do not select rounds; they share
            no nodes with other clients.
        roles: [num_nodes] int8, roles that the partition defines; None: it defines none.
        communities: number of communities of the graph that each client was assigned; None: the scheme assigns none.
    """

    parts: list[np.ndarray]
    notes: list[str] = field(default_factory=list)
    copies: list[np.ndarray] | None = None
    held_out: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    held_out_clients: tuple[int, ...] = ()
    roles: np.ndarray | None = None
    communities: list[int] | None = None

    @property
    def owned(self) -> list[np.ndarray]:
        """The nodes that each client owns; all that it holds if the scheme defines no owners."""
        if self.copies is None:
            return self.parts
        return [nodes[~copy] for nodes, copy in zip(self.parts, self.copies, strict=True)]


def assign_clients(
    graph: Graph, dataset: str, scheme: str, clients: int, settings: Mapping[str, Any], seed: int
) -> Assignment:
    """Assign the nodes of a graph to clients with a scheme, and check the result.

    Args:
        graph: a canonical graph.
        dataset: its name, part of the name of the random stream.
        scheme: name of a partition scheme.
        clients: number of clients, 1 to the number of nodes.
        settings: the scheme's settings; missing ones take their defaults.
        seed: the cell's seed.

    Returns:
        The checked assignment.

    Raises:
        ComponentError: the scheme is unknown, or it or its result breaks the contract.
        PartitionError: the settings are invalid, or this partition is impossible.
        ResourceError: a scheme that runs in a child process ran out of memory.
        DiskError: the disk for temporary files is full.
    """
    module = registry.module("scheme", scheme)
    where = f"dataset '{dataset}', scheme '{scheme}', {clients} clients"
    if not 1 <= clients <= graph.num_nodes:
        raise PartitionError(f"{where}: request 1 to {graph.num_nodes} clients, at most one per node of the graph.")
    resolved = scheme_settings(scheme, settings)
    rng = numpy_stream(seed, "partition", dataset, scheme, clients)
    try:
        assignment = module.assign(graph, clients, rng, resolved)
    except PartitionError as error:
        raise PartitionError(f"{where}: {error}") from error
    _check_parts(assignment, graph.num_nodes, clients, where)
    _check_cover(assignment, graph.num_nodes, module, where)
    _check_copies(assignment, where)
    _check_held_out_clients(assignment, where)
    return assignment


def scheme_settings(scheme: str, settings: Mapping[str, Any]) -> ComponentSettings:
    """Validate the settings of a scheme and complete them with its defaults.

    Args:
        scheme: name of a partition scheme.
        settings: the given settings.

    Returns:
        An instance of the scheme's class `Settings`.

    Raises:
        ComponentError: the scheme is unknown.
        PartitionError: settings are unknown or invalid; the message names all of them.
    """
    model = registry.module("scheme", scheme).Settings
    try:
        return model.model_validate(dict(settings))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']} (found {problem['input']!r})"
            for problem in error.errors()
        )
        valid = ", ".join(model.model_fields) or "none"
        raise PartitionError(f"scheme '{scheme}': {problems}. Its settings: {valid}.") from error


def parts_of(membership: np.ndarray, clients: int) -> list[np.ndarray]:
    """Convert the client of each node to the nodes of each client.

    Args:
        membership: [num_nodes] integer client of each node, 0 to clients - 1.
        clients: number of clients.

    Returns:
        For each client its ascending node ids, int64.
    """
    order = np.argsort(membership, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(membership, minlength=clients))[:-1])


def _check_parts(assignment: Assignment, num_nodes: int, clients: int, where: str) -> None:
    parts = assignment.parts
    empty = [client for client, nodes in enumerate(parts) if not len(nodes)]
    if len(parts) != clients or empty:
        raise PartitionError(
            f"{where}: the scheme made {len(parts) - len(empty)} clients with nodes instead of {clients}. "
            "Request that number of clients or use another scheme."
        )
    named = {f"client {client}": nodes for client, nodes in enumerate(parts)}
    if len(assignment.held_out):
        named["held_out"] = assignment.held_out
    for name, nodes in named.items():
        if nodes.dtype != np.int64 or (np.diff(nodes) <= 0).any() or nodes[0] < 0 or nodes[-1] >= num_nodes:
            raise ComponentError(
                f"{where}: for {name}, the scheme returned {nodes.dtype} ids {nodes[0]} to {nodes[-1]}; expected int64 "
                f"ids, strictly ascending, from 0 to {num_nodes - 1}."
            )
    roles = assignment.roles
    if roles is not None and (roles.shape != (num_nodes,) or not np.isin(roles, range(4)).all()):
        raise ComponentError(
            f"{where}: the scheme returned roles {list(roles.shape)}; expected [{num_nodes}] with values 0 to 3."
        )


def _check_cover(assignment: Assignment, num_nodes: int, module: ModuleType, where: str) -> None:
    held_out = assignment.held_out
    times = np.bincount(np.concatenate(assignment.parts), minlength=num_nodes)
    assigned = held_out[times[held_out] > 0]
    if len(assigned):
        raise ComponentError(
            f"{where}: the scheme assigned {len(assigned)} held-out nodes to clients, the first {assigned[0]}; "
            "no client holds a held-out node."
        )
    if not getattr(module, "LEAVES_OUT", False) and (times == 0).any():
        raise ComponentError(
            f"{where}: the scheme left out {(times == 0).sum()} nodes, the first {times.argmin()}; a scheme that may "
            "do this declares LEAVES_OUT = True."
        )
    if not getattr(module, "OVERLAPS", False) and (times > 1).any():
        raise ComponentError(
            f"{where}: the scheme assigned {(times > 1).sum()} nodes to several clients, the first "
            f"{(times > 1).argmax()}; a scheme that may do this declares OVERLAPS = True."
        )


def _check_copies(assignment: Assignment, where: str) -> None:
    if assignment.copies is None:
        return
    for client, (nodes, copy) in enumerate(zip(assignment.parts, assignment.copies, strict=True)):
        if copy.dtype != bool or copy.shape != nodes.shape:
            raise ComponentError(
                f"{where}: for client {client}, the scheme returned copies {copy.dtype} {list(copy.shape)}; expected "
                f"bool [{len(nodes)}], aligned with its part."
            )
    held, owned = np.concatenate(assignment.parts), np.concatenate(assignment.owned)
    owners = np.bincount(owned, minlength=held.max() + 1)[held]
    if (owners != 1).any():
        first = int(np.argmax(owners != 1))
        raise ComponentError(
            f"{where}: node {held[first]} has {owners[first]} owners; each node of a client has exactly one owner, and "
            "is a copy at its other clients."
        )


def _check_held_out_clients(assignment: Assignment, where: str) -> None:
    parts, unseen = assignment.parts, assignment.held_out_clients
    if not unseen:
        return
    if not set(unseen) < set(range(len(parts))):
        raise ComponentError(
            f"{where}: the scheme holds out the clients {list(unseen)}; expected numbers from 0 to {len(parts) - 1}, "
            "and at least one client that trains."
        )
    times = np.bincount(np.concatenate(parts))
    for client in unseen:
        if (shared := parts[client][times[parts[client]] > 1]).size:
            raise ComponentError(
                f"{where}: client {client} is held out and shares {len(shared)} nodes with other clients, the first "
                f"{shared[0]}; a held-out client shares no nodes, because no client may train on them."
            )
