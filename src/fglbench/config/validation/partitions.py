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
    problems: list[str] = []
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
                settings: Any = component_settings("scheme", scheme)
                protocol = merged_protocol(study, dataset)
                nodes = catalogue.get(dataset.name).counts_for(dataset.settings).nodes
            except (FglbenchError, ValidationError):
                continue  # the checks of entries report this
            problems += _protocol_problems(scheme, protocol, central)
            if scheme.name == FILE:
                try:
                    partition = stored(settings.path, settings.sha256)
                except PartitionError as error:
                    problems.append(f"partitions: {error}")
                    continue
                problems += _content_problems(settings.path, partition, protocol, dataset.name, nodes)
                problems += [
                    f"clients[{study.clients.index(count)}]: {count}: '{settings.path}' contains "
                    f"{partition.clients} clients; with the scheme 'file', give that number."
                    for count in counts
                    if count != partition.clients
                ]
    return list(dict.fromkeys(problems))


def native_problems(study: Study) -> list[str]:
    """Return the problems of the scheme `native`.

    The scheme needs a dataset that comes with a partition, and the number of clients in that partition.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems = []
    for grid in grids_of(study):
        if "native" not in (entry.name for _, entry in selected(study.partitions, grid.partitions)):
            continue
        counts = [count for count in study.clients if grid.clients is None or count in grid.clients]
        for _, entry in selected(study.datasets, grid.datasets):
            try:
                expected = catalogue.get(entry.name).native_clients
            except FglbenchError:
                continue  # the checks of entries report this
            if not expected:
                partitioned = ", ".join(name for name in catalogue.names() if catalogue.get(name).native_clients)
                problems.append(
                    f"partitions: 'native' needs a dataset with a partition, and '{entry.name}' has none. Datasets "
                    f"with one: {partitioned}."
                )
            problems += [
                f"clients[{study.clients.index(count)}]: {count}: the partition of '{entry.name}' has {expected} "
                "clients; with the scheme 'native', give that number."
                for count in counts
                if expected and count != expected
            ]
    return list(dict.fromkeys(problems))


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
            f"{path} has the SHA-256 {content}, and the setting sha256 expects {sha256}. Put the expected file "
            "there, or correct the setting."
        )
    return read_partition(Path(path))


def _protocol_problems(scheme: Entry, protocol: Protocol, central: list[str]) -> Iterator[str]:
    of_file = protocol.split.kind == FILE
    if of_file and scheme.name != FILE:
        yield (
            "protocol.split.kind: 'file' reads the roles from the file of the scheme 'file', and the scheme "
            f"'{scheme.name}' has no file; use ratios."
        )
    for label in central if of_file else []:
        yield (
            f"protocol.split.kind: 'file' has roles only for the nodes of its clients, and '{label}' trains on the "
            f"whole graph; leave out '{label}', or use another kind."
        )
    for label in central if protocol.global_test == "held_out" and protocol.split.held_out is None else []:
        yield (
            f"protocol.global_test: 'held_out': '{label}' trains on the whole graph, also on the nodes that the scheme "
            f"holds out; leave out '{label}', or hold nodes out with protocol.split.held_out."
        )


def _content_problems(
    path: str, partition: StoredPartition, protocol: Protocol, dataset: str, nodes: int
) -> Iterator[str]:
    if partition.highest >= nodes:
        yield f"partitions: {path} names node {partition.highest}, and '{dataset}' has the nodes 0 to {nodes - 1}."
    if protocol.split.held_out is not None:
        yield f"protocol.split.held_out: {path} already lists the held-out nodes; leave out this key."
    if protocol.split.kind == FILE and partition.role is None:
        yield f"protocol.split.kind: 'file': {path} has no roles; use ratios, or add roles to the file."
    if protocol.global_test == "held_out" and not len(partition.held_out):
        yield f"protocol.global_test: 'held_out': {path} has no held-out nodes; use whole."
