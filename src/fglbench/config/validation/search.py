"""Searches of settings: seeds, ranges, and the validation score that selects."""

from typing import Any

from pydantic import ValidationError

from fglbench.config.entries import seed_list
from fglbench.config.merge import merged_protocol
from fglbench.config.schema import PARTS, Override, Range, Search, Study
from fglbench.config.validation.entries import unknown_entries
from fglbench.config.validation.grids import seed_problems, unknown_clients
from fglbench.config.validation.overrides import override_problems


def search_problems(study: Study) -> list[str]:
    """Return the problems of a study's searches.

    The seeds of a search must not be reported ones, so that settings are not selected on reported numbers.

    Args:
        study: a well-typed study.

    Returns:
        One sentence for each problem, with its key first; empty if the study has no key `tune`.
    """
    if study.tune is None:
        return []
    lists = [study.seeds, *(grid.seeds for grid in study.grids if grid.seeds is not None)]
    reported = {seed for seeds in lists for seed in seed_list(seeds)}
    problems = seed_problems("tune.seeds", study.tune.seeds)
    problems += [
        f"tune.seeds: {seed} is a seed of the study; search on other seeds."
        for seed in study.tune.seeds
        if seed in reported
    ]
    problems += _without_validation(study)
    problems += unknown_entries("tune.partition", [study.tune.partition], study.partitions)
    problems += unknown_clients("tune.clients", [study.tune.clients], study)
    for index, search in enumerate(study.tune.searches):
        where = f"tune.searches[{index}]"
        for part in PARTS:
            for name, space in getattr(search, part).items():
                problems += [f"{where}.{part}.{name}: {problem}" for problem in _range_problems(space)]
        for override in _extremes(search):
            problems += override_problems(study, where, override)
    return list(dict.fromkeys(problems))


def _without_validation(study: Study) -> list[str]:
    problems = []
    for index, entry in enumerate(study.datasets):
        try:
            split = merged_protocol(study, entry).split
        except ValidationError:
            continue  # the checks of entries report this
        if split.kind != "public" and not split.val:
            in_entry = isinstance(entry.protocol.get("split"), dict) and "val" in entry.protocol["split"]
            key = f"datasets[{index}].protocol.split.val" if in_entry else "protocol.split.val"
            problems.append(f"tune: {key} is 0, so there is no validation score to select settings by; set it above 0.")
    return problems


def _range_problems(space: list[Any] | Range) -> list[str]:
    problems = []
    if isinstance(space, Range) and space.low > space.high:
        problems.append(f"low {space.low} is above high {space.high}.")
    if isinstance(space, Range) and space.log and space.low <= 0:
        problems.append(f"low {space.low} has no logarithm; set low above 0, or 'log: false'.")
    return problems


def _extremes(search: Search) -> list[Override]:
    """Return overrides that together contain every listed value and both ends of every range."""
    spaces = [(part, name, _ends(space)) for part in PARTS for name, space in getattr(search, part).items()]
    selected = {key: getattr(search, key) for key in ("datasets", "backbones", "methods")}
    overrides = []
    for position in range(max((len(values) for *_, values in spaces), default=1)):
        settings: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
        for part, name, values in spaces:
            settings[part][name] = values[position % len(values)]
        overrides.append(Override.model_validate({**selected, **settings}))
    return overrides


def _ends(space: list[Any] | Range) -> list[Any]:
    """Return both ends of a range, or all values of a list."""
    return [space.low, space.high] if isinstance(space, Range) else space
