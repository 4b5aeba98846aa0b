"""Which pairs of components the tests train.

Pairs multiply with components, so a plain run takes a core that grows with their sum: every method with its default
backbone and with another one, dealt in turn, and every backbone with the default method; likewise of methods and
schemes. What a run takes says `--pairs` (`chosen_pairs`).
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
    """Those of a pair, where the backbone knows them."""
    own, known = NEEDED.get(method, {}), registry.declaration("backbone", backbone).settings.model_fields
    return own if own.keys() <= known.keys() else {}


@cache
def not_applicable(method: str, backbone: str) -> str | None:
    """Why a pair makes no sense with the default settings of both, but for those needed; None where it does."""
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
    """The schemes whose federations a method can train on; a centralised one needs the whole graph as one client."""
    central = registry.declaration("method", method).constants.get("CENTRALISED", False)
    return ["whole"] if central else SCHEMES


BACKBONES_OF: dict[str, Sequence[str]] = {
    method: [name for name in BACKBONES if not_applicable(method, name) is None] for method in METHODS
}
SCHEMES_OF: dict[str, Sequence[str]] = {method: _schemes(method) for method in METHODS}


def pairs(partners: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Every name with every partner that it has."""
    return [(name, partner) for name, its in partners.items() for partner in its]


def default_partner(partners: Mapping[str, Sequence[str]], name: str, default: str) -> str:
    """The default one where the name has it, else its first."""
    return default if default in partners[name] else partners[name][0]


def dealt(partners: Mapping[str, Sequence[str]], turn: int) -> list[Pair]:
    """Every name with one partner: names in a row have different ones, and over turns a name has all of its own."""
    return [(name, its[(place + turn) % len(its)]) for place, (name, its) in enumerate(partners.items())]


def core(partners: Mapping[str, Sequence[str]], default_name: str, default: str) -> set[Pair]:
    """Every name with its default partner and with another one, and every partner with the default name."""
    first = {(name, default_partner(partners, name, default)) for name in partners}
    others = {name: [one for one in its if (name, one) not in first] or its for name, its in partners.items()}
    return first | set(dealt(others, 0)) | {(default_name, one) for one in partners[default_name]}


def in_each_way(ways: Iterable[Way]) -> list[tuple[str, str, Way]]:
    """A covering design: every method and every backbone occurs in every way, with partners dealt in turn."""
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
    """Parameter sets of a test, one a pair; those beyond the core are marked and numbered.

    Args:
        found: tuples of values, or single values.
        is_core: whether a plain run takes it.
        name_of: its name in the test's.
    """
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)),
            id=name_of(one),
            marks=[] if is_core(one) else [getattr(pytest.mark, BEYOND_CORE)(number)],
        )
        for number, one in enumerate(found)
    ]
