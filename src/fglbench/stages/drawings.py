"""Data of graph drawings: positions, classes and edges of the nodes of a graph and of its client graphs."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fglbench.config.expand import Expansion, Placement
from fglbench.datasets.base import Graph
from fglbench.partition.subgraph import induced_edges
from fglbench.records.graph import check_graph, load_graph
from fglbench.records.split import SPLIT_ARRAYS, load_split
from fglbench.stages.collect_rows import partition_coordinates

if TYPE_CHECKING:
    import igraph

KIND = "graph"
WHOLE = -1
"""The value of `client` for the whole graph."""

_GAP, _ROW = 0.8, 1.1  # gap between components; row width / sqrt(number of nodes)


def drawings(expansion: Expansion, results: Path, archived: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the data of the partitions that figures of the study draw, one row per client and one for the whole graph.

    Only partitions of the study's smallest seed are drawn. A partition without archived rows is left
    out if its split or graph is missing.

    Args:
        expansion: the placements of the study.
        results: the results folder.
        archived: archived rows, by split folder.

    Returns:
        A frame with the columns `dataset`, `scheme`, `clients`, `seed`, `split` and `client` (-1: the whole graph), and
        columns of arrays. Per node: `x` and `y` (float32), `label` (int32), `anchor` (bool, several clients hold the
        node). Per edge: `source` and `target` (int32, positions among the nodes). Empty if nothing is drawn.
    """
    filters: list[Mapping[Any, list[Any]]] = [figure.where for figure in expansion.study.figures if figure.kind == KIND]
    first = min((placement.cell.seed for placement in expansion.placements), default=0)
    frames = {}
    for placement in expansion.placements:
        split = placement.cell.folder("split")
        if placement.cell.seed != first or split in frames or not _is_drawn(placement, filters):
            continue
        graph_folder = results / "download" / placement.cell.dataset.slug
        if (results / split / SPLIT_ARRAYS).exists() and graph_folder.exists():
            check_graph(graph_folder)
            drawing = pd.DataFrame(_rows(load_graph(graph_folder, features=False), results / split))
        elif split in archived:
            drawing = archived[split]
        else:
            continue
        frames[split] = drawing.assign(**partition_coordinates(placement), seed=placement.cell.seed, split=split)
    return pd.concat(frames.values()) if frames else pd.DataFrame()


def _is_drawn(placement: Placement, filters: list[Mapping[Any, list[Any]]]) -> bool:
    """Return whether a figure with one of these filters draws the partition of a placement."""
    if placement.cell.partition.spec["scheme"] == "whole":  # a centralised method has no clients to draw
        return False
    place = partition_coordinates(placement).items()
    return any(all(value in where.get(name, [value]) for name, value in place) for where in filters)


def _rows(graph: Graph, split_folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the row of the whole graph, then one row per client."""
    split = load_split(split_folder)
    holders = np.bincount(split.nodes, minlength=graph.num_nodes)
    once = graph.edges[:, graph.edges[0] < graph.edges[1]]
    yield _row(WHOLE, np.arange(graph.num_nodes), once, graph, holders)
    stacked = induced_edges(graph, split.nodes, split.ptr, split.copy)
    for client, (start, stop) in enumerate(zip(split.ptr, split.ptr[1:], strict=False)):
        source, target = stacked[start:stop, start:stop].nonzero()
        edges = np.stack([source, target])[:, source < target]
        yield _row(client, split.nodes[start:stop], edges, graph, holders)


def _row(client: int, nodes: np.ndarray, edges: np.ndarray, graph: Graph, holders: np.ndarray) -> dict[str, Any]:
    """Return the row of one graph. `nodes` [n] are global ids; `edges` [2, E] are positions among them."""
    x, y = layout(len(nodes), edges).astype(np.float32).T
    return {
        "client": client,
        "x": x,
        "y": y,
        "label": graph.labels[nodes].astype(np.int32),
        "anchor": holders[nodes] > 1,
        "source": edges[0].astype(np.int32),
        "target": edges[1].astype(np.int32),
    }


def layout(nodes: int, edges: np.ndarray) -> np.ndarray:
    """Compute positions in the plane for the nodes of a graph.

    A force-directed layout (Fruchterman and Reingold 1991) places the nodes of each connected component in a square
    whose area is the component's number of nodes. The components lie in rows, largest first. Equal graphs get equal
    positions.

    Args:
        nodes: the number of nodes.
        edges: [2, E] integers, each undirected edge once.

    Returns:
        [nodes, 2] float64 coordinates.
    """
    import random

    import igraph

    igraph.set_random_number_generator(random.Random(0))
    graph = igraph.Graph(n=nodes, edges=edges.T)
    components = sorted(map(np.array, graph.connected_components()), key=lambda nodes: (-len(nodes), nodes[0]))
    places, width = np.zeros((nodes, 2)), _ROW * nodes**0.5
    x = y = height = 0.0
    for members in components:
        side = len(members) ** 0.5
        if x and x + side > width:
            x, y, height = 0.0, y + height + _GAP, 0.0
        places[members] = np.array([x, y]) + side * _within_a_square(graph.induced_subgraph(members))
        x, height = x + side + _GAP, max(height, side)
    return places


def _within_a_square(component: "igraph.Graph") -> np.ndarray:
    """Return [nodes, 2] positions between 0 and 1 for a connected graph."""
    coordinates = np.array(component.layout_fruchterman_reingold(niter=1000, grid="auto").coords)
    coordinates -= coordinates.min(axis=0)
    return coordinates / max(coordinates.max(), 1e-9)
