"""The searches of a study: which settings are tried for each dataset, backbone and method."""

from dataclasses import dataclass
from itertools import product
from typing import Any

from fglbench.config.entries import selected
from fglbench.config.expand import expand
from fglbench.config.identity import slug
from fglbench.config.merge import Combination, grids_of, matching, overrides_at, tasks_shown
from fglbench.config.schema import PARTS, Entry, Grid, Override, Range, Study, Tune
from fglbench.tasks import selecting_metric

Space = dict[str, list[Any] | Range]


@dataclass(frozen=True)
class SearchPlan:
    """One search.

    Attributes:
        at: dataset, backbone and method with their labels.
        space: from "<part>.<name>", such as "settings.mu", to values or a range.
        trial_study: the study of one trial without the tried settings: this combination on the search's seeds.
        slug: names the search; covers everything that decides its numbers.
    """

    at: Combination
    space: Space
    trial_study: Study
    slug: str

    @property
    def place(self) -> dict[str, str]:
        """The labels, by axis."""
        return {"dataset": self.at.dataset[0], "backbone": self.at.backbone[0], "method": self.at.method[0]}

    def override(self, tried: dict[str, Any]) -> Override:
        """Tried settings, by the names of `space`, as an override for this combination."""
        values: dict[str, Any] = {f"{axis}s": [label] for axis, label in self.place.items()}
        for name, value in tried.items():
            part, _, key = name.partition(".")
            values.setdefault(part, {})[key] = value
        return Override.model_validate(values)

    @property
    def metric(self) -> str:
        """The score that it maximises."""
        return selecting_metric(tasks_shown(self.trial_study)[0])

    def trial(self, tried: dict[str, Any]) -> Study:
        """The study of one trial."""
        overrides = [*self.trial_study.overrides, self.override(tried)]
        return self.trial_study.model_copy(update={"overrides": overrides})


def plan_searches(study: Study) -> list[SearchPlan]:
    """Every search that the study's `tune` asks for; none where it has no such key."""
    tune = study.tune
    if tune is None:
        return []
    found: dict[tuple[str, str, str], SearchPlan] = {}
    for grid in grids_of(study):
        if not _schemes(study, grid) or (grid.clients is not None and tune.clients not in grid.clients):
            continue
        axes = ((study.datasets, grid.datasets), (study.backbones, grid.backbones), (study.methods, grid.methods))
        for dataset, backbone, method in product(*(selected(entries, wanted) for entries, wanted in axes)):
            at = Combination(dataset, backbone, method, tune.clients)
            space = _space(study, tune, at)
            key = (dataset[0], backbone[0], method[0])
            if space and key not in found:
                found[key] = _search(study, tune, grid, at, space)
    return list(found.values())


def _schemes(study: Study, grid: Grid) -> list[tuple[str, Entry]]:
    """Those of a grid that the searches are for."""
    wanted = selected(study.partitions, [study.tune.partition] if study.tune else [])
    return [scheme for scheme in selected(study.partitions, grid.partitions) if scheme in wanted]


def _space(study: Study, tune: Tune, at: Combination) -> Space:
    """What is searched for a combination, without what its entries state themselves."""
    own: dict[str, Any] = {"settings": at.method[1].settings, "training": at.method[1].training}
    own["backbone_settings"] = {**at.backbone[1].settings, **at.method[1].training}
    return {
        f"{part}.{name}": values
        for search in matching(study, tune.searches, at)
        for part in PARTS
        for name, values in getattr(search, part).items()
        if name not in own[part]
    }


def _unsearched(override: Override, space: Space) -> Override:
    """An override without what is searched: every trial sets that itself, also where an earlier search has found it."""
    parts = {
        part: {name: value for name, value in getattr(override, part).items() if f"{part}.{name}" not in space}
        for part in PARTS
    }
    return override.model_copy(update={**parts, "clients": None})  # the search has one number of clients


def _search(study: Study, tune: Tune, grid: Grid, at: Combination, space: Space) -> SearchPlan:
    def alone(entry: tuple[str, Entry]) -> list[Entry]:
        return [entry[1].model_copy(update={"label": entry[0]})]

    one = study.model_copy(
        update={
            "datasets": alone(at.dataset),
            "backbones": alone(at.backbone),
            "methods": alone(at.method),
            "partitions": alone(_schemes(study, grid)[0]),
            "clients": [tune.clients],
            "seeds": tune.seeds,
            "grids": [Grid(training=grid.training)],
            "overrides": [_unsearched(override, space) for override in overrides_at(study, at)],
            "tune": None,
            "tuned": None,
            "tables": [],
            "figures": [],
            "reference": None,
        }
    )
    plain = {name: values.model_dump() if isinstance(values, Range) else values for name, values in space.items()}
    decides = {"cells": [cell.id for cell in expand(one).cells], "space": plain}
    return SearchPlan(at, space, one, slug(f"{at.dataset[0]}-{at.backbone[0]}-{at.method[0]}", decides))
