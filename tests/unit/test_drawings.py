"""Drawings of graphs: where nodes lie, which are anchors, and what the figure shows of them."""

from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
from synthetic_records import figure_spec, study_of

from fglbench.datasets.base import Graph, canonical_edges
from fglbench.records.graph import save_graph
from fglbench.reporting.figures import draw, save
from fglbench.stages.drawings import WHOLE, drawings, layout
from fglbench.storage import hash_file, write_json, write_npz


def test_joined_nodes_lie_near_and_components_apart() -> None:
    network = nx.disjoint_union_all(
        [nx.connected_caveman_graph(5, 8), nx.path_graph(3), nx.path_graph(2), nx.empty_graph(4)]
    )
    edges = np.array(network.edges).T
    places = layout(len(network), edges)
    assert places.shape == (49, 2) and np.isfinite(places).all()
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    joined = distance[tuple(edges)].mean()
    assert joined < 0.5 * distance[np.triu_indices(40, 1)].mean()
    components = list(nx.connected_components(network))
    for one in components:
        for other in components:
            if one is not other:
                assert distance[np.ix_(sorted(one), sorted(other))].min() > 0.75
    assert np.array_equal(places, layout(len(network), edges))
    assert layout(0, np.zeros((2, 0), dtype=np.int64)).shape == (0, 2)


def made(tmp_path: Path) -> pd.DataFrame:
    """Seven nodes in a row; client 0 owns 0 to 2 and has a copy of 3, client 1 owns 3 to 6 and has a copy of 2."""
    edges, cleaning = canonical_edges(np.array([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]]), 7)
    graph = Graph(edges, np.ones((7, 1), np.float32), np.array([0, 1, 2, 0, 1, 2, -1]), 3, cleaning=cleaning)
    save_graph(graph, tmp_path / "download" / "row", {})
    split = tmp_path / "split" / "seed0"
    copy = np.array([False, False, False, True, True, False, False, False, False])
    nodes, ptr = np.array([0, 1, 2, 3, 2, 3, 4, 5, 6]), np.array([0, 4, 9])
    write_npz(split / "split.npz", {"nodes": nodes, "ptr": ptr, "role": np.zeros(9, np.int8), "copy": copy})
    write_json(split / "card.json", {"sha256": hash_file(split / "split.npz")})
    known = {"seed": 0, "dataset": SimpleNamespace(slug="row")}
    anchored, whole = (SimpleNamespace(spec={"scheme": scheme}) for scheme in ("louvain-anchor", "whole"))
    cell = SimpleNamespace(folder=lambda stage: f"{stage}/seed0", partition=anchored, **known)
    central = SimpleNamespace(folder=lambda stage: f"{stage}-whole/seed0", partition=whole, **known)
    places = [SimpleNamespace(dataset="Row", scheme="anchored", clients=2, cell=own) for own in (central, cell)]
    figures = [SimpleNamespace(kind="graph", where={"dataset": ["Row"]})]
    expansion = SimpleNamespace(placements=places, study=SimpleNamespace(figures=figures))
    return drawings(expansion, tmp_path, {})


def test_rows_of_the_whole_graph_and_of_the_clients(tmp_path: Path) -> None:
    found = made(tmp_path).set_index("client")
    assert found.index.tolist() == [WHOLE, 0, 1]
    assert found.loc[WHOLE, "anchor"].tolist() == [False, False, True, True, False, False, False]
    pairs = {client: list(zip(row["source"], row["target"], strict=True)) for client, row in found.iterrows()}
    assert pairs[0] == [(0, 1), (1, 2), (2, 3)] and pairs[1] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert found.loc[0, "anchor"].tolist() == [False, False, True, True]
    assert found.loc[1, "label"].tolist() == [2, 0, 1, 2, -1]
    assert len(found.loc[1, "x"]) == 5


def test_the_figure_has_a_panel_for_the_whole_graph_and_each_client(tmp_path: Path) -> None:
    study = study_of(pd.DataFrame())
    study = type(study)(**{**vars(study), "drawings": made(tmp_path)})
    spec = figure_spec("graph", title="Row", where={})
    figure = draw(study, spec)
    panels = figure.findobj(lambda own: type(own).__name__ == "Axes")
    assert [panel.get_title() for panel in panels][1:] == ["Client 1", "Client 2"]
    assert "whole graph" in panels[0].get_title()
    plain, ringed = panels[1].collections[1:]
    assert (len(plain.get_offsets()), len(ringed.get_offsets())) == (2, 2)
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["no label", "class 1", "class 2", "class 3", "anchor"]
    save(figure, tmp_path, "drawn")
    assert (tmp_path / "drawn.pdf").stat().st_size > 1000 and (tmp_path / "drawn.png").stat().st_size > 1000
    nothing = draw(type(study)(**{**vars(study), "drawings": pd.DataFrame()}), spec)
    assert "No graph to draw" in nothing.axes[0].texts[0].get_text()
