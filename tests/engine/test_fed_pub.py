"""FED-PUB against plain code, one client after another, with PyG's normalisation; and its parts by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import TASK, Case, backbone_of, method_of, schedule_of, tiny_case, with_links
from plain_links import clients_of
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, logsigmoid
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import stack
from fglbench.methods.base import Round
from fglbench.methods.fed_pub import MASK, Masked, random_graph
from fglbench.partition.ratios import TRAIN
from fglbench.seeding import torch_stream
from fglbench.tasks import task_of
from fglbench.tasks.common.links import SampledPairs

OWN = {"scale": 5.0, "l1": 0.02, "l2": 0.05, "blocks": 1}
LINKS = task_of({"task": {"name": "link-prediction", "settings": {}}})
HIDDEN = 6


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return tiny_case(tmp_path_factory.mktemp("pub"), sizes=(16, 14, 9))


@pytest.fixture(scope="module")
def linked(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return with_links(case, tmp_path_factory.mktemp("linked"))


def trained(federation: Federation, task: Any, chunk: int | None = None, **own: Any) -> Result:
    outputs = task.outputs(federation)
    made: Any = backbone_of(federation, "gcn", hidden=HIDDEN, dropout=0.0)
    backbone = type(made)(made.settings, federation.num_features, outputs)
    method = method_of(federation, backbone, "fed-pub", **OWN, **own)
    return train(federation, method, task, schedule_of(), 0, chunk_clients=chunk)


def operator_of(edges: Tensor, nodes: int) -> Tensor:
    index, values = gcn_norm(edges, num_nodes=nodes)
    return torch.sparse_coo_tensor(index.flip(0), values, (nodes, nodes)).to_dense()


def outputs_of(x: Tensor, operator: Tensor, weights: dict[str, Tensor], pruned: bool) -> tuple[Tensor, Tensor]:
    """Two masked convolutions: what the first gives after its ReLU, and what the second gives."""
    masked = {}
    for layer in "01":
        mask = weights[f"{MASK}{layer}.weight"]
        kept = torch.where(mask.abs() < OWN["l1"], torch.zeros(()), mask) if pruned else mask
        masked[layer] = weights[f"{layer}.weight"] * kept
    hidden = (operator @ (x @ masked["0"]) + weights["0.bias"]).relu()
    return hidden, operator @ (hidden @ masked["1"]) + weights["1.bias"]


def plain(federation: Federation, start: dict[str, Tensor], of_links: bool) -> tuple[list[dict[str, Tensor]], Tensor]:
    """3 rounds of 2 epochs; the clients' parameters at the end, and the shares of the last round."""
    clients = clients_of(federation)
    graph = random_graph(1, federation.num_features, 0)
    proxy_x: Any = torch.from_numpy(np.asarray(graph.features))
    proxy = operator_of(torch.from_numpy(np.stack(graph.adjacency.nonzero()).astype(np.int64)), len(proxy_x))
    objective = SampledPairs(federation) if of_links else None
    held = [{name: own.clone().requires_grad_() for name, own in start.items()} for _ in clients]
    optimisers = [torch.optim.Adam(list(own.values()), lr=0.01, weight_decay=5e-4) for own in held]
    operators = [operator_of(own.edges, len(own.x)) for own in clients]
    shares = torch.zeros(0)
    trains = [
        bool(len(own.links)) if of_links else bool((federation.role[federation.client_of == c] == TRAIN).any())
        for c, own in enumerate(clients)
    ]
    active = [c for c, does in enumerate(trains) if does]
    for number in range(3):
        embeddings = []
        for c in active:
            client, own = clients[c], held[c]
            received = {name: tensor.detach().clone() for name, tensor in own.items()}
            rows = federation.client_of == c
            training = torch.from_numpy(federation.role[rows] == TRAIN)
            labels = torch.from_numpy(federation.labels[rows])
            for epoch in range(2):
                optimisers[c].zero_grad()
                _, z = outputs_of(client.x, operators[c], own, pruned=False)
                if objective is None:
                    loss = cross_entropy(z[training], labels[training])
                else:
                    ends = client.links, objective.negatives(0, number, epoch, np.array([c]))[0]
                    scores = [(z[pairs[:, 0]] * z[pairs[:, 1]]).sum(1) for pairs in ends]
                    loss = -logsigmoid(scores[0]).mean() - logsigmoid(-scores[1]).mean()
                for name, tensor in own.items():
                    if name.startswith(MASK):
                        loss = loss + OWN["l1"] * tensor.abs().sum()
                    elif number:
                        loss = loss + OWN["l2"] * ((tensor - received[name]) ** 2).sum()
                loss.backward()
                optimisers[c].step()
            with torch.no_grad():
                embeddings.append(outputs_of(proxy_x, proxy, own, pruned=True)[0 if objective is None else 1].mean(0))
        similar = torch.stack([torch.stack([cosine_similarity(a, b, dim=0) for b in embeddings]) for a in embeddings])
        exponential = (OWN["scale"] * similar).exp()
        shares = exponential / exponential.sum(1, keepdim=True)
        uploaded = [{name: tensor.detach().clone() for name, tensor in held[c].items()} for c in active]
        with torch.no_grad():
            for row, c in enumerate(active):
                for name in (name for name in start if not name.startswith(MASK)):
                    held[c][name].copy_(sum(shares[row, j] * own[name] for j, own in enumerate(uploaded)))
    return [{name: tensor.detach() for name, tensor in own.items()} for own in held], shares


@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize("of_links", [False, True])
def test_agrees_with_a_plain_loop(case: Case, linked: Case, of_links: bool, chunk: int | None) -> None:
    federation = (linked if of_links else case).federation("gcn")
    task = LINKS if of_links else TASK
    result = trained(federation, task, chunk)
    made: Any = backbone_of(federation, "gcn", hidden=HIDDEN)
    backbone = Masked(type(made)(made.settings, federation.num_features, task.outputs(federation)), OWN["l1"])
    start = backbone.initial(torch_stream(0, "initialisation"))
    weights, shares = plain(federation, start, of_links)
    for name in start:
        expected = torch.stack([own[name] for own in weights])
        torch.testing.assert_close(result.parameters["last"][name], expected, atol=1e-4, rtol=0)
    active = np.flatnonzero(~np.isnan(result.history["train_loss"][-1]))
    found = result.mixing["mixing"][-1][np.ix_(active, active)]
    np.testing.assert_allclose(found, shares, atol=1e-4)


def test_masks_stay_and_small_entries_count_as_zero_in_evaluation(case: Case) -> None:
    federation = case.federation("gcn")
    backbone = Masked(backbone_of(federation, "gcn", depth=1, dropout=0.0), 0.5)
    start = backbone.initial(torch_stream(0, "initialisation"))
    assert set(start) == {"0.weight", "0.bias", "mask.0.weight"}
    start["mask.0.weight"] = torch.full_like(start["0.weight"], 0.4)
    start["mask.0.weight"][0] = -2.0
    batch = backbone.batch(federation, np.arange(3))
    found = backbone.forward(stack(start, 3), batch, no_dropout).logits
    kept = torch.zeros_like(start["0.weight"])
    kept[0] = -2.0 * start["0.weight"][0]
    expected = backbone.forward(
        stack({**start, "0.weight": kept, "mask.0.weight": torch.ones_like(kept)}, 3), batch, no_dropout
    )
    torch.testing.assert_close(found, expected.logits)


def test_shares_by_hand(case: Case) -> None:
    """Of three clients the third sits out; the others' embeddings are at a right angle."""
    federation = case.federation("gcn")
    method = method_of(federation, backbone_of(federation, "gcn"), "fed-pub", scale=1.0)
    counts, weights = np.array([3, 2, 1]), torch.tensor([3.0, 2.0, 0.0])
    sent = {"embedding": torch.tensor([[2.0, 0.0], [0.0, 0.5]])}
    round = Round(0, np.array([0, 1]), counts, weights, {}, {}, schedule_of(), sent)
    near, far = np.e / (np.e + 1), 1 / (np.e + 1)
    expected = [[near, far, 0], [far, near, 0], [0, 0, 1]]
    np.testing.assert_allclose(method.aggregate(round)["shared"], expected, atol=1e-6)


def test_the_random_graph_has_blocks_of_a_hundred_nodes() -> None:
    graph = random_graph(3, 4, seed=5)
    assert len(graph.labels) == 300
    block = np.arange(300) // 100
    rows, columns = graph.adjacency.nonzero()
    assert (block[rows] == block[columns]).all()
    assert (graph.adjacency != graph.adjacency.T).nnz == 0
    assert 0.08 < graph.adjacency.nnz / (3 * 100 * 99) < 0.12
    assert (random_graph(3, 4, seed=5).features == graph.features).all()  # type: ignore[union-attr]
    assert abs(float(np.asarray(graph.features).mean())) < 0.15


def test_bytes_are_weights_embeddings_and_the_random_graph(case: Case, tmp_path: Path) -> None:
    federation = case.federation("gcn")
    result = trained(federation, TASK)
    features, active = federation.num_features, int((federation.count(TRAIN) > 0).sum())
    weights = 4 * (features * HIDDEN + HIDDEN + HIDDEN * 3 + 3)
    graph = random_graph(1, features, 0)
    once = 3 * (4 * 100 * features + 8 * graph.adjacency.nnz)
    assert result.history["bytes_up"][0] == active * (weights + 4 * HIDDEN)
    assert result.history["bytes_down"][0] == once + active * weights
