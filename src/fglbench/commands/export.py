"""`fglbench export FILE`: write the clients and roles of a cell to a file, for comparisons on the same partition."""

import argparse
from pathlib import Path
from typing import Any

from fglbench.commands import components, overrides, train
from fglbench.errors import FglbenchError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    parser.add_argument("file", metavar="FILE", help="file to write: .npz, .csv or .json")
    train.add_partition(parser)


def run(args: argparse.Namespace) -> int:
    """Make the partition if it is missing, write the file, and print how to use it.

    Args:
        args: the parsed options.

    Returns:
        Exit status 0.

    Raises:
        ConfigError: `--set` names an unknown setting, or the options contradict each other.
        ComponentError, DataError: no such component, or the dataset is unavailable.
        PartitionError: the partition cannot be made, or the file name has no known format.
        DiskError: the file cannot be written.
        FglbenchError: the task draws roles of its own, which a partition file cannot contain.
    """
    from fglbench.partition.files import check_format, write_partition
    from fglbench.partition.stored import StoredPartition
    from fglbench.records.split import load_split, read_split_card
    from fglbench.storage import check_writable, hash_file
    from fglbench.workflow.single import divide, one_cell

    path = Path(args.file)
    check_format(path)
    check_writable(path.parent)
    check_writable(Path(args.results))
    single = one_cell(values_of(args), Path(args.results))
    divide(single)
    folder = single.seed_folder("split")
    split = load_split(folder)
    if split.pairs is not None:
        raise FglbenchError(
            f"protocol.task: '{single.config.protocol.task.name}' draws its own roles, but a partition file contains "
            "only roles of nodes. Leave out '--set protocol.task=...'."
        )
    held_out_clients = tuple(read_split_card(folder).get("held_out_clients", ()))
    write_partition(
        path, StoredPartition(split.nodes, split.ptr, split.role, split.copy, split.held_out, held_out_clients)
    )
    print(
        f"{path}: {split.clients} clients with {len(split.nodes)} nodes and their roles, SHA-256 {hash_file(path)}\n\n"
        f"  partitions: [{{name: file, path: {path}}}]\n"
        f"  clients: [{split.clients}]\n"
        "  protocol: {split: {kind: file}}"
    )
    return 0


def values_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options as a configuration with one cell; its method and backbone do not affect the partition.

    Args:
        args: the parsed options.

    Returns:
        Values as in `config.yaml`, with one entry in each list.

    Raises:
        ConfigError: `--set` names an unknown setting.
        ComponentError, DataError: no such component.
    """
    components.use_folders(args.components)
    values: dict[str, Any] = {
        **train.partition_values(args),
        "methods": [{"name": "local"}],
        "backbones": [{"name": "mlp"}],
    }
    overrides.apply(args.assignments, values)
    return values
