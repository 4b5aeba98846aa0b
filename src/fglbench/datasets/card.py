"""The data card: the statistics of a graph, and their text for `fglbench describe`.

The text of a row of the catalogue is made here too.
"""

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np
from scipy.sparse.csgraph import connected_components

from fglbench.datasets.base import Graph
from fglbench.datasets.requirements import requirements_of
from fglbench.datasets.spec import Counts, DatasetSpec


class GraphStatistics(TypedDict):
    """Statistics of a graph.

    Attributes:
        nodes: number of nodes.
        edges: number of undirected edges.
        features: number of features.
        classes: number of classes.
        density: edges / possible pairs of nodes.
        average_degree: mean number of neighbours.
        isolated_nodes: number of nodes without a neighbour.
        connected_components: number of components.
        largest_component: number of nodes of the largest component.
        edge_homophily: fraction of the edges between labelled nodes that join two nodes of one class; None without such
            edges.
        label_histogram: number of nodes of each class.
        unlabelled: number of nodes without a label.
        feature_density: fraction of non-zero values.
        feature_storage: "csr" or "dense".
        masks: number of nodes of each official mask, by role.
        client_nodes: number of nodes of each client, if the graph has clients.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    density: float
    average_degree: float
    isolated_nodes: int
    connected_components: int
    largest_component: int
    edge_homophily: float | None
    label_histogram: list[int]
    unlabelled: int
    feature_density: float
    feature_storage: str
    masks: dict[str, int]
    client_nodes: NotRequired[list[int]]


class DataCard(GraphStatistics, total=False):
    """Content of `graph.json`: the statistics of a graph, its origin and its checksums.

    Attributes:
        cleaning: number of entries and nodes that cleaning removed or added, by kind.
        sha256: checksum of `graph.npz`.
        name: of the dataset.
        title: of the dataset.
        about: the dataset in one sentence.
        settings: of a generated dataset.
        synthetic: whether the dataset is generated.
        source: address of the dataset.
        citation: of the dataset.
        license: of the dataset.
        origin: where the raw files came from.
        version: of the graph.
        content_hash: hash of the graph's arrays.
        component_files: hashes of the user's component file, for a user's own dataset.
    """

    cleaning: dict[str, int]
    sha256: str
    name: str
    title: str
    about: str
    settings: dict[str, Any]
    synthetic: bool
    source: str
    citation: str
    license: str
    origin: str
    version: int
    content_hash: str
    component_files: dict[str, str]


def data_card(graph: Graph) -> GraphStatistics:
    """Compute the statistics of a graph.

    Args:
        graph: the canonical graph.

    Returns:
        The statistics, as values that JSON can hold.
    """
    nodes, edges = graph.num_nodes, graph.num_edges
    degree = np.bincount(graph.edges[0], minlength=nodes)
    _, component = connected_components(graph.adjacency(), directed=False)
    sizes = np.bincount(component)
    ends = graph.labels[graph.edges]
    labelled = (ends >= 0).all(axis=0)
    if isinstance(graph.features, np.ndarray):
        stored, storage = int(np.count_nonzero(graph.features)), "dense"
    else:
        stored, storage = int(graph.features.nnz), "csr"
    card: GraphStatistics = {
        "nodes": nodes,
        "edges": edges,
        "features": graph.num_features,
        "classes": graph.classes,
        "density": edges / (nodes * (nodes - 1) / 2) if nodes > 1 else 0.0,
        "average_degree": 2 * edges / nodes,
        "isolated_nodes": int((degree == 0).sum()),
        "connected_components": len(sizes),
        "largest_component": int(sizes.max()),
        "edge_homophily": float((ends[0] == ends[1])[labelled].mean()) if labelled.any() else None,
        "label_histogram": np.bincount(graph.labels[graph.labels >= 0], minlength=graph.classes).tolist(),
        "unlabelled": int((graph.labels < 0).sum()),
        "feature_density": stored / (nodes * graph.num_features),
        "feature_storage": storage,
        "masks": {role: int(mask.sum()) for role, mask in graph.masks.items()},
    }
    if graph.clients is not None:
        card["client_nodes"] = np.bincount(graph.clients).tolist()
    return card


def format_card(card: DataCard) -> str:
    """Format a data card as aligned plain text.

    Args:
        card: as the download stage stores it (`graph.json`), or as `data_card` returns it.

    Returns:
        Lines of text; name, source and settings are included if the card has them.
    """
    cleaning = card.get("cleaning", {})
    lines = [
        ("nodes", f"{card['nodes']:,}"),
        ("edges", f"{card['edges']:,} undirected"),
        ("stored entries", f"{cleaning['stored_entries']:,} in the raw data" if cleaning else ""),
        ("duplicates removed", f"{cleaning['duplicates_removed']:,}" if cleaning else ""),
        ("self-loops removed", f"{cleaning['self_loops_removed']:,}" if cleaning else ""),
        ("reverse entries added", f"{cleaning['reverse_added']:,}" if cleaning else ""),
        (
            "nodes removed",
            f"{cleaning['nodes_removed']:,} outside the largest component" if "nodes_removed" in cleaning else "",
        ),
        (
            "copies removed",
            f"{cleaning['copies_removed']:,} that a client had of its own nodes"
            if cleaning.get("copies_removed")
            else "",
        ),
        ("features", f"{card['features']:,}, {card['feature_density']:.2%} non-zero, stored {card['feature_storage']}"),
        ("classes", f"{card['classes']:,}"),
        ("density", f"{card['density']:.3g}"),
        ("average degree", f"{card['average_degree']:.2f}"),
        ("isolated nodes", f"{card['isolated_nodes']:,}"),
        (
            "connected components",
            f"{card['connected_components']:,}, the largest with {card['largest_component']:,} nodes",
        ),
        ("edge homophily", "-" if card["edge_homophily"] is None else f"{card['edge_homophily']:.4f}"),
        ("nodes per class", " ".join(f"{count:,}" for count in card["label_histogram"])),
        ("unlabelled nodes", f"{card['unlabelled']:,}"),
        ("official split", ", ".join(f"{role} {size:,}" for role, size in card["masks"].items()) or "none"),
        ("nodes per client", " ".join(f"{count:,}" for count in card.get("client_nodes", []))),
        *(
            (key.replace("_", " "), str(card[key]))
            for key in ("source", "citation", "license", "content_hash")
            if key in card
        ),
    ]
    if card.get("settings"):
        lines.append(("settings", ", ".join(f"{key}={value}" for key, value in card["settings"].items())))
    heading = [f"{card['title']} ({card['name']})", card["about"], ""] if "title" in card else []
    return "\n".join([*heading, *_aligned(lines)])


def format_row(spec: DatasetSpec, counts: Counts) -> str:
    """Format a row of the catalogue as aligned plain text, without reading the files of the dataset.

    Args:
        spec: row of the catalogue.
        counts: of the dataset under its settings.

    Returns:
        Lines of text, with resource requirements if they are known.
    """
    required = requirements_of(spec)
    origin = spec.url if isinstance(spec.url, str) else ", ".join(spec.url.values())
    lines = [
        (
            "size",
            f"{counts.nodes:,} nodes, {counts.edges:,} edges, {counts.features:,} features, {counts.classes:,} classes",
        ),
        ("source", spec.source),
        ("citation", spec.citation),
        ("license", spec.license),
        ("files", ", ".join([*spec.raw_files, *map(str, spec.own_files)]) or "none needed"),
        ("address", origin),
    ]
    if spec.announced is not None and required is not None:
        archive = f", in an archive of {spec.announced.archive_mb:,} MB" if spec.announced.archive_mb else ""
        lines.append(("files take", f"about {spec.announced.raw_mb:,} MB{archive}"))
        lines.append(
            (
                "its graph takes",
                f"about {required.stored / 1e6:,.0f} MB; making it {required.memory / 1e6:,.0f} MB of memory",
            )
        )
    return "\n".join([f"{spec.title} ({spec.name})", spec.about, "", *_aligned(lines)])


def _aligned(lines: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(label) for label, _ in lines)
    return [f"{label:<{width}}  {text}" for label, text in lines if text]
