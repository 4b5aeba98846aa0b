"""Grids, seeds and numbers of clients."""

from collections.abc import Iterable

from pydantic import ValidationError

from fglbench.config.entries import selected
from fglbench.config.merge import grids_of, merged_protocol
from fglbench.config.schema import Study
from fglbench.config.validation.entries import unknown_entries
from fglbench.config.validation.training import training_problems
from fglbench.datasets import catalogue
from fglbench.errors import FglbenchError
from fglbench.partition.split import held_out_nodes

_MOST = 2**63 - 1  # the largest int64, because records store seeds as int64


def grid_problems(study: Study) -> list[str]:
    """Return the problems of a study's grids: values that the study does not have, seeds, training.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems: list[str] = []
    for index, grid in enumerate(study.grids):
        where = f"grids[{index}]"
        for key in ("datasets", "partitions", "methods", "backbones"):
            problems += unknown_entries(f"{where}.{key}", getattr(grid, key), getattr(study, key))
        problems += unknown_clients(f"{where}.clients", grid.clients or [], study)
        if grid.seeds is not None:
            problems += seed_problems(f"{where}.seeds", grid.seeds)
        problems += training_problems(study, f"{where}.training", grid.training)
    return problems


def unknown_clients(where: str, counts: Iterable[int], study: Study) -> list[str]:
    """Return a problem for each number of clients that a study does not have.

    Args:
        where: key of the numbers.
        counts: numbers of clients.
        study: a well-typed study.

    Returns:
        One sentence for each unknown number.
    """
    valid = ", ".join(map(str, study.clients))
    return [
        f"{where}: {count} is not among the study's clients: {valid}." for count in counts if count not in study.clients
    ]


def seed_problems(key: str, seeds: int | list[int]) -> list[str]:
    """Return the problems of a number or a list of seeds.

    Args:
        key: key of the seeds.
        seeds: number of seeds, or a list of seeds.

    Returns:
        One sentence for each problem, with its key first.
    """
    if isinstance(seeds, int):
        return [f"{key}: {seeds} seeds cannot be run; give 1 or more."] if seeds < 1 else []
    empty = [] if seeds else [f"{key}: the list is empty; give at least one seed."]
    negative = [f"{key}[{i}]: {seed} is negative; give 0 or more." for i, seed in enumerate(seeds) if seed < 0]
    large = [f"{key}[{i}]: {seed} is too large; give at most {_MOST}." for i, seed in enumerate(seeds) if seed > _MOST]
    return [*_repeated_seeds(key, seeds), *empty, *negative, *large]


def _repeated_seeds(key: str, seeds: list[int]) -> list[str]:
    return [
        f"{key}: {seed} is listed {seeds.count(seed)} times." for seed in dict.fromkeys(seeds) if seeds.count(seed) > 1
    ]


def client_problems(study: Study) -> list[str]:
    """Return the problems of a study's numbers of clients: below 1, or more than a dataset has nodes for the clients.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first.
    """
    problems = [
        f"clients[{i}]: {count}: a federation has at least 1 client."
        for i, count in enumerate(study.clients)
        if count < 1
    ]
    for label, entry in selected(study.datasets, None):
        try:
            nodes = catalogue.get(entry.name).counts_for(entry.settings).nodes
            held_out = merged_protocol(study, entry).split.held_out
        except (FglbenchError, ValidationError):
            continue  # the checks of entries report this
        shared = nodes - held_out_nodes(nodes, held_out)
        which = f"{shared} nodes of '{entry.name}'" + (" that are not held out" if shared < nodes else "")
        grids = [grid for grid in grids_of(study) if not grid.datasets or {label, entry.name} & set(grid.datasets)]
        problems += [
            f"clients[{i}]: {count} clients cannot share the {which}."
            for i, count in enumerate(study.clients)
            if count > shared and any(grid.clients is None or count in grid.clients for grid in grids)
        ]
    return problems
