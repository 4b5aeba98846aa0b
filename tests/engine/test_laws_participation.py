"""Laws of the engine: clients that sit out, and clients that have little."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import (
    NONE,
    TEST,
    TRAIN,
    VAL,
    Case,
    made_of,
)
from laws import logits_of, run

from fglbench.engine.rounds import draw_clients
from fglbench.methods import base, fedavg


class Recording(fedavg.Method):
    """FedAvg that remembers what its hooks saw."""

    seen: ClassVar[list[tuple[list[int], torch.Tensor]]] = []

    def aggregate(self, round: base.Round) -> dict[str, torch.Tensor]:
        weights = super().aggregate(round)
        self.seen.append((round.clients.tolist(), weights[base.SHARED]))
        return weights


def test_partial_participation_leaves_weights_normalised_over_those_who_trained(five: Case) -> None:
    Recording.seen.clear()
    run(five.federation(), Recording, participation=0.5, rounds=8)
    seen = Recording.seen
    assert len({tuple(clients) for clients, _ in seen}) > 1
    for clients, row in seen:
        assert 1 <= len(clients) <= 2
        assert 3 not in clients  # no training node
        assert abs(row.sum() - 1) < 1e-6
        assert row.nonzero().flatten().tolist() == clients
    sizes = five.federation().count(TRAIN)
    clients, row = next((clients, row) for clients, row in seen if len(clients) == 2)
    torch.testing.assert_close(row[clients], torch.tensor(sizes[clients] / sizes[clients].sum()).float())


def test_clients_that_sit_out_keep_receiving_the_mixed_model(five: Case) -> None:
    last = run(five.federation(), "fedavg", participation=0.2, rounds=3).parameters["last"]
    for tensor in last.values():
        assert (tensor == tensor[:1]).all()


def test_clients_that_sit_out_keep_their_own_model_under_local(five: Case) -> None:
    result = run(five.federation(), "local", participation=0.2, rounds=1, seed=3)
    (drawn,) = draw_clients(3, 0, 5, 0.2)
    assert drawn != 3  # the client without training nodes
    weight = result.parameters["last"]["0.weight"]
    moved = [not torch.equal(weight[client], weight[3]) for client in range(5)]
    assert moved == [client == drawn for client in range(5)]


@pytest.mark.parametrize(("participation", "count"), [(1e-9, 1), (0.1, 1), (0.3, 3), (0.5, 5), (1.0, 10)])
def test_the_draw_takes_the_fraction_and_at_least_one(participation: float, count: int) -> None:
    drawn = [draw_clients(0, number, 10, participation) for number in range(50)]
    assert {len(clients) for clients in drawn} == {count}
    assert all((np.diff(clients) > 0).all() for clients in drawn)
    assert set(np.concatenate(drawn).tolist()) == set(range(10))  # over rounds everybody is drawn
    assert np.array_equal(drawn[7], draw_clients(0, 7, 10, participation))  # from its own stream, whatever came before


def test_all_methods_draw_the_same_clients(five: Case) -> None:
    sat_out = {
        method: np.isnan(run(five.federation(), method, participation=0.4, rounds=6).history["train_loss"]).tolist()
        for method in ("local", "fedavg", "fedprox", "fedper")
    }
    assert len({str(pattern) for pattern in sat_out.values()}) == 1


def test_a_client_without_training_nodes_receives_and_is_scored(five: Case) -> None:
    federation = five.federation()
    result = run(federation)
    assert np.isnan(result.history["train_loss"][:, 3]).all()
    assert np.isfinite(np.delete(result.history["train_loss"], 3, axis=1)).all()
    assert federation.count(TEST)[3] > 0
    logits = logits_of(federation, result)[five.ptr[3] : five.ptr[4]]
    np.testing.assert_array_equal(result.predictions["last"][five.ptr[3] : five.ptr[4]], logits.argmax(1))


def test_a_federation_in_which_nobody_can_train_keeps_its_initial_weights(five: Case) -> None:
    federation = five.federation()
    result = run(replace(federation, role=np.where(federation.role == TRAIN, NONE, federation.role)))
    assert result.state == "ok"
    assert result.history["bytes_up"].tolist() == [0, 0, 0]
    weight = result.parameters["last"]["0.weight"]
    assert (weight == weight[:1]).all()


def test_clients_without_edges_or_with_a_single_node_train_on_their_features_alone(five: Case) -> None:
    federation = five.federation()
    alone = np.isin(federation.client_of, [2, 4])
    assert made_of(federation).operator[alone].nnz == alone.sum()
    assert np.diff(federation.ptr)[4] == 1
    losses = run(federation, "local", rounds=5).history["train_loss"]
    assert (losses[-1, [2, 4]] < losses[0, [2, 4]]).all()
    unconnected = federation.with_edges(sp.csr_matrix((40, 40), dtype=np.float32))
    without = run(unconnected, "local", rounds=5).history["train_loss"]
    np.testing.assert_allclose(without[:, [2, 4]], losses[:, [2, 4]], rtol=0, atol=1e-6)
    assert (without[:, [0, 1]] != losses[:, [0, 1]]).all()


def test_nobody_has_validation_nodes_so_the_last_round_is_selected(five: Case) -> None:
    federation = five.federation()
    result = run(replace(federation, role=np.where(federation.role == VAL, NONE, federation.role)))
    assert result.rounds["val"] == 2
    np.testing.assert_array_equal(result.predictions["val"], result.predictions["last"])
