"""Partitions: files of the scheme `file`, and datasets that come with a partition of their own."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fglbench import registry
from fglbench.config.entries import component_settings, selected
from fglbench.config.merge import grids_of, merged_protocol
from fglbench.config.partition_files import FILE, content_of
from fglbench.config.schema import Entry, Protocol, Study
from fglbench.datasets import catalogue
from fglbench.errors import FglbenchError, PartitionError
from fglbench.partition.files import read_partition
from fglbench.partition.stored import StoredPartition


def partition_file_problems(study: Study) -> list[str]:
    """Return the problems of partition files, and of the keys of the protocol that depend on the scheme.

    Args:
        study: a well-typed study; its partition files are read.

    Returns:
        One sentence for each problem, with its key first.
    """
    found: list[str] = []
    stored = cache(_stored)
    for grid in grids_of(study):
        counts = [count for count in study.clients if grid.clients is None or count in grid.clients]
        central = [
            label for label, entry in selected(study.methods, grid.methods) if _declares("method", entry, "CENTRALISED")
        ]
        for (_, dataset), (_, scheme) in product(
            selected(study.datasets, grid.datasets), selected(study.partitions, grid.partitions)
        ):
            try:
                own: Any = component_settings("scheme", scheme)
                protocol = merged_protocol(study, dataset)
                nodes = catalogue.get(dataset.name).counts_for(dataset.settings).nodes
            except (FglbenchError, ValidationError):
                continue  # the checks of entries report this
            found += _protocol_problems(scheme, protocol, central)
            if scheme.name == FILE:
                try:
                    partition = stored(own.path, own.sha256)
                except PartitionError as error:
                    found.append(f"partitions: {error}")
                    continue
                found += _content_problems(own.path, partition, protocol, dataset.name, nodes)
                found += [
                    f"clients[{study.clients.index(count)}]: {count}: '{own.path}' holds "
                    f"{partition.clients} clients, and 'file' takes these."
                    for count in counts
                    if count != partition.clients
                ]
    return list(dict.fromkeys(found))


def native_problems(study: Study) -> list[str]:
    """Return the problems of the scheme `native`.

    The scheme needs a dataset that comes with a partition, and the number of clients in that partition.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    found = []
    for grid in grids_of(study):
        if "native" not in (entry.name for _, entry in selected(study.partitions, grid.partitions)):
            continue
        counts = [count for count in study.clients if grid.clients is None or count in grid.clients]
        for _, entry in selected(study.datasets, grid.datasets):
            try:
                own = catalogue.get(entry.name).native_clients
            except FglbenchError:
                continue  # the checks of entries report this
            if not own:
                split = ", ".join(name for name in catalogue.names() if catalogue.get(name).native_clients)
                found.append(
                    f"partitions: 'native' needs a dataset that comes split, and '{entry.name}' does not. Those that "
                    f"do: {split}."
                )
            found += [
                f"clients[{study.clients.index(count)}]: {count}: '{entry.name}' comes split into {own} clients, and "
                "'native' takes these."
                for count in counts
                if own and count != own
            ]
    return list(dict.fromkeys(found))


def may_hold_out(scheme: Entry) -> bool:
    """Return whether a scheme can leave out nodes, which no client then owns.

    Args:
        scheme: an entry of `partitions`.

    Returns:
        Whether the scheme's file declares `LEAVES_OUT`; False for an unknown scheme.
    """
    return _declares("scheme", scheme, "LEAVES_OUT")


def _declares(kind: str, entry: Entry, name: str) -> bool:
    try:
        return bool(registry.declaration(kind, entry.name).constants.get(name, False))
    except FglbenchError:
        return False  # the checks of entries report this


def _stored(path: str, sha256: str | None) -> StoredPartition:
    content = content_of(path)
    if sha256 not in (None, content):
        raise PartitionError(
            f"{path} has the SHA-256 {content}, and sha256 {sha256} is asked for. Put that file there."
        )
    return read_partition(Path(path))


def _protocol_problems(scheme: Entry, protocol: Protocol, central: list[str]) -> Iterator[str]:
    of_file = protocol.split.kind == FILE
    if of_file and scheme.name != FILE:
        yield f"protocol.split.kind: 'file' takes the roles of the scheme 'file'; '{scheme.name}' has none: use ratios."
    for label in central if of_file else []:
        yield (
            f"protocol.split.kind: 'file' has roles for the nodes of its clients alone, and '{label}' trains on the "
            "whole graph; leave it out, or use another kind."
        )
    for label in central if protocol.global_test == "held_out" and protocol.split.held_out is None else []:
        yield (
            f"protocol.global_test: 'held_out': '{label}' trains on the whole graph, also on the nodes that the scheme "
            "holds out; leave it out, or hold out by protocol.split.held_out."
        )


def _content_problems(
    path: str, partition: StoredPartition, protocol: Protocol, dataset: str, nodes: int
) -> Iterator[str]:
    if partition.highest >= nodes:
        yield f"partitions: {path} names node {partition.highest}, and '{dataset}' has the nodes 0 to {nodes - 1}."
    if protocol.split.held_out is not None:
        yield f"protocol.split.held_out: {path} says itself which nodes are held out; leave it out."
    if protocol.split.kind == FILE and partition.role is None:
        yield f"protocol.split.kind: 'file': {path} has no roles; use ratios, or give it roles."
    if protocol.global_test == "held_out" and not len(partition.held_out):
        yield f"protocol.global_test: 'held_out': {path} holds no nodes out; use whole."
