"""Pairs of components that the tests train.

The number of pairs grows with the product of the numbers of components, so the default run takes a core that grows with
their sum: every method with its default backbone and with one other backbone, assigned in turn, and every backbone with
the default method; likewise for methods and schemes. The option `--pairs` (`chosen_pairs`) selects other tests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse as sp
from chosen_pairs import BEYOND_CORE
from federations import backbone_of, method_of

from fglbench import registry
from fglbench.federation.federation import Federation
from fglbench.partition.ratios import TRAIN

METHODS, BACKBONES, SCHEMES = (registry.names(kind) for kind in ("method", "backbone", "scheme"))
DEFAULT_METHOD, DEFAULT_BACKBONE, DEFAULT_SCHEME = "fedavg", "gcn", "louvain"
Way = TypeVar("Way")
Pair = tuple[str, str]


NEEDED: dict[str, dict[str, Any]] = {"fedbn": {"norm": "batch"}}
"""Settings that a method needs of its backbone."""


def needed(method: str, backbone: str) -> dict[str, Any]:
    """Return the settings that a method needs of a backbone, if the backbone has all of them."""
    own, known = NEEDED.get(method, {}), registry.declaration("backbone", backbone).settings.model_fields
    return own if own.keys() <= known.keys() else {}


@cache
def not_applicable(method: str, backbone: str) -> str | None:
    """Return why a pair does not apply; None if it does. Both have default settings, except for needed ones."""
    federation = Federation(
        ptr=np.array([0, 2]),
        labels=np.array([0, 1]),
        role=np.full(2, TRAIN, dtype=np.int8),
        classes=2,
        adjacency=sp.csr_matrix((2, 2), dtype=np.float32),
        x=np.eye(2, dtype=np.float32),
    )
    return method_of(federation, backbone_of(federation, backbone, **needed(method, backbone)), method).not_applicable()


def _schemes(method: str) -> list[str]:
    """Return the schemes that a method can train on; a centralised method needs the whole graph as one client."""
    central = registry.declaration("method", method).constants.get("CENTRALISED", False)
    return ["whole"] if central else SCHEMES


BACKBONES_OF: dict[str, Sequence[str]] = {
    method: [name for name in BACKBONES if not_applicable(method, name) is None] for method in METHODS
}
SCHEMES_OF: dict[str, Sequence[str]] = {method: _schemes(method) for method in METHODS}


def pairs(partners: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Return every name with each of its partners."""
    return [(name, partner) for name, its in partners.items() for partner in its]


def default_partner(partners: Mapping[str, Sequence[str]], name: str, default: str) -> str:
    """Return the default partner if the name has it, else its first partner."""
    return default if default in partners[name] else partners[name][0]


def dealt(partners: Mapping[str, Sequence[str]], turn: int) -> list[Pair]:
    """Return every name with one partner: neighbours get different ones, and over all turns a name gets all its own."""
    return [(name, its[(place + turn) % len(its)]) for place, (name, its) in enumerate(partners.items())]


def core(partners: Mapping[str, Sequence[str]], default_name: str, default: str) -> set[Pair]:
    """Return every name with its default partner and with another one, and every partner with the default name."""
    first = {(name, default_partner(partners, name, default)) for name in partners}
    others = {name: [one for one in its if (name, one) not in first] or its for name, its in partners.items()}
    return first | set(dealt(others, 0)) | {(default_name, one) for one in partners[default_name]}


def in_each_way(ways: Iterable[Way]) -> list[tuple[str, str, Way]]:
    """Return a covering design: every method and every backbone occurs in every way, with partners assigned in turn."""
    rows = []
    for turn, way in enumerate(ways):
        found = dealt(BACKBONES_OF, turn)
        met = {backbone for _, backbone in found}
        rows += [(*pair, way) for pair in found]
        rows += [(DEFAULT_METHOD, backbone, way) for backbone in BACKBONES if backbone not in met]
    return rows


PAIRS = pairs(BACKBONES_OF)
CORE = core(BACKBONES_OF, DEFAULT_METHOD, DEFAULT_BACKBONE)
ON_SCHEMES = pairs(SCHEMES_OF)
CORE_ON_SCHEMES = core(SCHEMES_OF, DEFAULT_METHOD, DEFAULT_SCHEME)


def parameters(
    found: Iterable[Any], is_core: Callable[[Any], bool], name_of: Callable[[Any], str] = "-".join
) -> list[Any]:
    """Return the parameter sets of a test, one per pair; pairs beyond the core are marked and numbered.

    Args:
        found: tuples of values, or single values.
        is_core: whether the default run takes a pair.
        name_of: id of a pair in the name of the test.
    """
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)),
            id=name_of(one),
            marks=[] if is_core(one) else [getattr(pytest.mark, BEYOND_CORE)(number)],
        )
        for number, one in enumerate(found)
    ]
