"""The searches of a study: the settings to try for each dataset, backbone and method."""

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
        at: dataset, backbone and method with their labels, and the number of clients.
        space: from "<part>.<name>", such as "settings.mu", to a list of values or a range.
        trial_study: the study of one trial without the tried settings: this combination on the seeds of the search.
        slug: name of the search, with a hash of everything that determines its numbers.
    """

    at: Combination
    space: Space
    trial_study: Study
    slug: str

    @property
    def coordinates(self) -> dict[str, str]:
        """The labels by axis: dataset, backbone and method."""
        return {"dataset": self.at.dataset[0], "backbone": self.at.backbone[0], "method": self.at.method[0]}

    def override(self, tried: dict[str, Any]) -> Override:
        """Return tried settings as an override for this combination.

        Args:
            tried: from the names in `space` to values.

        Returns:
            An override that selects the dataset, backbone and method of this search.
        """
        values: dict[str, Any] = {f"{axis}s": [label] for axis, label in self.coordinates.items()}
        for name, value in tried.items():
            part, _, key = name.partition(".")
            values.setdefault(part, {})[key] = value
        return Override.model_validate(values)

    @property
    def metric(self) -> str:
        """The name of the score that the search maximises."""
        return selecting_metric(tasks_shown(self.trial_study)[0])

    def trial(self, tried: dict[str, Any]) -> Study:
        """Return the study of one trial.

        Args:
            tried: from the names in `space` to values.

        Returns:
            `trial_study` with the tried settings as its last override.
        """
        overrides = [*self.trial_study.overrides, self.override(tried)]
        return self.trial_study.model_copy(update={"overrides": overrides})


def plan_searches(study: Study) -> list[SearchPlan]:
    """Return every search that a study defines under `tune`.

    Args:
        study: a validated study.

    Returns:
        The searches in the order of the grids; empty if the study has no key `tune`.
    """
    tune = study.tune
    if tune is None:
        return []
    searches: dict[tuple[str, str, str], SearchPlan] = {}
    for grid in grids_of(study):
        if not _schemes(study, grid) or (grid.clients is not None and tune.clients not in grid.clients):
            continue
        axes = ((study.datasets, grid.datasets), (study.backbones, grid.backbones), (study.methods, grid.methods))
        for dataset, backbone, method in product(*(selected(entries, wanted) for entries, wanted in axes)):
            at = Combination(dataset, backbone, method, tune.clients)
            space = _space(study, tune, at)
            key = (dataset[0], backbone[0], method[0])
            if space and key not in searches:
                searches[key] = _search(study, tune, grid, at, space)
    return list(searches.values())


def _schemes(study: Study, grid: Grid) -> list[tuple[str, Entry]]:
    """Return the partition schemes of a grid that the searches use, as (label, entry)."""
    wanted = selected(study.partitions, [study.tune.partition] if study.tune else [])
    return [scheme for scheme in selected(study.partitions, grid.partitions) if scheme in wanted]


def _space(study: Study, tune: Tune, at: Combination) -> Space:
    """Return the search space of a combination, without the settings that its entries give themselves."""
    given: dict[str, Any] = {"settings": at.method[1].settings, "training": at.method[1].training}
    given["backbone_settings"] = {**at.backbone[1].settings, **at.method[1].training}
    return {
        f"{part}.{name}": values
        for search in matching(study, tune.searches, at)
        for part in PARTS
        for name, values in getattr(search, part).items()
        if name not in given[part]
    }


def _unsearched(override: Override, space: Space) -> Override:
    """Return an override without the searched settings.

    Every trial sets these settings itself, even if an earlier search has found values for them.
    """
    parts = {
        part: {name: value for name, value in getattr(override, part).items() if f"{part}.{name}" not in space}
        for part in PARTS
    }
    return override.model_copy(update={**parts, "clients": None})  # the search has one number of clients


def _search(study: Study, tune: Tune, grid: Grid, at: Combination, space: Space) -> SearchPlan:
    def alone(entry: tuple[str, Entry]) -> list[Entry]:
        return [entry[1].model_copy(update={"label": entry[0]})]

    trial_study = study.model_copy(
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
    decides = {"cells": [cell.id for cell in expand(trial_study).cells], "space": plain}
    return SearchPlan(at, space, trial_study, slug(f"{at.dataset[0]}-{at.backbone[0]}-{at.method[0]}", decides))
