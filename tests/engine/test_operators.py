"""The engine's products, dropout and optimisers against dense autograd, PyG, SciPy and torch.optim."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import TASK, random_graph
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from fglbench.federation.attention import Edges, attend
from fglbench.federation.federation import Federation
from fglbench.federation.operators import ClientDropout, SparseOperator, no_dropout, stacked_bias, stacked_linear
from fglbench.federation.optimiser import OPTIMISERS
from fglbench.federation.parameters import mix, rows_of, stack, take
from fglbench.federation.propagation import normalised
from fglbench.federation.propagation_batch import propagation_batch
from fglbench.settings import Propagation
from fglbench.stages.preprocess import row_normalised

PTR = [0, 4, 4, 9]  # the second client has no row


def random_matrix(rows: int, columns: int, density: float = 0.3) -> sp.csr_matrix:
    return sp.random(rows, columns, density=density, format="csr", dtype=np.float32, rng=np.random.default_rng(0))


@pytest.mark.parametrize(("rows", "columns", "density"), [(9, 5, 0.3), (1, 7, 1.0), (6, 4, 0.0)])
def test_sparse_product_and_its_gradient_are_the_dense_ones(rows: int, columns: int, density: float) -> None:
    matrix = random_matrix(rows, columns, density)
    operator = SparseOperator(matrix)
    assert operator.shape == (rows, columns)
    assert operator.nnz == matrix.nnz
    torch.full((1000, 3), torch.nan)  # freed at once: results must not show what memory held before
    x = torch.randn(columns, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    weight = torch.randn(rows, 3, generator=torch.Generator().manual_seed(2))
    dense = torch.from_numpy(matrix.toarray())
    torch.testing.assert_close(operator @ x, dense @ x)
    (gradient,) = torch.autograd.grad(((operator @ x) * weight).sum(), x)
    torch.testing.assert_close(gradient, dense.T @ weight)


def test_sparse_product_takes_gradients_that_are_not_contiguous() -> None:
    operator = SparseOperator(random_matrix(6, 4))
    x = torch.randn(4, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad((operator @ x).sum(), x)  # an expanded scalar
    torch.testing.assert_close(gradient, torch.from_numpy(operator._matrix.toarray()).T @ torch.ones(6, 3))


def test_stacked_linear_multiplies_each_client_by_its_own_weights() -> None:
    x, weight = torch.randn(9, 5), torch.randn(3, 5, 2)
    expected = torch.cat([x[a:b] @ weight[c] for c, (a, b) in enumerate(pairwise(PTR))])
    torch.testing.assert_close(stacked_linear(x, weight, PTR), expected)


def test_gradients_of_stacked_maps() -> None:
    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(lambda x, w: stacked_linear(x, w, PTR), (random(9, 5), random(3, 5, 2)))
    assert torch.autograd.gradcheck(lambda x, b: stacked_bias(x, b, PTR), (random(9, 2), random(3, 2)))


def test_stacked_maps_leave_their_inputs_alone() -> None:
    x, weight, bias = torch.randn(9, 5), torch.randn(3, 5, 2), torch.randn(3, 5)
    before = [tensor.clone() for tensor in (x, weight, bias)]
    stacked_linear(x, weight, PTR)
    stacked_bias(x, bias, PTR)
    assert all(torch.equal(now, then) for now, then in zip((x, weight, bias), before, strict=True))


@pytest.mark.parametrize("dropped", [False, True])
def test_attention_and_its_gradients_are_those_of_a_dense_softmax(dropped: bool) -> None:
    heads, width, rows, columns = 2, 3, 5, 7
    matrix = random_matrix(rows, columns, 0.4).tolil()
    matrix[np.arange(rows), np.arange(rows)] = 1.0
    edges = Edges(matrix.tocsr(), heads)
    present = torch.from_numpy(matrix.toarray() != 0)
    stream = torch.Generator().manual_seed(0)
    sizes = ((heads * columns, width), (heads * columns,), (heads * rows,))
    x, source, target = (torch.randn(*size, generator=stream) * 3 for size in sizes)
    keep = (torch.rand(heads * edges.nnz, generator=stream) < 0.5) * 2.0 if dropped else None
    dense_keep = torch.ones(rows, heads, columns)
    if keep is not None:
        dense_keep[present.unsqueeze(1).expand(-1, heads, -1)] = keep

    def dense(x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        score = target.view(rows, heads, 1) + source.view(columns, heads).T
        score = torch.where(score > 0, score, 0.2 * score).masked_fill(~present.unsqueeze(1), -torch.inf)
        return torch.einsum("rhc,chw->rhw", score.softmax(2) * dense_keep, x.view(columns, heads, width)).flatten(0, 1)

    inputs = [tensor.requires_grad_() for tensor in (x, source, target)]
    ours, theirs = attend(*inputs, edges, 0.2, keep), dense(*inputs)
    torch.testing.assert_close(ours, theirs)
    weight = torch.randn(ours.shape, generator=stream)
    found, expected = (torch.autograd.grad((out * weight).sum(), inputs) for out in (ours, theirs))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_attention_with_large_scores_stays_finite() -> None:
    edges = Edges(sp.csr_matrix(np.ones((1, 2), dtype=np.float32)), 1)
    out = attend(torch.tensor([[1.0], [3.0]]), torch.tensor([1000.0, 999.0]), torch.zeros(1), edges, 0.2)
    torch.testing.assert_close(out, torch.tensor([[1 + 2 / (1 + np.e)]], dtype=torch.float32))


def generators(clients: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(client) for client in range(clients)]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("width", [61, 64])
def test_dropout_keeps_and_scales_at_its_rate(rate: float, width: int) -> None:
    x = torch.ones(3000, width)
    out = ClientDropout(rate, generators(2))(x, [0, 1000, 3000])
    kept = out != 0
    torch.testing.assert_close(out[kept], torch.full((int(kept.sum()),), 1 / (1 - rate)))
    deviation = (rate * (1 - rate)) ** 0.5
    assert abs(kept.float().mean() - (1 - rate)) < 5 * deviation / (3000 * width) ** 0.5
    for means, count in ((kept.float().mean(0), 3000), (kept.float().mean(1), width)):  # no column, no row is special
        assert (means - (1 - rate)).abs().max() < 6 * deviation / count**0.5
    centred = kept.float() - (1 - rate)
    assert abs((centred[:, 1:] * centred[:, :-1]).mean()) < 5 * deviation**2 / (3000 * width) ** 0.5


def test_dropout_passes_gradients_where_it_passes_values() -> None:
    x = torch.randn(50, 6, requires_grad=True)
    out = ClientDropout(0.3, generators(1))(x, [0, 50])
    (gradient,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(gradient * x, out)
    assert 0 < (gradient == 0).sum() < 300


def test_a_clients_mask_depends_on_nobody_else_and_changes_with_every_call() -> None:
    x = torch.ones(30, 8)
    together = ClientDropout(0.5, generators(2))
    first, second = together(x, [0, 10, 30]), together(x, [0, 10, 30])
    alone = ClientDropout(0.5, generators(2)[1:])
    torch.testing.assert_close(alone(x[:20], [0, 20]), first[10:])
    torch.testing.assert_close(alone(x[:20], [0, 20]), second[10:])
    assert not torch.equal(first, second)


def test_no_dropout_is_the_identity() -> None:
    x = torch.randn(4, 3)
    assert ClientDropout(0.0, generators(1))(x, [0, 4]) is x
    assert no_dropout(x, [0, 4]) is x


def test_symmetric_operator_is_pygs_gcn_norm() -> None:
    graph = random_graph(40, 3, 2, 80, seed=4, sparse=True)
    index, values = gcn_norm(torch.from_numpy(graph.edges), num_nodes=40, add_self_loops=True)
    expected = torch.zeros(40, 40).index_put_((index[1], index[0]), values, accumulate=True)
    torch.testing.assert_close(torch.from_numpy(normalised(graph.adjacency(), 0.5).toarray()), expected)


@pytest.mark.parametrize("r", [0.0, 0.3, 0.5, 1.0])
def test_operator_is_its_formula(r: float) -> None:
    adjacency = random_graph(40, 3, 2, 80, seed=4, sparse=True).adjacency()
    looped = adjacency.toarray().astype(np.float64) + np.eye(40)
    degree = looped.sum(1)
    expected = np.diag(degree ** (r - 1)) @ looped @ np.diag(degree**-r)
    made = normalised(adjacency, r)
    np.testing.assert_allclose(made.toarray(), expected, rtol=1e-6)
    assert made.dtype == np.float32
    if r == 0:
        np.testing.assert_allclose(made.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("sparse", [True, False])
def test_row_normalised_sums_to_one_and_keeps_empty_rows(sparse: bool) -> None:
    dense = np.array([[1, 3, 0], [0, 0, 0], [0, 2, 2]], dtype=np.float32)
    made = row_normalised(sp.csr_matrix(dense) if sparse else dense)
    values = made if isinstance(made, np.ndarray) else made.toarray()
    np.testing.assert_allclose(values, np.array([[0.25, 0.75, 0], [0, 0, 0], [0, 0.5, 0.5]]))
    assert made.dtype == np.float32


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_optimiser_is_torchs_for_clients_that_step_at_different_times(name: str) -> None:
    start = {"w": torch.randn(4, 3, 2), "b": torch.randn(4, 2)}
    ours = {key: tensor.clone() for key, tensor in start.items()}
    optimiser = OPTIMISERS[name](ours, 0.05, 0.01)
    theirs = [[torch.nn.Parameter(start[key][client].clone()) for key in start] for client in range(4)]
    reference = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[name]
    references = [reference(own, lr=0.05, weight_decay=0.01) for own in theirs]
    stream = torch.Generator().manual_seed(0)
    for clients in ([0, 1, 2, 3], [1, 3], [0, 1], [0, 1, 2, 3], [2]):
        chosen = np.array(clients)
        gradients = {key: torch.randn(tensor[chosen].shape, generator=stream) for key, tensor in start.items()}
        rows = rows_of(chosen)
        leaves = take(ours, rows)
        optimiser.step(chosen, rows, leaves, gradients)
        for key, leaf in leaves.items():
            ours[key][rows] = leaf
        for position, client in enumerate(clients):
            for parameter, key in zip(theirs[client], start, strict=True):
                parameter.grad = gradients[key][position].clone()
            references[client].step()
    for key, column in zip(start, zip(*theirs, strict=True), strict=True):
        torch.testing.assert_close(ours[key], torch.stack([tensor.detach() for tensor in column]), rtol=1e-5, atol=1e-6)


def test_a_reset_optimiser_is_a_new_one() -> None:
    used = {"w": torch.ones(2, 3)}
    adam = OPTIMISERS["adam"](used, 0.1, 0.0)
    everyone = np.arange(2)
    adam.step(everyone, slice(0, 2), used, {"w": torch.full((2, 3), 5.0)})
    adam.reset()
    used["w"].fill_(1.0)
    adam.step(everyone, slice(0, 2), used, {"w": torch.full((2, 3), -0.1)})
    torch.testing.assert_close(used["w"], torch.full((2, 3), 1.1))


def test_mixing_is_a_matrix_product_on_the_shared_names_only() -> None:
    parameters = {"w": torch.randn(3, 4, 2), "own": torch.randn(3, 2)}
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    mixed = mix(parameters, ["w"], matrix)
    torch.testing.assert_close(mixed["w"], torch.einsum("cj,jab->cab", matrix, parameters["w"]))
    assert set(mixed) == {"w"}
    row = torch.tensor([0.1, 0.2, 0.7])
    torch.testing.assert_close(mix(parameters, ["w"], row)["w"], mix(parameters, ["w"], row.repeat(3, 1))["w"])


def test_a_stack_gives_every_client_memory_of_its_own() -> None:
    single = {"w": torch.zeros(2, 2)}
    stacked = stack(single, 3)
    stacked["w"][0] += 1
    assert stacked["w"][1].eq(0).all()
    assert single["w"].eq(0).all()


def test_only_rows_that_outputs_depend_on_are_computed() -> None:
    # Two paths 0-1-2-3 and 4-5; the training nodes are 0 and 4, one hop away are 1 and 5, two hops away 2.
    edges = np.array([[0, 1, 2, 4], [1, 2, 3, 5]])
    adjacency = sp.coo_matrix((np.ones(4, dtype=np.float32), edges), shape=(6, 6)).tocsr()
    federation = Federation(
        ptr=np.array([0, 4, 6]),
        labels=np.zeros(6, dtype=np.int64),
        role=np.array([1, 2, 3, 2, 1, 3], dtype=np.int8),
        classes=2,
        adjacency=adjacency + adjacency.T,
        x=np.ones((6, 3), dtype=np.float32),
    )
    batch = propagation_batch(federation, Propagation(), [0, 1], 1, 1, TASK.objective(federation).targets)
    assert batch.feature_ptr == [0, 3, 5]
    assert batch.ptrs == [[0, 2, 4], [0, 1, 2]]
    assert batch.targets.tolist() == [0, 4]
    assert [operator.shape for operator in (*batch.lead, *batch.operators)] == [(4, 5), (2, 4)]
    assert propagation_batch(federation, Propagation(), [1], 0, 0).targets.tolist() == [4, 5]
