"""A synthetic graph of any size: a stochastic block model with Gaussian features around class centres.

The sizes of the classes differ by at most one node, and classes are assigned to node ids at random. The settings fix
the number of edges within classes and the number across classes. Each kind is drawn uniformly among the pairs of nodes
of this kind, so `homophily` holds exactly (up to rounding), not only on average.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.datasets.spec import DatasetSpec, SbmSettings
from fglbench.seeding import numpy_stream
from fglbench.settings import ComponentSettings

_ROWS_AT_ONCE = 65_536


def load(spec: DatasetSpec, settings: ComponentSettings, root: Path) -> Graph:
    """Generate the graph that the settings describe.

    Args:
        spec: not used.
        settings: of the block model.
        root: not used.

    Returns:
        The canonical graph, without masks.

    Raises:
        TypeError: the settings are not those of a block model.
    """
    if not isinstance(settings, SbmSettings):
        raise TypeError(f"{type(settings).__name__} are not the settings of a block model")
    return generate(settings)


def generate(settings: SbmSettings) -> Graph:
    """Generate a graph of the block model; equal settings give equal arrays.

    A million nodes with five million edges and 100 features take a few seconds and 1 GB.

    Args:
        settings: sizes, homophily, signal and seed.

    Returns:
        The canonical graph, without masks.
    """
    stream = numpy_stream(settings.seed, "dataset", "sbm")
    labels = stream.permutation(np.arange(settings.nodes, dtype=np.int64) % settings.classes)
    low, high = np.divmod(np.concatenate(_edge_keys(settings, labels, stream)), settings.nodes)
    both = np.sort(np.concatenate([low * settings.nodes + high, high * settings.nodes + low]))
    edges = np.stack(np.divmod(both, settings.nodes))
    cleaning = {
        "stored_entries": settings.edges,
        "self_loops_removed": 0,
        "duplicates_removed": 0,
        "reverse_added": settings.edges,
    }

    centres = stream.standard_normal((settings.classes, settings.features), dtype=np.float32)
    centres *= settings.signal / np.linalg.norm(centres, axis=1, keepdims=True)
    features = stream.standard_normal((settings.nodes, settings.features), dtype=np.float32)
    for start in range(0, settings.nodes, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        features[rows] += centres[labels[rows]]
    return Graph(edges, features, labels, settings.classes, cleaning=cleaning)


def _edge_keys(settings: SbmSettings, labels: np.ndarray, stream: np.random.Generator) -> list[np.ndarray]:
    """Draw distinct edges as `low * nodes + high`: those within classes first, then those across classes."""
    by_class = np.argsort(labels, kind="stable")  # so that the positions of a class are consecutive
    sizes = np.bincount(labels, minlength=settings.classes)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    size_at, start_at = np.repeat(sizes, sizes), np.repeat(start, sizes)

    def pick(below: np.ndarray) -> np.ndarray:
        return (stream.random(len(below)) * below).astype(np.int64)

    def inside(first: np.ndarray) -> np.ndarray:
        size, offset = size_at[first], start_at[first]
        return offset + (first - offset + 1 + pick(size - 1)) % size

    def across(first: np.ndarray) -> np.ndarray:
        size = size_at[first]
        return (start_at[first] + size + pick(settings.nodes - size)) % settings.nodes

    def distinct(count: int, partner: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        keys = np.empty(0, dtype=np.int64)
        while len(keys) < count:
            first = stream.integers(0, settings.nodes, size=(count - len(keys)) * 11 // 10 + 16)
            one, other = by_class[first], by_class[partner(first)]
            drawn = np.minimum(one, other) * settings.nodes + np.maximum(one, other)
            keys = np.sort(np.concatenate([keys, drawn]))
            keys = keys[np.diff(keys, prepend=-1) > 0]
        return stream.permutation(keys)[:count]  # because a cut of the sorted keys would favour low ids

    same = settings.same_class_edges
    return [distinct(same, inside), distinct(settings.edges - same, across)]
