"""Operators and features that preprocessing makes, by hand and against independent implementations."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import TEST, TRAIN, VAL, case_of
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from fglbench import registry
from fglbench.datasets.base import Graph, canonical_edges
from fglbench.errors import DataError
from fglbench.federation.propagation import normalised, propagated_features, worth_propagating
from fglbench.records.federation import FEDERATION, split_of
from fglbench.records.graph import save_graph
from fglbench.settings import Propagation
from fglbench.stages.preprocess import preprocess, row_normalised
from fglbench.stages.split import split
from fglbench.storage import read_json, read_npz

PATH = sp.csr_matrix(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=np.float32))


def test_the_symmetric_operator_of_a_path_by_hand():
    # Degrees with self-loops: 2, 3, 2.
    expected = np.array([[1 / 2, 6**-0.5, 0], [6**-0.5, 1 / 3, 6**-0.5], [0, 6**-0.5, 1 / 2]])
    np.testing.assert_allclose(normalised(PATH, 0.5).toarray(), expected, rtol=1e-6)


@pytest.mark.parametrize(("r", "axis"), [(0.0, 1), (1.0, 0)])
def test_the_limits_of_the_kernel_coefficient_average_over_rows_or_columns(r, axis):
    np.testing.assert_allclose(normalised(PATH, r).toarray().sum(axis=axis), np.ones(3), rtol=1e-6)


def test_the_operator_is_that_of_pyg(tiny_graph):
    adjacency = tiny_graph.adjacency()
    index, weight = gcn_norm(torch.from_numpy(tiny_graph.edges), num_nodes=tiny_graph.num_nodes)
    theirs = sp.coo_matrix((weight.numpy(), index.numpy()), shape=adjacency.shape).toarray()
    np.testing.assert_allclose(normalised(adjacency, 0.5).toarray(), theirs, atol=1e-6)


def test_weights_of_edges_enter_the_operator_as_in_pyg():
    weighted = PATH * np.float32(0.1)
    edges = weighted.tocoo()
    index, weight = gcn_norm(
        torch.from_numpy(np.stack([edges.row, edges.col]).astype(np.int64)), torch.from_numpy(edges.data), num_nodes=3
    )
    theirs = sp.coo_matrix((weight.numpy(), index.numpy()), shape=(3, 3)).toarray()
    np.testing.assert_allclose(normalised(weighted, 0.5).toarray(), theirs, atol=1e-6)
    # Degrees with self-loops: 1.1, 1.2, 1.1.
    assert normalised(weighted, 0.5)[0, 1] == pytest.approx(0.1 / (1.1 * 1.2) ** 0.5)


def test_without_self_loops_it_is_the_mean_of_the_neighbours():
    expected = np.array([[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0]])
    np.testing.assert_allclose(normalised(PATH, 0.0, self_loops=False).toarray(), expected, rtol=1e-6)
    alone = sp.csr_matrix((2, 2), dtype=np.float32)
    assert normalised(alone, 0.0, self_loops=False).nnz == 0


def test_rows_of_fractional_weights_alone_sum_to_one_as_well():
    weighted = sp.csr_matrix(np.array([[0, 0.1, 0], [0.1, 0, 0.3], [0, 0.3, 0]], dtype=np.float32))
    expected = np.array([[0, 1, 0], [0.25, 0, 0.75], [0, 1, 0]])
    np.testing.assert_allclose(normalised(weighted, 0.0, self_loops=False).toarray(), expected, rtol=1e-6)


def test_without_self_loops_the_symmetric_operator_is_that_of_pyg(tiny_graph):
    adjacency = tiny_graph.adjacency()
    index, weight = gcn_norm(torch.from_numpy(tiny_graph.edges), num_nodes=tiny_graph.num_nodes, add_self_loops=False)
    theirs = sp.coo_matrix((weight.numpy(), index.numpy()), shape=adjacency.shape).toarray()
    np.testing.assert_allclose(normalised(adjacency, 0.5, self_loops=False).toarray(), theirs, atol=1e-6)


def test_combinations_of_hops_by_hand():
    operator, x = normalised(PATH, 0.5), np.array([[1.0], [0.0], [0.0]], dtype=np.float32)
    once, twice = np.array([1 / 2, 6**-0.5, 0]), np.array([5 / 12, 5 / (6 * 6**0.5), 1 / 6])
    np.testing.assert_allclose(propagated_features(x, operator, Propagation(hops=2))[:, 0], twice, rtol=1e-6)
    each = propagated_features(x, operator, Propagation(hops=2, combine="each"))
    np.testing.assert_allclose(each[:, :, 0], [once, twice], rtol=1e-6)
    total = propagated_features(x, operator, Propagation(hops=2, combine=(0.5, 2.0, -1.0)))
    np.testing.assert_allclose(total[:, 0], np.array([0.5, 0, 0]) + 2 * once - twice, rtol=1e-6)
    assert x.tolist() == [[1.0], [0.0], [0.0]]


def test_sparse_features_are_filled_up_where_they_have_few_columns_and_the_hops_are_many():
    operator = sp.identity(1000, dtype=np.float32, format="csr")
    narrow, wide = (
        sp.csr_matrix((np.ones(5000), np.tile(np.arange(5), 1000), np.arange(0, 5001, 5)), shape=(1000, columns))
        for columns in (100, 1000)
    )
    assert worth_propagating(narrow.toarray(), operator, 200, Propagation(hops=1))
    assert worth_propagating(narrow, operator, 200, Propagation(hops=2))
    assert not worth_propagating(narrow, operator, 200, Propagation(hops=1))
    assert not worth_propagating(narrow, operator, 300, Propagation(hops=2))
    assert not worth_propagating(wide, operator, 200, Propagation(hops=2))
    assert worth_propagating(wide, operator, 10, Propagation(hops=2, combine="each"))
    assert not worth_propagating(wide, operator, 10, Propagation(hops=2, combine="each", fill=False))
    assert worth_propagating(narrow.toarray(), operator, 200, Propagation(hops=2, fill=False))
    huge = sp.csr_matrix((1000, 200_000), dtype=np.float32)
    assert not worth_propagating(huge, operator, 0, Propagation(hops=2, combine="each"))  # 1.6 GB


def test_gamlp_with_many_hops_leaves_sparse_features_as_they_are():
    settings = registry.declaration("backbone", "gamlp").settings
    operator = sp.identity(1000, dtype=np.float32, format="csr")
    features = sp.csr_matrix(np.ones((1000, 2)))
    filled = {hops: worth_propagating(features, operator, 10, settings(hops=hops).propagation()) for hops in (4, 5)}
    assert filled == {4: True, 5: False}


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_rows_are_divided_by_their_sum_and_empty_ones_stay(kind):
    rows = row_normalised(kind(np.array([[1, 3], [0, 0], [2, 0]], dtype=np.float32)))
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    np.testing.assert_allclose(dense, [[0.25, 0.75], [0, 0], [1, 0]])


def test_rows_with_negative_features_are_refused():
    with pytest.raises(DataError, match="use features: raw"):
        row_normalised(np.array([[1.0, -1.0]], dtype=np.float32))


def test_a_federation_file_follows_its_split(tiny_graph, tmp_path):
    save_graph(tiny_graph, tmp_path / "graph", {})
    roles = {"kind": "ratios", "train": 0.2, "val": 0.4, "test": 0.4, "empty": "keep"}
    spec = {"dataset": "tiny", "scheme": "random", "clients": 2, "settings": {}, "split": roles}
    prepared = {"features": "raw", "r": 0.5, "hops": 1}
    split(tmp_path / "graph", spec, [0], tmp_path / "split")
    preprocess(tmp_path / "graph", tmp_path / "split", prepared, [0], tmp_path / "out")
    target = tmp_path / "out" / "seed0" / FEDERATION
    assert split_of(target.parent) == read_json(tmp_path / "split" / "seed0" / "card.json")["sha256"]
    before = target.stat().st_mtime_ns
    preprocess(tmp_path / "graph", tmp_path / "split", prepared, [0], tmp_path / "out")
    assert target.stat().st_mtime_ns == before
    split(
        tmp_path / "graph", {**spec, "split": {**roles, "train": 0.6, "val": 0.2, "test": 0.2}}, [0], tmp_path / "split"
    )
    preprocess(tmp_path / "graph", tmp_path / "split", prepared, [0], tmp_path / "out")
    np.testing.assert_array_equal(
        read_npz(target)["role"], read_npz(tmp_path / "split" / "seed0" / "split.npz")["role"]
    )


def test_copies_reach_the_federation_and_keep_no_edge_among_them(tmp_path):
    """A path of four; client 0 owns 0 and holds copies of 1 and 2, which client 1 owns, of whom 1 is a test node."""
    edges, cleaning = canonical_edges(np.array([[0, 1, 2], [1, 2, 3]]), 4)
    graph = Graph(edges, np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1]), 2, cleaning=cleaning)
    parts, copy = [np.array([0, 1, 2]), np.array([1, 2, 3])], np.array([False, True, True, False, False, False])
    case = case_of(graph, parts, np.array([TRAIN, TEST, VAL, TRAIN]), tmp_path, copy)
    made = case.federation("gcn", inductive=True)
    whole = made.scored
    assert whole.copy.tolist() == copy.tolist()
    adjacency = (whole.adjacency != 0).toarray()
    np.fill_diagonal(adjacency, False)
    assert np.argwhere(np.triu(adjacency)).tolist() == [[0, 1], [3, 4], [4, 5]]  # not 1-2, both of them copies
    assert made.nodes.tolist() == [0, 3]  # without the validation and test nodes
    assert made.copy.tolist() == [False, False]
