"""Identity: what of a setting decides a number, and the path that follows from it.

A specification is a plain mapping of fully resolved settings and versions; a slug is a readable label with a short
hash of it. Labels of users are no part of either, so two studies that ask for the same cell share it.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fglbench.storage import fingerprint

Spec = dict[str, Any]

SPLIT_VERSION = 1
PREPROCESS_VERSION = 1
ENGINE_VERSION = 1
"""Raised when the numbers of that stage change; part of every hash that depends on it."""
OVERLAPPING_SPLIT_VERSION = 2
"""`SPLIT_VERSION` of schemes whose clients may share nodes."""
COLLECT_VERSION = 2
REPORT_VERSION = 5
TRACK_VERSION = 2
"""Raised when collected records, or tables, figures and reports, or the runs in the tracking store, are to be made anew
of what is there."""

LONGEST_RANGES = 200
"""Characters of a job's seeds in the name of its files, of which file systems allow 255."""


def slug(label: str, spec: Spec) -> str:
    """`label-hash`: at most 60 characters of the label, in lower-case letters, digits, dots, `+` and dashes."""
    readable = re.sub(r"[^a-z0-9.+-]+", "-", label.lower()).strip("-.")[:60]
    return f"{readable}-{fingerprint(spec)}"


@dataclass(frozen=True)
class Part:
    """One segment of a cell's path: its slug and its specification.

    Attributes:
        file: where the file lies that the specification knows by its content; None: there is none.
    """

    slug: str
    spec: Spec
    file: str | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Cell:
    """One training: dataset x partition x method x seed, each fully resolved.

    Attributes:
        dataset: name, version, settings.
        partition: scheme, version, settings, clients, split.
        preprocessed: what preprocessing makes for the backbone.
        method: method, backbone, training, evaluation.
        seed: the cell's seed.
    """

    dataset: Part
    partition: Part
    preprocessed: Part
    method: Part
    seed: int

    @cached_property
    def id(self) -> str:
        """16 hexadecimal digits over everything that decides the cell's numbers."""
        return fingerprint({**self.specs, "seed": self.seed}, digits=16)

    @property
    def specs(self) -> dict[str, Spec]:
        """All specifications by part: what a training job needs to know."""
        return {
            "dataset": self.dataset.spec,
            "partition": self.partition.spec,
            "prepared": self.preprocessed.spec,
            "method": self.method.spec,
        }

    def folder(self, stage: str) -> str:
        """The cell's folder below `results/`, for a stage of split, preprocess, train and evaluate."""
        last = {"split": "", "preprocess": f"{self.preprocessed.slug}/"}.get(stage, f"{self.method.slug}/")
        return f"{stage}/{self.dataset.slug}/{self.partition.slug}/{last}seed{self.seed}"


def seed_ranges(seeds: list[int]) -> str:
    """Names a set of seeds in a path: [0, 1, 2, 5] -> "0-2+5"."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][1] + 1:
            runs[-1][1] = seed
        else:
            runs.append([seed, seed])
    return "+".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def seed_batches(seeds: list[int], size: int) -> list[list[int]]:
    """Seeds in their order, `size` to a job, or fewer where `seed_ranges` would be too long for a file's name."""
    batches: list[list[int]] = []
    for seed in seeds:
        last = batches[-1] if batches else []
        if last and len(last) < size and len(seed_ranges([*last, seed])) <= LONGEST_RANGES:
            last.append(seed)
        else:
            batches.append([seed])
    return batches


def seeds_of(text: str) -> list[int]:
    """The inverse of `seed_ranges`."""
    seeds: list[int] = []
    for run in text.split("+"):
        first, _, last = run.partition("-")
        seeds.extend(range(int(first), int(last or first) + 1))
    return seeds
