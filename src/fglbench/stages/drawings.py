"""What drawings of graphs show: where the nodes of a graph and of its clients' graphs lie, their classes and edges."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fglbench.config.expand import Expansion, Placement
from fglbench.datasets.base import Graph
from fglbench.partition.subgraph import induced_edges
from fglbench.records.graph import check_graph, load_graph
from fglbench.records.split import load_split

if TYPE_CHECKING:
    import igraph

KIND = "graph"
WHOLE = -1
"""The number of the client that stands for the whole graph."""

_GAP, _ROW = 0.8, 1.1  # between components, and the width of a row by the root of the number of nodes


def drawings(expansion: Expansion, results: Path, archived: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """A row for every client, and one for the whole graph, of the partitions that figures of the study draw.

    They are of the first seed. Columns: `client`, and lists `x`, `y` and `label` of the nodes, `anchor` (held by
    several clients), `source` and `target` of the edges, by position among the nodes.

    Args:
        expansion: the study.
        results: the results folder.
        archived: by split folder, rows that were archived.
    """
    asked: list[Mapping[Any, list[Any]]] = [own.where for own in expansion.study.figures if own.kind == KIND]
    first = min((placement.cell.seed for placement in expansion.placements), default=0)
    frames = {}
    for placement in expansion.placements:
        split = placement.cell.folder("split")
        if placement.cell.seed != first or split in frames or not _is_drawn(placement, asked):
            continue
        graph_folder = results / "download" / placement.cell.dataset.slug
        if (results / split / "split.npz").exists() and graph_folder.exists():
            check_graph(graph_folder)
            found = pd.DataFrame(_rows(load_graph(graph_folder, features=False), results / split))
        elif split in archived:
            found = archived[split]
        else:
            continue
        frames[split] = found.assign(**_place(placement), seed=placement.cell.seed, split=split)
    return pd.concat(frames.values()) if frames else pd.DataFrame()


def _is_drawn(placement: Placement, asked: list[Mapping[Any, list[Any]]]) -> bool:
    """Whether a figure with one of these filters draws its partition."""
    if placement.cell.partition.spec["scheme"] == "whole":  # of a centralised method, which stands in every place
        return False
    place = _place(placement).items()
    return any(all(value in where.get(name, [value]) for name, value in place) for where in asked)


def _place(placement: Placement) -> dict[str, Any]:
    return {"dataset": placement.dataset, "scheme": placement.scheme, "clients": placement.clients}


def _rows(graph: Graph, split_folder: Path) -> Iterator[dict[str, Any]]:
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
    """[nodes, 2] places in the plane: each component by forces between its nodes (Fruchterman and Reingold 1991), in a
    square whose area is its number of nodes, and the components in rows, largest first. The same graph always lies
    alike.

    Args:
        nodes: their number.
        edges: [2, E] each edge once.
    """
    import random

    import igraph

    igraph.set_random_number_generator(random.Random(0))
    graph = igraph.Graph(n=nodes, edges=edges.T)
    members = sorted(map(np.array, graph.connected_components()), key=lambda own: (-len(own), own[0]))
    places, width = np.zeros((nodes, 2)), _ROW * nodes**0.5
    x = y = height = 0.0
    for own in members:
        side = len(own) ** 0.5
        if x and x + side > width:
            x, y, height = 0.0, y + height + _GAP, 0.0
        places[own] = np.array([x, y]) + side * _within_a_square(graph.induced_subgraph(own))
        x, height = x + side + _GAP, max(height, side)
    return places


def _within_a_square(component: "igraph.Graph") -> np.ndarray:
    """[nodes, 2] places of a connected graph between 0 and 1."""
    found = np.array(component.layout_fruchterman_reingold(niter=1000, grid="auto").coords)
    found -= found.min(axis=0)
    return found / max(found.max(), 1e-9)
