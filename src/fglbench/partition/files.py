"""Partition files, read by the scheme `file` and written by `fglbench export`; see docs/partitions.md."""

import csv
import json
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fglbench.errors import PartitionError, suggest
from fglbench.partition.stored import HELD_OUT, ROLE_NAMES, Rows, StoredPartition, checked
from fglbench.storage import write_npz, write_text

_COLUMNS = ("node", "client", "role", "copy", HELD_OUT)
_ARRAYS = ("nodes", "ptr", "role", "copy", HELD_OUT, "held_out_clients")
_KEYS, _CLIENT_KEYS = ("clients", HELD_OUT), ("nodes", "roles", "copies", HELD_OUT)
_YES_NO = {"": False, "0": False, "1": True}


def read_partition(path: Path) -> StoredPartition:
    """Read a partition from an .npz, .csv or .json file.

    Args:
        path: of the file.

    Returns:
        The checked partition.

    Raises:
        PartitionError: the file is missing, not in its format, or inconsistent; the message names the place in the
            file.
    """
    path = Path(path)
    check_format(path)
    try:
        rows = _READERS[path.suffix](path)
    except FileNotFoundError as error:
        raise PartitionError(
            f"{path} is missing. Set 'path' of the scheme 'file' to a partition file, as an absolute path or relative "
            "to the working directory."
        ) from error
    except (OSError, ValueError, OverflowError, EOFError, zipfile.BadZipFile, csv.Error) as error:
        raise PartitionError(
            f"{path} cannot be read as {path.suffix[1:]} ({error}). See docs/partitions.md."
        ) from error
    return checked(rows, path)


def write_partition(path: Path, partition: StoredPartition) -> None:
    """Write a partition in the format that the suffix of the file name selects.

    Args:
        path: of the file; its name ends in .npz, .csv or .json.
        partition: to write.

    Raises:
        PartitionError: the suffix is another one.
        DiskError: the file is not writable.
    """
    check_format(path)
    _WRITERS[path.suffix](path, partition)


def check_format(path: Path) -> None:
    """Check that the suffix of a file name is a format of partition files.

    Args:
        path: of the file; it need not exist.

    Raises:
        PartitionError: the suffix is not .npz, .csv or .json.
    """
    if path.suffix not in _READERS:
        raise PartitionError(
            f"{path}: the name of a partition file ends in one of {', '.join(_READERS)}. Use a file in one of these "
            "formats; see docs/partitions.md."
        )


def _from_npz(path: Path) -> Rows:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
        arrays: dict[str, np.ndarray] = {name: archive[name] for name in archive.files}
    _check_names(path, "array", arrays, _ARRAYS, needed=2)
    for name, array in arrays.items():
        if array.ndim != 1 or (array.dtype.kind not in "iub" and array.size):
            raise PartitionError(
                f"{path}: array '{name}' is {array.dtype} {list(array.shape)}; expected a 1-D integer array."
            )
    nodes, ptr = arrays["nodes"].astype(np.int64), arrays["ptr"].astype(np.int64)
    if len(ptr) < 2 or ptr[0] != 0 or (np.diff(ptr) < 0).any() or ptr[-1] != len(nodes):
        raise PartitionError(
            f"{path}: array 'ptr' must start at 0, never decrease, and end at {len(nodes)}, the length of 'nodes'."
        )
    for name in ("role", "copy"):
        if name in arrays and len(arrays[name]) != len(nodes):
            raise PartitionError(f"{path}: array '{name}' has {len(arrays[name])} entries; 'nodes' has {len(nodes)}.")
    role = arrays.get("role")
    if role is not None and not np.isin(role, range(len(ROLE_NAMES))).all():
        raise PartitionError(f"{path}: array 'role' contains {role[~np.isin(role, range(4))][0]}; roles are 0 to 3.")
    return Rows(
        np.repeat(np.arange(len(ptr) - 1), np.diff(ptr)),
        nodes,
        role,
        None if "copy" not in arrays else arrays["copy"].astype(bool),
        arrays.get(HELD_OUT, np.zeros(0)).astype(np.int64),
        set(arrays.get("held_out_clients", np.zeros(0)).astype(np.int64).tolist()),
        lambda row: f"array 'nodes', entry {row}",
    )


def _from_csv(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, restval="")
        _check_names(path, "column", reader.fieldnames or (), _COLUMNS, needed=2)
        named = set(reader.fieldnames or ())
        entries: list[tuple[int, int, int, bool]] = []
        lines, held_out, unseen = list[int](), list[int](), set[int]()
        for row in reader:
            if None in row:
                raise PartitionError(f"{path}: line {reader.line_num} has more fields than the first line.")
            read = partial(_cell, path, reader.line_num, row)
            node, is_held_out = read("node", _number), read(HELD_OUT, _YES_NO.__getitem__)
            if is_held_out and row["client"] == "":
                held_out.append(node)
                continue
            client = read("client", _number)
            entries.append((client, node, read("role", _role_code), read("copy", _YES_NO.__getitem__)))
            lines.append(reader.line_num)
            unseen |= {client} if is_held_out else set()
    client, node, role, copy = np.array(entries, dtype=np.int64).reshape(-1, 4).T
    return Rows(
        client,
        node,
        role if "role" in named else None,
        copy.astype(bool) if "copy" in named else None,
        np.array(held_out, dtype=np.int64),
        unseen,
        lambda row: f"line {lines[row]}",
    )


def _from_json(path: Path) -> Rows:
    content = json.loads(path.read_text(encoding="utf-8"))
    clients = content.get("clients") if isinstance(content, dict) else None
    if not isinstance(clients, list) or not all(isinstance(client, dict) for client in clients):
        raise PartitionError(f"{path}: 'clients' must be a list with one mapping per client. See docs/partitions.md.")
    _check_names(path, "key", content, _KEYS, needed=1)
    nodes, roles, copies, positions = list[int](), list[int](), list[bool](), list[str]()
    for number, client in enumerate(clients):
        at = f"clients[{number}]"
        _check_names(path, f"{at}: key", client, _CLIENT_KEYS, needed=1)
        if not isinstance(client.get(HELD_OUT, False), bool):
            raise PartitionError(f"{path}: {at}.{HELD_OUT} must be true or false, not {client[HELD_OUT]!r}.")
        part = _numbers(path, f"{at}.nodes", client["nodes"])
        names = client.get("roles", ["none"] * len(part))
        if not isinstance(names, list) or len(names) != len(part) or not all(name in ROLE_NAMES for name in names):
            raise PartitionError(
                f"{path}: {at}.roles must list one of {', '.join(ROLE_NAMES)} for each of {len(part)} nodes."
            )
        copied = set(_numbers(path, f"{at}.copies", client.get("copies", [])))
        if strangers := copied - set(part):
            raise PartitionError(f"{path}: {at}.copies contains node {min(strangers)}, which is not in {at}.nodes.")
        nodes += part
        roles += map(ROLE_NAMES.index, names)
        copies += [node in copied for node in part]
        positions += [f"{at}.nodes[{index}]" for index in range(len(part))]
    return Rows(
        np.repeat(np.arange(len(clients)), [len(client["nodes"]) for client in clients]),
        np.array(nodes, dtype=np.int64),
        np.array(roles) if any("roles" in client for client in clients) else None,
        np.array(copies, dtype=bool) if any("copies" in client for client in clients) else None,
        np.array(_numbers(path, HELD_OUT, content.get(HELD_OUT, [])), dtype=np.int64),
        {number for number, client in enumerate(clients) if client.get(HELD_OUT, False)},
        positions.__getitem__,
    )


def _check_names(path: Path, what: str, names: Iterable[str], valid: tuple[str, ...], *, needed: int) -> None:
    """Raise an error for unknown names, and for missing ones among the first `needed` valid names."""
    given = list(names)
    for name in given:
        if name not in valid:
            raise PartitionError(f"{path}: {what} '{name}' is not valid. {suggest(name, valid)}")
    for name in valid[:needed]:
        if name not in given:
            raise PartitionError(f"{path}: {what} '{name}' is missing. Valid: {', '.join(valid)}.")


def _cell(path: Path, line: int, row: dict[str, str], column: str, read: Callable[[str], Any]) -> Any:
    text = row.get(column, "")
    try:
        return read(text.strip())
    except (ValueError, KeyError) as error:
        valid = {"role": "train, val, test or empty", "copy": "0 or 1", HELD_OUT: "0 or 1"}
        raise PartitionError(
            f"{path}: line {line}: column '{column}': '{text}' is not {valid.get(column, 'a whole number from 0')}."
        ) from error


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def _role_code(text: str) -> int:
    return ROLE_NAMES.index(text or "none")


def _numbers(path: Path, key: str, value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise PartitionError(f"{path}: {key} must be a list of node ids, whole numbers from 0.")
    return value


def _to_npz(path: Path, partition: StoredPartition) -> None:
    arrays = {"nodes": partition.nodes, "ptr": partition.ptr}
    arrays |= {} if partition.role is None else {"role": partition.role}
    arrays |= {} if partition.copy is None else {"copy": partition.copy}
    arrays |= {HELD_OUT: partition.held_out} if len(partition.held_out) else {}
    if partition.held_out_clients:
        arrays["held_out_clients"] = np.array(partition.held_out_clients)
    write_npz(path, arrays)


def _to_csv(path: Path, partition: StoredPartition) -> None:
    holds_out = len(partition.held_out) > 0 or len(partition.held_out_clients) > 0
    columns: dict[str, list[Any]] = {
        "node": partition.nodes.tolist(),
        "client": np.repeat(np.arange(partition.clients), np.diff(partition.ptr)).tolist(),
    }
    if partition.role is not None:
        columns["role"] = [ROLE_NAMES[code] if code else "" for code in partition.role.tolist()]
    if partition.copy is not None:
        columns["copy"] = partition.copy.astype(int).tolist()
    if holds_out:
        columns[HELD_OUT] = [int(client in partition.held_out_clients) for client in columns["client"]]
    lines = [columns, *zip(*columns.values(), strict=True)]
    lines += [(node, *[""] * (len(columns) - 2), 1) for node in partition.held_out.tolist()]
    write_text(path, "".join(",".join(map(str, line)) + "\n" for line in lines))


def _to_json(path: Path, partition: StoredPartition) -> None:
    clients = []
    for number, (start, stop) in enumerate(zip(partition.ptr, partition.ptr[1:], strict=False)):
        client: dict[str, Any] = {"nodes": partition.nodes[start:stop].tolist()}
        if partition.role is not None:
            client["roles"] = [ROLE_NAMES[code] for code in partition.role[start:stop]]
        if partition.copy is not None:
            client["copies"] = partition.nodes[start:stop][partition.copy[start:stop]].tolist()
        if number in partition.held_out_clients:
            client[HELD_OUT] = True
        clients.append(client)
    content: dict[str, Any] = {"clients": clients}
    if len(partition.held_out):
        content[HELD_OUT] = partition.held_out.tolist()
    write_text(path, json.dumps(content) + "\n")


_READERS = {".npz": _from_npz, ".csv": _from_csv, ".json": _from_json}
_WRITERS = {".npz": _to_npz, ".csv": _to_csv, ".json": _to_json}
