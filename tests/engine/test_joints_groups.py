"""Groups of parameters: two rules of aggregation side by side, and what the server cannot see."""

import numpy as np
import pytest
import torch
from federations import Case
from laws import HIDDEN, make_five, run
from oracle import average
from peers import SEED, adams, assert_weights, classes, peers_of, start_of, train

from fglbench.engine.rounds import draw_clients
from fglbench.federation.parameters import Parameters
from fglbench.methods import base

SHARED = ["0.weight", "0.bias", "1.weight"]
MATRIX = torch.softmax(torch.randn(5, 5, generator=torch.Generator().manual_seed(0)), dim=1)


class TwoRules(base.Method):
    """The first layer is averaged by training nodes; in even rounds the last weights are mixed; a bias is personal."""

    def groups(self, names: list[str]) -> dict[str, list[str]]:
        return {"first": [name for name in names if name.startswith("0.")], "last": ["1.weight"]}

    def aggregate(self, round: base.Round) -> dict[str, torch.Tensor]:
        mean = {"first": round.weights / round.weights.sum()}
        return mean if round.number % 2 else mean | {"last": MATRIX}


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_each_group_follows_its_rule(five: Case, participation: float, chunk: int | None) -> None:
    federation = five.federation("mlp")
    result = run(federation, TwoRules, "mlp", chunk=chunk, participation=participation, rounds=3)
    peers, trainings = peers_of(five, start_of(federation)), 0
    optimisers = adams(peers)
    for number in range(3):
        active = [i for i in draw_clients(SEED, number, 5, participation) if i != 3]
        trainings += len(active)
        for i in active:
            train(peers[i], optimisers[i], 2, classes)
        held = [peer.read() for peer in peers]
        mean = average([held[i] for i in active], [peers[i].size() for i in active], ["0.weight", "0.bias"])
        for i, peer in enumerate(peers):
            peer.write(mean)
            if number % 2 == 0:
                mixed = sum((float(MATRIX[i, j]) * held[j]["1.weight"] for j in range(5)), start=torch.zeros(()))
                peer.write({"1.weight": mixed})
    assert_weights(result.parameters["last"], peers)
    personal = result.parameters["last"]["1.bias"]
    assert not torch.allclose(personal[0], personal[1], atol=1e-3)
    each = 4 * (6 * HIDDEN + HIDDEN + HIDDEN * 3)  # without the bias
    assert (result.history["bytes_up"][-1], result.history["bytes_down"][-1]) == (trainings * each, trainings * each)
    assert result.mixing["rounds"].tolist() == [0, 2]  # in which they received different means
    np.testing.assert_array_equal(result.mixing["mixing"], torch.stack([MATRIX, MATRIX]).numpy())


def test_the_server_never_sees_what_is_in_no_group(five: Case) -> None:
    seen: list[list[str]] = []

    class Looks(TwoRules):
        def aggregate(self, round: base.Round) -> dict[str, torch.Tensor]:
            assert not hasattr(round, "logits")
            seen.extend([sorted(round.parameters), sorted(round.received)])
            return super().aggregate(round)

        def server_update(self, round: base.Round, mixed: Parameters) -> None:
            seen.extend([sorted(round.parameters), sorted(round.received), sorted(mixed)])

        def client_update(self, round: base.ClientRound, current: Parameters) -> None:
            assert "1.bias" in round.parameters.keys() & round.received.keys() & current.keys()

    run(five.federation("mlp"), Looks, "mlp", rounds=2)
    assert len(seen) == 2 * 5
    assert all(names == sorted(SHARED) for names in seen)
    assert Looks(None, *[None] * 2).shared(["1.bias", *SHARED]) == SHARED  # type: ignore[arg-type]


def test_what_clients_change_after_the_answer_is_theirs(five: Case) -> None:
    """Every client keeps half of what it trained of the last weights; the server's answer is FedAvg's."""
    answers: list[torch.Tensor] = []

    class Halves(TwoRules):
        def server_update(self, round: base.Round, mixed: Parameters) -> None:
            answers.append(mixed["1.weight"])

        def client_update(self, round: base.ClientRound, current: Parameters) -> None:
            assert current["1.weight"] is answers[-1]
            current["1.weight"] = (current["1.weight"] + round.parameters["1.weight"]) / 2

    federation = five.federation("mlp")
    result = run(federation, Halves, "mlp", rounds=1)
    trained = run(federation, TwoRules, "mlp", rounds=1, evaluate="trained").parameters["last"]["1.weight"]
    mixed = run(federation, TwoRules, "mlp", rounds=1).parameters["last"]["1.weight"]
    torch.testing.assert_close(result.parameters["last"]["1.weight"], (mixed + trained) / 2, rtol=0, atol=1e-6)
