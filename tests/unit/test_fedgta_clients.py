"""Datasets with the clients of FedGTA's authors: small archives of their layout, and the published ones."""

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from fglbench.datasets import catalogue
from fglbench.datasets.availability import why_unavailable
from fglbench.datasets.spec import Counts
from fglbench.errors import DataError
from fglbench.records.graph import load_graph
from fglbench.stages.download import download
from fglbench.workflow.single import run_cell

NODES, CLIENTS, ROLES = 30, 2, ("train", "val", "test")
PAIRS = np.array([[node, (node + step) % NODES] for node in range(NODES) for step in (1, 2)]).T
FEATURES = (np.arange(NODES)[:, None] >> np.arange(5) & 1).astype(np.float32)  # no two nodes alike
LABELS = np.arange(NODES) % 3


def client_of(nodes: list[int], roles: list[str]) -> Data:
    """What the authors store of a client whose rows are these nodes; a node's edges are those of its last row."""
    row = {node: number for number, node in enumerate(nodes)}
    edges = [(row[a], row[b]) for a, b in PAIRS.T.tolist() if a in row and b in row]
    edges += [(b, a) for a, b in edges]
    data = Data(
        x=torch.from_numpy(FEATURES[nodes]), y=torch.from_numpy(LABELS[nodes]), edge_index=torch.tensor(edges).T.clone()
    )
    for role in ROLES:
        own = np.array(roles) == role
        data[f"{role}_idx"] = torch.from_numpy(own)
        data[f"global_{role}_idx"] = torch.from_numpy(np.isin(np.arange(NODES), np.array(nodes)[own]))
    return data


def write(folder: Path, clients: list[Data]) -> None:
    both = torch.from_numpy(np.concatenate([PAIRS, PAIRS[::-1]], axis=1))
    whole = Data(x=torch.from_numpy(FEATURES), y=torch.from_numpy(LABELS), edge_index=both)
    (folder / "FedGTA").mkdir(parents=True)
    parts = {"processed/data.pt": (whole, None)}
    parts |= {f"Client2/Louvain/data{number}.pt": (data, None) for number, data in enumerate(clients)}
    with zipfile.ZipFile(folder / "FedGTA/Cora.zip", "w") as archive:
        for name, content in parts.items():
            with archive.open(f"Cora/{name}", "w") as stream:
                torch.save(content, stream)
        archive.writestr("__MACOSX/Cora/._data0.pt", b"of another kind")


def roles_of(nodes: list[int]) -> list[str]:
    return [ROLES[node % 3] for node in nodes]


FIRST, SECOND = [*range(7, 15), *range(7)], list(range(15, NODES))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue expects the small archive."""
    changes = {"counts": Counts(NODES, 2 * NODES, 5, 3), "content_hash": None, "native_clients": CLIENTS}
    spec = replace(catalogue.get("cora-fedgta"), raw_files={"FedGTA/Cora.zip": None}, **changes)
    monkeypatch.setitem(catalogue.CATALOGUE, "cora-fedgta", spec)


@pytest.mark.usefixtures("small")
def test_clients_and_roles_are_the_published_ones(tmp_path: Path) -> None:
    write(tmp_path / "mirror", [client_of(FIRST, roles_of(FIRST)), client_of(SECOND, roles_of(SECOND))])
    card = download({"name": "cora-fedgta"}, tmp_path / "graph", tmp_path / "mirror")
    graph = load_graph(tmp_path / "graph")
    assert graph.clients is not None
    assert graph.clients.tolist() == [0] * 15 + [1] * 15
    assert {role: np.flatnonzero(mask).tolist() for role, mask in graph.masks.items()} == {
        role: list(range(number, NODES, 3)) for number, role in enumerate(ROLES)
    }
    assert (card["client_nodes"], card["cleaning"]["copies_removed"]) == ([15, 15], 0)
    np.testing.assert_array_equal(graph.features.toarray(), FEATURES)
    values = {
        "datasets": ["cora-fedgta"],
        "partitions": ["native"],
        "clients": [CLIENTS],
        "methods": ["fedavg"],
        "seeds": [0],
        "protocol": {"split": {"kind": "public"}},
        "training": {"rounds": 2, "hidden": 4},
        "data": {"mirror": str(tmp_path / "mirror")},
    }
    assert run_cell(values, tmp_path / "results")["outcome"] == "ok"


@pytest.mark.usefixtures("small")
def test_of_a_node_that_a_client_holds_twice_the_row_with_edges_counts(tmp_path: Path) -> None:
    """Nodes 5 and 6 come first without edges, 5 as another role."""
    rows, roles = [5, 6, *FIRST], ["train", "train", *roles_of(FIRST)]
    write(tmp_path / "mirror", [client_of(rows, roles), client_of(SECOND, roles_of(SECOND))])
    card = download({"name": "cora-fedgta"}, tmp_path / "graph", tmp_path / "mirror")
    graph = load_graph(tmp_path / "graph")
    assert [graph.masks[role][5] for role in ROLES] == [False, False, True]
    assert [graph.masks[role][6] for role in ROLES] == [True, False, False]
    assert (card["client_nodes"], card["cleaning"]["copies_removed"]) == ([15, 15], 2)


def with_another_edge(data: Data) -> None:
    data.edge_index[0, 0] = 9


def with_other_features(data: Data) -> None:
    data.x[0, 0] = 1 - data.x[0, 0]


def with_another_label(data: Data) -> None:
    data.y[0] = (data.y[0] + 1) % 3


def without_a_node(data: Data) -> None:
    for role in ROLES:
        data[f"global_{role}_idx"][3] = False


def with_a_node_of_the_other(data: Data) -> None:
    data.global_train_idx[20] = True


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_another_edge, "client 0 is not the subgraph"),
        (with_other_features, "client 0 is not the subgraph"),
        (with_another_label, "client 0 is not the subgraph"),
        (without_a_node, "client 0 is not the subgraph|node 3 is in none of the 2 clients"),
        (with_a_node_of_the_other, "client 0 is not the subgraph|node 20 is in two clients"),
    ],
)
def test_clients_that_are_no_parts_of_the_graph_are_refused(
    damage: Callable[[Data], None], message: str, tmp_path: Path
) -> None:
    data = client_of(FIRST, roles_of(FIRST))
    damage(data)
    write(tmp_path / "mirror", [data, client_of(SECOND, roles_of(SECOND))])
    with pytest.raises(DataError, match=message):
        download({"name": "cora-fedgta"}, tmp_path / "graph", tmp_path / "mirror")


@pytest.mark.usefixtures("small")
def test_a_damaged_archive_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "mirror", [client_of(FIRST, roles_of(FIRST)), client_of(SECOND, roles_of(SECOND))])
    path = tmp_path / "mirror/FedGTA/Cora.zip"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"Cora\.zip cannot be read"):
        download({"name": "cora-fedgta"}, tmp_path / "graph", tmp_path / "mirror")


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_the_published_archives_hold_the_same_graph(name: str, mirror: Path, tmp_path: Path) -> None:
    reason = why_unavailable(catalogue.get(f"{name}-fedgta"), mirror, may_download=False)
    if reason:
        pytest.skip(reason)
    card = download({"name": f"{name}-fedgta"}, tmp_path / "split", mirror)
    download({"name": name}, tmp_path / "plain", mirror)
    plain, split = load_graph(tmp_path / "plain"), load_graph(tmp_path / "split")
    np.testing.assert_array_equal(plain.edges, split.edges)
    np.testing.assert_array_equal(plain.labels, split.labels)
    assert (plain.features != split.features).nnz == 0
    assert (
        card["client_nodes"]
        == {
            "cora": [270, 270, 270, 271, 271, 270, 271, 272, 272, 271],
            "citeseer": [333, 332, 333, 333, 332, 333, 333, 332, 333, 333],
        }[name]
    )
    assert card["cleaning"]["copies_removed"] == {"cora": 4, "citeseer": 0}[name]
