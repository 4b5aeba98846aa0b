"""Clients that leave a phase early: the rules by hand, and what their last parameters are good for after it."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from federations import VAL, Case
from laws import make_five, run
from oracle import average
from peers import SEED, adams, assert_weights, classes, peers_of, start_of, train

from fglbench.engine.rounds import draw_clients
from fglbench.federation.schedule import Schedule
from fglbench.methods import base, fedavg
from fglbench.methods.common.phases import Patience, Phase, Settled, StopRule

NAN = np.nan


def test_settled_by_hand() -> None:
    """The first settles in its second round, the last between its only two; a change of alpha itself is none."""
    rule = Settled(3, 0.5)
    losses = [[2.0, 2.0, NAN], [1.75, 1.5, 8.0], [NAN, 1.25, NAN], [NAN, NAN, 8.25]]
    found = [rule.stops(np.array(own, dtype=np.float32), np.full(3, NAN)).tolist() for own in losses]
    assert found == [[False] * 3, [True, False, False], [False, True, False], [False, False, True]]


def test_patience_by_hand() -> None:
    """After two rounds without a better score than the best one; a client without scores never leaves."""
    rule = Patience(3, 2)
    scores = [[0.5, 0.5, NAN], [0.5, 0.6, NAN], [0.4, 0.6, NAN], [0.7, 0.5, NAN]]
    found = [rule.stops(np.zeros(3), np.array(own)).tolist() for own in scores]
    assert found == [[False] * 3, [False] * 3, [True, False, False], [False, True, False]]


class After(StopRule):
    """Clients leave after given rounds.

    Args:
        rounds: by client.
    """

    def __init__(self, rounds: dict[int, int]):
        self._rounds, self._number = rounds, -1
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []

    def stops(self, losses: np.ndarray, validation: np.ndarray) -> np.ndarray:
        self._number += 1
        self.seen.append((losses, validation))
        return np.array([self._rounds.get(client) == self._number for client in range(len(losses))])


class Leaving(fedavg.Method):
    """FedAvg that the first client leaves after its first round, and the third after its second one."""

    leave: ClassVar[dict[int, int]] = {0: 0, 2: 1}
    count: ClassVar[bool] = False
    rule: After

    def phases(self, schedule: Schedule) -> Sequence[Phase]:
        type(self).rule = After(self.leave)
        return [Phase("train", schedule.rounds, stop_rule=self.rule, leavers_count=self.count)]


class Counting(Leaving):
    count = True


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node, the fifth no validation node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("method", [Leaving, Counting])
def test_who_left_keeps_its_last_parameters_which_count_if_the_phase_says_so(
    five: Case, method: type[Leaving], participation: float, chunk: int | None
) -> None:
    federation = five.federation("mlp")
    result = run(federation, method, "mlp", chunk=chunk, participation=participation, rounds=4)
    peers, left = peers_of(five, start_of(federation)), set()
    optimisers, losses = adams(peers), np.full((4, 5), NAN)
    for number in range(4):
        active = [i for i in draw_clients(SEED, number, 5, participation) if i != 3 and i not in left]
        for i in active:
            losses[number, i] = train(peers[i], optimisers[i], 2, classes)
        trained = [peer.read() for peer in peers]
        counted = sorted({*active, *(left if method.count else ())})
        mean = average([trained[i] for i in counted], [peers[i].size() for i in counted], list(trained[0]))
        for i, peer in enumerate(peers):
            if i not in left:
                peer.write(mean)
        if number < 3:
            for i in method.leave:
                if method.leave[i] == number:
                    left.add(i)
                    peers[i].write(trained[i])
    assert_weights(result.parameters["last"], peers)
    np.testing.assert_allclose(result.history["train_loss"], losses, rtol=0, atol=1e-5)
    sent = (~np.isnan(losses)).sum(1).cumsum() * sum(tensor.numel() * 4 for tensor in start_of(federation).values())
    np.testing.assert_array_equal(result.history["bytes_up"], sent)
    np.testing.assert_array_equal(result.history["bytes_down"], sent)


def test_rules_see_each_clients_loss_and_validation_score(five: Case) -> None:
    federation = five.federation("mlp")
    history = run(federation, Leaving, "mlp", participation=0.6, rounds=3).history
    sizes = federation.count(VAL)
    assert sizes.tolist()[4] == 0 < min(sizes.tolist()[:4])
    for number, (losses, validation) in enumerate(Leaving.rule.seen):
        np.testing.assert_array_equal(losses, history["train_loss"][number])
        np.testing.assert_array_equal(validation[:4], history["val_correct"][number][:4] / sizes[:4])
        assert np.isnan(validation[4])


def test_a_phase_ends_when_all_have_left_and_the_next_one_starts_with_what_they_trained(five: Case) -> None:
    """Everybody is back in it."""
    starts: dict[str, Any] = {}
    trained: list[torch.Tensor] = []

    class All(Leaving):
        leave: ClassVar[dict[int, int]] = {0: 0, 1: 1, 2: 1, 4: 1}  # the fourth has no training node

        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            return [*super().phases(schedule), Phase("next", 1)]

        def upload(self, round: base.ClientRound) -> dict[str, torch.Tensor]:
            trained.append(round.parameters["0.weight"])
            starts[str(len(trained))] = round.clients.tolist(), round.received["0.weight"]
            return {}

    result = run(five.federation("mlp"), All, "mlp", rounds=9)
    assert [(phase["name"], phase["rounds"]) for phase in result.phases] == [("train", 2), ("next", 1)]
    assert [clients for clients, _ in starts.values()] == [[0, 1, 2, 4], [1, 2, 4], [0, 1, 2, 4]]
    start = starts["3"][1]
    assert torch.equal(start[0], trained[0][0])
    for client in (1, 2, 4):
        assert torch.equal(start[client], trained[1][client])
    assert not torch.equal(start[0], start[1])


def test_the_rules_end_a_phase_of_training(five: Case) -> None:
    """A loss that no round changes by the threshold: the phase ends after the second round."""

    class Settles(fedavg.Method):
        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            return [Phase("train", schedule.rounds, stop_rule=Settled(5, 1e3))]

    class Waits(fedavg.Method):
        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            return [Phase("train", schedule.rounds, stop_rule=Patience(5, 3))]

    federation = five.federation("mlp")
    assert len(run(federation, Settles, "mlp", rounds=9).history["round"]) == 2
    losses = run(federation, Waits, "mlp", rounds=9, optimiser="sgd", lr=1e-9).history["train_loss"]
    # Scores never rise after the first round; the last client has none, and stays.
    assert (~np.isnan(losses)).sum(0).tolist() == [4, 4, 4, 0, 9]
