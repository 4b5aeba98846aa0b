"""Identity of cells: the settings that determine a cell's numbers, and the path that follows from them.

A specification is a mapping of fully resolved settings and versions. A slug is a readable label with a short hash of
the specification. Both leave out the labels that users give, so two studies with the same cell share it.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from fglbench.records.specs import Specs
from fglbench.storage import fingerprint

Spec = dict[str, Any]

SPLIT_VERSION = 1
PREPROCESS_VERSION = 1
ENGINE_VERSION = 1
"""Version of a stage, part of every hash that depends on the stage. It increases when the stage's numbers change."""
OVERLAPPING_SPLIT_VERSION = 2
"""`SPLIT_VERSION` of schemes whose clients may share nodes."""
COLLECT_VERSION = 3
REPORT_VERSION = 6
TRACK_VERSION = 2
"""Versions of collected records, of tables, figures and reports, and of the runs in the tracking store. They
increase when the existing ones must be made again from the same results."""

LONGEST_RANGES = 200
"""Maximum length of a job's seeds in the names of its files; file systems allow 255 characters for a name."""


def slug(label: str, spec: Spec) -> str:
    """Return a path segment `label-hash` for a specification.

    Args:
        label: readable text.
        spec: the specification.

    Returns:
        At most 60 characters of the label, in lower-case letters, digits, dots, `+` and dashes, then a dash and
        8 hexadecimal digits.
    """
    readable = re.sub(r"[^a-z0-9.+-]+", "-", label.lower()).strip("-.")[:60]
    return f"{readable}-{fingerprint(spec)}"


@dataclass(frozen=True)
class Part:
    """One segment of a cell's path, with its specification.

    Attributes:
        slug: the segment of the path.
        spec: the specification.
        file: path of a file whose content the specification covers; None: there is no such file.
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
        """16 hexadecimal digits of a hash over everything that determines the cell's numbers."""
        return fingerprint({**self.specs, "seed": self.seed}, digits=16)

    @property
    def specs(self) -> Specs:
        """All specifications by part, as a training job needs them."""
        parts = {
            "dataset": self.dataset.spec,
            "partition": self.partition.spec,
            "prepared": self.preprocessed.spec,
            "method": self.method.spec,
        }
        return cast(Specs, parts)

    def folder(self, stage: str) -> str:
        """Return the cell's folder for a stage.

        Args:
            stage: "split", "preprocess", "train" or "evaluate".

        Returns:
            A path relative to the results folder.
        """
        last = {"split": "", "preprocess": f"{self.preprocessed.slug}/"}.get(stage, f"{self.method.slug}/")
        return f"{stage}/{self.dataset.slug}/{self.partition.slug}/{last}seed{self.seed}"


def seed_ranges(seeds: list[int]) -> str:
    """Return seeds as text for a path: [0, 1, 2, 5] -> "0-2+5".

    Args:
        seeds: distinct seeds, in any order.

    Returns:
        Ascending ranges and single seeds, joined by `+`.
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][1] + 1:
            runs[-1][1] = seed
        else:
            runs.append([seed, seed])
    return "+".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def seed_batches(seeds: list[int], size: int) -> list[list[int]]:
    """Divide seeds into batches, one for each job.

    Args:
        seeds: the seeds.
        size: maximum number of seeds in a batch.

    Returns:
        Batches in the order of the seeds. A batch has fewer than `size` seeds if its `seed_ranges` would be longer than
        `LONGEST_RANGES`.
    """
    batches: list[list[int]] = []
    for seed in seeds:
        last = batches[-1] if batches else []
        if last and len(last) < size and len(seed_ranges([*last, seed])) <= LONGEST_RANGES:
            last.append(seed)
        else:
            batches.append([seed])
    return batches


def seeds_of(text: str) -> list[int]:
    """Return the seeds in a text of `seed_ranges`.

    Args:
        text: such as "0-2+5".

    Returns:
        The seeds in the order of the text, here [0, 1, 2, 5].
    """
    seeds: list[int] = []
    for run in text.split("+"):
        first, _, last = run.partition("-")
        seeds.extend(range(int(first), int(last or first) + 1))
    return seeds
