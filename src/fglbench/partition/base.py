"""The contract of a partition scheme, and the one door through which every scheme is called.

A file of this folder declares `VERSION`, `class Settings(ComponentSettings)` and

    def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment

which may raise `PartitionError` with what cannot be done; `assign_clients` adds dataset, scheme and clients to it. A
scheme whose clients may share nodes declares `OVERLAPS = True`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """Which nodes each client holds.

    Attributes:
        parts: one array per client: its global node ids, int64, ascending.
        notes: what the partition card tells a reader: implementation used, repairs made.
    """

    parts: list[np.ndarray]
    notes: list[str] = field(default_factory=list)


def assign_clients(
    graph: Graph, dataset: str, scheme: str, clients: int, settings: Mapping[str, Any], seed: int
) -> Assignment:
    """Gives the nodes of a graph to clients, and checks what the scheme returns.

    Args:
        graph: a canonical graph.
        dataset: its name, part of the name of the random stream.
        scheme: name of a partition scheme.
        clients: number of clients, 1 to the number of nodes.
        settings: the scheme's settings; missing ones take their defaults.
        seed: the cell's seed.

    Raises:
        ComponentError: no such scheme, or its file does not keep the contract.
        PartitionError: the settings are not valid, or this partition cannot be made.
    """
    module = registry.module("scheme", scheme)
    where = f"dataset '{dataset}', scheme '{scheme}', {clients} clients"
    if not 1 <= clients <= graph.num_nodes:
        raise PartitionError(f"{where}: give 1 to {graph.num_nodes} clients, the number of nodes.")
    resolved = scheme_settings(scheme, settings)
    rng = numpy_stream(seed, "partition", dataset, scheme, clients)
    try:
        assignment = module.assign(graph, clients, rng, resolved)
    except PartitionError as error:
        raise PartitionError(f"{where}: {error}") from error
    _check(assignment.parts, graph.num_nodes, clients, bool(getattr(module, "OVERLAPS", False)), where)
    return assignment


def scheme_settings(scheme: str, settings: Mapping[str, Any]) -> ComponentSettings:
    """The resolved settings of a scheme.

    Raises:
        ComponentError: no such scheme.
        PartitionError: an unknown setting, or one that does not fit; names all of them.
    """
    model = registry.module("scheme", scheme).Settings
    try:
        return model.model_validate(dict(settings))
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']} (given {e['input']!r})" for e in error.errors())
        known = ", ".join(model.model_fields) or "none"
        raise PartitionError(f"scheme '{scheme}': {found}. Its settings: {known}.") from error


def parts_of(membership: np.ndarray, clients: int) -> list[np.ndarray]:
    """The parts of an array [num_nodes] that holds each node's client, 0 to clients - 1."""
    order = np.argsort(membership, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(membership, minlength=clients))[:-1])


def _check(parts: list[np.ndarray], num_nodes: int, clients: int, overlaps: bool, where: str) -> None:
    empty = [client for client, nodes in enumerate(parts) if not len(nodes)]
    if len(parts) != clients or empty:
        raise PartitionError(
            f"{where}: the scheme made {len(parts) - len(empty)} clients with nodes. "
            "Ask for fewer clients or take another scheme."
        )
    for client, nodes in enumerate(parts):
        if nodes.dtype != np.int64 or (np.diff(nodes) <= 0).any() or nodes[0] < 0 or nodes[-1] >= num_nodes:
            raise ComponentError(
                f"{where}: the scheme returned, for client {client}, {nodes.dtype} ids {nodes[0]} to {nodes[-1]}; a "
                f"part is int64, strictly ascending, within 0 to {num_nodes - 1}."
            )
    times = np.bincount(np.concatenate(parts), minlength=num_nodes)
    if (times == 0).any():
        raise ComponentError(f"{where}: the scheme left out {(times == 0).sum()} nodes, the first {times.argmin()}.")
    if not overlaps and (times > 1).any():
        raise ComponentError(
            f"{where}: the scheme gave {(times > 1).sum()} nodes to several clients, the first {(times > 1).argmax()}; "
            "a scheme that means to declares OVERLAPS = True."
        )
