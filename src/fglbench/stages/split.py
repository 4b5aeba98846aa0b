"""Assign nodes to clients, draw the roles of nodes, and store both with the partition card, seed by seed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fglbench import registry
from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError, StorageError
from fglbench.partition.base import assign_clients, scheme_settings
from fglbench.partition.card import partition_card
from fglbench.partition.split import SplitSettings, draw_held_out, refuse_empty
from fglbench.records.component_files import Trust, changes, own_file
from fglbench.records.graph import load_graph
from fglbench.records.split import SPLIT_ARRAYS, read_split_card, save_split
from fglbench.storage import exclusive, hash_arrays, hash_file
from fglbench.tasks import task_of


def split(
    graph_folder: Path,
    spec: Mapping[str, Any],
    seeds: list[int],
    folder: Path,
    *,
    file: str | None = None,
    keep_going: bool = False,
    trust: Trust = "again",
) -> dict[int, str]:
    """Write `seed<k>/split.npz` and `seed<k>/card.json` in `folder` for every seed that lacks them.

    The folder of a seed appears complete or not at all. An existing folder is kept if it was made by the same request
    from the same graph, and its content matches its checksum.

    Args:
        graph_folder: holds the canonical graph.
        spec: `dataset` (its name, or a mapping with `name`), `scheme`, `clients`, `settings` (of the scheme),
            `split` (of the roles), and `task` if the task draws its own roles.
        seeds: the cell seeds.
        folder: of the partition.
        file: path of the file that the scheme `file` reads; None for other schemes.
        keep_going: whether to continue with the other seeds after the partition of one seed failed.
        trust: what to do if the user's scheme file changed and its VERSION did not: "again" makes the split again,
            "warn" keeps it.

    Returns:
        With `keep_going`, the reason for every seed whose partition cannot be made; else empty.

    Raises:
        PartitionError: a partition cannot be made, and `keep_going` is false. Nothing is written for its seed.
        ComponentError: the scheme is unknown, or it or its result breaks the contract.
        StorageError: the graph cannot be read.
    """
    graph = load_graph(graph_folder, features=False)
    files, refused = own_file("scheme", spec["scheme"]), dict[int, str]()
    for seed in seeds:
        target = Path(folder) / f"seed{seed}"
        request = _request(graph, spec, seed)
        with exclusive(target):
            if _finished(target, request, files, trust):
                continue
            try:
                _make(graph, request, file, files, target)
            except PartitionError as error:
                if not keep_going:
                    raise
                refused[seed] = str(error)
    return refused


def _request(graph: Graph, spec: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return everything that decides a split: the resolved specification, the seed, and a hash of the graph."""
    dataset, scheme = spec["dataset"], spec["scheme"]
    content = {"edges": graph.edges, "labels": graph.labels, **{f"mask_{k}": mask for k, mask in graph.masks.items()}}
    if graph.clients is not None:
        content["clients"] = graph.clients
    task = {"task": spec["task"]} if "task" in spec else {}
    return {
        "dataset": dataset if isinstance(dataset, str) else dataset["name"],
        "scheme": scheme,
        "version": registry.declaration("scheme", scheme).version,
        "settings": scheme_settings(scheme, spec["settings"]).model_dump(),
        "clients": spec["clients"],
        "split": SplitSettings.model_validate(dict(spec["split"])).spec(),
        **task,
        "seed": seed,
        "graph": hash_arrays(content),
    }


def _finished(target: Path, request: Mapping[str, Any], files: dict[str, str], trust: Trust) -> bool:
    """Return whether the stored split answers this request and is unaltered."""
    try:
        card = read_split_card(target)
        same = card["request"] == request and card["sha256"] == hash_file(target / SPLIT_ARRAYS)
        return same and not (trust == "again" and changes(card.get("component_files"), files))
    except (StorageError, OSError, KeyError, TypeError, AttributeError):
        return False


def _make(graph: Graph, request: Mapping[str, Any], file: str | None, files: dict[str, str], target: Path) -> None:
    """Make the split of one request and store it."""
    dataset, scheme, clients, seed = (request[key] for key in ("dataset", "scheme", "clients", "seed"))
    settings = SplitSettings.model_validate(request["split"])
    held_out = draw_held_out(graph.num_nodes, settings.held_out, seed, dataset)
    handed = np.setdiff1d(np.arange(graph.num_nodes), held_out)
    if len(held_out):
        graph = graph.induced(handed)
    chosen = request["settings"] | ({"path": file} if file else {})
    assignment = assign_clients(graph, dataset, scheme, clients, chosen, seed)
    roles = task_of(request).roles(graph, assignment, settings, seed, dataset, scheme)
    if settings.empty == "error":
        where = f"dataset '{dataset}', scheme '{scheme}', {clients} clients"
        refuse_empty(roles.counts, assignment.held_out_clients, where)
    held_out = np.union1d(held_out, handed[assignment.held_out])
    arrays = {
        "nodes": handed[np.concatenate(assignment.parts)],
        "ptr": np.cumsum([0, *map(len, assignment.parts)]).astype(np.int64),
        **roles.arrays,
    }
    card = partition_card(graph, assignment, roles.counts)
    if assignment.copies is not None:
        arrays["copy"] = np.concatenate(assignment.copies)
    if len(held_out):
        arrays["held_out"] = held_out
        card["held_out"] = len(held_out)
    if files:
        card["component_files"] = files
    card["request"] = dict(request)
    save_split(target, arrays, card)
