"""What is wrong with the parts of a study that change its settings: entries, grids and overrides."""

from typing import Any

from pydantic import ValidationError

from fglbench.config import problems as wording
from fglbench.config.entries import (
    aggregation_entry,
    chosen,
    component_settings,
    labels,
    sampler_entry,
    seed_list,
    settings_class,
    with_settings,
)
from fglbench.config.merge import merged_protocol
from fglbench.config.schema import Entry, Override, Protocol, Range, Search, Study, Training
from fglbench.errors import FglbenchError, suggest
from fglbench.settings import OF_ENTRIES

_MOST = 2**63 - 1  # what a table of records holds
PARTS = ("settings", "backbone_settings", "training")
PROTOCOL = ("split", "setting", "features", "task")
"""What of the protocol may differ by dataset; the rest tells how tables are to be read."""


def change_problems(study: Study) -> list[str]:
    """Values that are not in the study, and settings that do not fit what they are for."""
    found: list[str] = []
    for key, entries in (("datasets", study.datasets), ("methods", study.methods), ("backbones", study.backbones)):
        for index, entry in enumerate(entries):
            found += training_problems(study, f"{key}[{index}].training", entry.training)
            if key == "datasets":
                found += _protocol_problems(study, f"{key}[{index}].protocol", entry)
    for index, grid in enumerate(study.grids):
        where = f"grids[{index}]"
        for key in ("datasets", "partitions", "methods", "backbones"):
            found += _unknown(f"{where}.{key}", getattr(grid, key), getattr(study, key))
        found += [
            f"{where}.clients: {count} is not among the study's clients: {', '.join(map(str, study.clients))}."
            for count in grid.clients or []
            if count not in study.clients
        ]
        if grid.seeds is not None:
            found += seed_problems(f"{where}.seeds", grid.seeds)
        found += training_problems(study, f"{where}.training", grid.training)
    for index, override in enumerate(study.overrides):
        found += override_problems(study, f"overrides[{index}]", override)
    return found + _tune_problems(study)


def _tune_problems(study: Study) -> list[str]:
    """What is wrong with the searches; a search on reported seeds would choose by what is reported."""
    if study.tune is None:
        return []
    lists = [study.seeds, *(grid.seeds for grid in study.grids if grid.seeds is not None)]
    reported = {seed for seeds in lists for seed in seed_list(seeds)}
    found = seed_problems("tune.seeds", study.tune.seeds)
    found += [
        f"tune.seeds: {seed} is a seed of the study; search on others." for seed in study.tune.seeds if seed in reported
    ]
    found += _without_validation(study)
    found += _unknown("tune.partition", [study.tune.partition], study.partitions)
    if study.tune.clients not in study.clients:
        counts = ", ".join(map(str, study.clients))
        found.append(f"tune.clients: {study.tune.clients} is not among the study's clients: {counts}.")
    for index, search in enumerate(study.tune.searches):
        where = f"tune.searches[{index}]"
        for part in PARTS:
            for name, space in getattr(search, part).items():
                found += [f"{where}.{part}.{name}: {problem}" for problem in _range_problems(space)]
        for override in _extremes(search):
            found += override_problems(study, where, override)
    return list(dict.fromkeys(found))


def _without_validation(study: Study) -> list[str]:
    found = []
    for index, entry in enumerate(study.datasets):
        try:
            split = merged_protocol(study, entry).split
        except ValidationError:
            continue  # said where the entry stands
        if split.kind != "public" and not split.val:
            own = isinstance(entry.protocol.get("split"), dict) and "val" in entry.protocol["split"]
            key = f"datasets[{index}].protocol.split.val" if own else "protocol.split.val"
            found.append(f"tune: {key} is 0, so there is no validation score to choose by; give it a share.")
    return found


def _range_problems(space: list[Any] | Range) -> list[str]:
    found = []
    if isinstance(space, Range) and space.low > space.high:
        found.append(f"low {space.low} is above high {space.high}.")
    if isinstance(space, Range) and space.log and space.low <= 0:
        found.append(f"low {space.low} has no logarithm; give a low above 0, or 'log: false'.")
    return found


def _extremes(search: Search) -> list[Override]:
    """Overrides that between them hold every listed value and both ends of every range."""
    values = {
        part: {
            name: [space.low, space.high] if isinstance(space, Range) else space
            for name, space in getattr(search, part).items()
        }
        for part in PARTS
    }
    longest = max((len(found) for part in values.values() for found in part.values()), default=1)
    chosen_for = {key: getattr(search, key) for key in ("datasets", "backbones", "methods")}
    return [
        Override.model_validate(
            {**chosen_for, **{p: {n: found[i % len(found)] for n, found in part.items()} for p, part in values.items()}}
        )
        for i in range(longest)
    ]


def override_problems(study: Study, where: str, override: Override) -> list[str]:
    """What is wrong with one override; `where` names it."""
    found = []
    for key in ("datasets", "methods", "backbones"):
        found += _unknown(f"{where}.{key}", getattr(override, key), getattr(study, key))
    if strangers := set(override.clients or ()) - set(study.clients):
        counts = ", ".join(map(str, study.clients))
        found.append(f"{where}.clients: {min(strangers)} is not among the study's clients: {counts}.")
    if not (override.settings or override.backbone_settings or override.training):
        found.append(f"{where}: changes nothing; give it settings, backbone_settings or training.")
    found += training_problems(study, f"{where}.training", override.training)
    for kind, key, values in (
        ("method", "methods", override.settings),
        ("backbone", "backbones", override.backbone_settings),
    ):
        name = "settings" if kind == "method" else "backbone_settings"
        if values and getattr(override, key) is None:
            found.append(f"{where}.{name}: say for which {kind}s, under '{where}.{key}'.")
        elif values:
            for _, entry in chosen(getattr(study, key), getattr(override, key)):
                found += _setting_problems(kind, entry, values, f"{where}.{name}")
    return list(dict.fromkeys(found))


def seed_problems(key: str, seeds: int | list[int]) -> list[str]:
    """What is wrong with a number or list of seeds."""
    if isinstance(seeds, int):
        return [f"{key}: {seeds} seeds cannot be run; give 1 or more."] if seeds < 1 else []
    empty = [] if seeds else [f"{key}: the list is empty; give at least one seed."]
    negative = [f"{key}[{i}]: {seed} is negative." for i, seed in enumerate(seeds) if seed < 0]
    large = [f"{key}[{i}]: {seed} is too large; give at most {_MOST}." for i, seed in enumerate(seeds) if seed > _MOST]
    return [*_twice(key, seeds), *empty, *negative, *large]


def training_problems(study: Study, where: str, values: dict[str, Any]) -> list[str]:
    """What is wrong with some keys of `training`."""
    try:
        Training.model_validate({**study.training.model_dump(), **values})
    except ValidationError as error:
        return [text.removeprefix(": ") for text in wording.sentences(error, Training, "", where)]
    return []


def _protocol_problems(study: Study, where: str, entry: Entry) -> list[str]:
    """What is wrong with the keys of `protocol` that a dataset has otherwise."""
    common = [key for key in entry.protocol if key in Protocol.model_fields and key not in PROTOCOL]
    if common:
        return [f"{where}.{key}: the same for all datasets; valid here: {', '.join(PROTOCOL)}." for key in common]
    try:
        merged_protocol(study, entry)
    except ValidationError as error:
        return [text.removeprefix(": ") for text in wording.sentences(error, Protocol, "", where)]
    return []


def settings_problems(where: str, kind: str, entry: Entry) -> list[str]:
    """What is wrong with the settings of an entry, and with those of a component that they name: the method that
    aggregates for it, or the sampler that it reads through."""
    if found := _own_problems(where, kind, entry):
        return found
    settings = component_settings(kind, entry)
    for key, named, entry_in in (("aggregation", "method", aggregation_entry), ("sampler", "sampler", sampler_entry)):
        try:
            inner = entry_in(settings)
        except FglbenchError as error:
            return [f"{where}.{key}: {error}"]
        if inner:
            return settings_problems(f"{where}.{key}_settings", named, inner)
    return []


def _own_problems(where: str, kind: str, entry: Entry) -> list[str]:
    try:
        component_settings(kind, entry)
    except ValidationError as error:
        model = settings_class(kind, entry.name)
        return [text.removeprefix(": ") for text in wording.sentences(error, model, "", where)]
    except FglbenchError as error:
        return [f"{where}: {error}"]
    return []


def _setting_problems(kind: str, entry: Entry, values: dict[str, Any], where: str) -> list[str]:
    """What is wrong with settings that an entry is given from elsewhere; its own are judged where it stands."""
    if wrong := [key for key in values if key in OF_ENTRIES]:
        return [f"{where}: '{key}' is no setting of a {kind}." for key in wrong]
    if settings_problems("", kind, entry):
        return []
    # Alone, for what the entry states itself hides it; together, for its aggregation may be that of the entry.
    alone, together = with_settings(entry, values), with_settings(entry, {**values, **entry.settings})
    return _own_problems(where, kind, alone) or settings_problems(where, kind, together)


def _unknown(where: str, wanted: list[str] | None, entries: list[Entry]) -> list[str]:
    known = dict.fromkeys([*labels(entries), *(entry.name for entry in entries)])
    return [
        f"{where}: '{name}' is not in this study. {suggest(name, known)}" for name in wanted or [] if name not in known
    ]


def _twice(key: str, seeds: list[int]) -> list[str]:
    return [
        f"{key}: {seed} is listed {seeds.count(seed)} times." for seed in dict.fromkeys(seeds) if seeds.count(seed) > 1
    ]
