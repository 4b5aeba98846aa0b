"""Local differential privacy of uploads: the server aggregates what was uploaded, and noise is each client's own."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
import torch
from federations import Case
from laws import make_five, run
from oracle import average
from peers import SEED, adams, assert_weights, classes, peers_of, start_of, train
from scipy.stats import kstest, laplace
from test_joints_leaving import After

from fglbench.engine.privacy import Noise
from fglbench.engine.rounds import draw_clients
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import LocalPrivacy, Schedule
from fglbench.methods import base, fedavg, fedper
from fglbench.methods.common.phases import Phase

CLIP, HARDLY_ANY = 0.01, 1e-9


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("method", [fedavg.Method, fedper.Method])
def test_clipped_updates_are_averaged(
    five: Case, method: type[base.Method], participation: float, chunk: int | None
) -> None:
    federation = five.federation("mlp")
    ldp = LocalPrivacy(clip=CLIP, noise=HARDLY_ANY)
    result = run(federation, method, "mlp", chunk=chunk, participation=participation, rounds=3, ldp=ldp)
    peers, longest = peers_of(five, start_of(federation)), 0.0
    optimisers = adams(peers)
    shared = ["0.weight", "0.bias", *(["1.weight", "1.bias"] if method is fedavg.Method else [])]
    for number in range(3):
        active, uploads = [i for i in draw_clients(SEED, number, 5, participation) if i != 3], []
        for i in active:
            received = peers[i].read()
            train(peers[i], optimisers[i], 2, classes)
            updates = {name: own - received[name] for name, own in peers[i].read().items()}
            longest = max(longest, *(float(update.abs().max()) for update in updates.values()))
            uploads.append({name: received[name] + update.clamp(-CLIP, CLIP) for name, update in updates.items()})
        mean = average(uploads, [peers[i].size() for i in active], shared)
        for peer in peers:
            peer.write(mean)
    assert_weights(result.parameters["last"], peers)
    assert longest > 1.5 * CLIP


class Looks(fedavg.Method):
    """Remembers what reached the server, and what each client holds."""

    seen: ClassVar[list[tuple[base.Round, Parameters]]] = []

    def upload(self, round: base.ClientRound) -> dict[str, torch.Tensor]:
        self.trained = round.parameters
        return {}

    def aggregate(self, round: base.Round) -> dict[str, torch.Tensor]:
        self.seen.append((round, self.trained))
        return super().aggregate(round)


def test_the_server_sees_the_noisy_uploads_and_of_others_what_they_hold(five: Case) -> None:
    Looks.seen.clear()
    ldp = LocalPrivacy(clip=CLIP, noise=0.1)
    run(five.federation("mlp"), Looks, "mlp", participation=0.6, rounds=4, ldp=ldp)
    assert len({tuple(round.clients) for round, _ in Looks.seen}) > 1
    for round, trained in Looks.seen:
        away = np.setdiff1d(np.arange(5), round.clients)
        for name, sent in round.parameters.items():
            assert torch.equal(sent[away], round.received[name][away])
            assert (sent[round.clients] != trained[name][round.clients]).float().mean() > 0.99


def test_clients_that_left_count_with_what_they_uploaded(five: Case) -> None:
    """Not with what they hold, which is without noise."""

    class Leaves(Looks):
        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            return [Phase("train", schedule.rounds, stop_rule=After({0: 0, 2: 1}), leavers_count=True)]

    Looks.seen.clear()
    run(five.federation("mlp"), Leaves, "mlp", rounds=4, ldp=LocalPrivacy(clip=CLIP, noise=0.1))
    rounds = [round for round, _ in Looks.seen]
    assert [round.clients.tolist() for round in rounds] == [[0, 1, 2, 4], [1, 2, 4], [1, 4], [1, 4]]
    for client, last in ((0, 0), (2, 1)):
        for round, trained in Looks.seen[last + 1 :]:
            for name, uploaded in rounds[last].parameters.items():
                assert torch.equal(round.parameters[name][client], uploaded[client])
                assert not torch.equal(trained[name][client], uploaded[client])
            assert round.weights[client] > 0


def test_noise_depends_on_the_seed_and_the_client_alone(five: Case) -> None:
    def last(chunk: int | None = None) -> Parameters:
        ldp = LocalPrivacy(clip=CLIP, noise=0.01)
        drawn = {"participation": 0.6, "rounds": 4, "ldp": ldp}
        return run(five.federation("mlp"), "local", "mlp", chunk=chunk, **drawn).parameters["last"]

    whole = last()
    for chunk in (1, 2):
        for name, tensor in last(chunk).items():
            torch.testing.assert_close(tensor, whole[name], rtol=0, atol=1e-5)
    settings, held = LocalPrivacy(clip=1.0, noise=1.0), {"w": torch.zeros(5, 40), "b": torch.zeros(5, 3)}
    together, apart, other = (Noise(settings, 5, seed, "cpu") for seed in (0, 0, 1))
    for _ in range(2):
        all_at_once = together.protect(held, held, np.arange(5))
        some = apart.protect(held, held, np.array([0, 3])), apart.protect(held, held, np.array([1, 2, 4]))
        for name, own in all_at_once.items():
            torch.testing.assert_close(own, some[0][name] + some[1][name], rtol=0, atol=0)
        assert all_at_once["w"].unique().numel() == 5 * 40
        assert not torch.equal(other.protect(held, held, np.arange(5))["w"], all_at_once["w"])


def test_noise_is_laplace_and_the_others_are_not_touched() -> None:
    settings = LocalPrivacy(clip=0.5, noise=0.25)
    assert settings.budget == 4.0  # 2 delta / lambda
    received = {"w": torch.full((3, 100_000), 7.0)}
    trained = {"w": torch.cat([torch.full((1, 100_000), value) for value in (9.0, 7.25, -3.0)])}
    before = trained["w"].clone()
    noise, sent = Noise(settings, 3, 0, "cpu"), []
    for _ in range(2):
        uploaded = noise.protect(trained, received, np.array([0, 1]))["w"]
        assert torch.equal(uploaded[2], before[2])
        assert torch.equal(trained["w"], before)
        sent += [uploaded[0] - 7.5, uploaded[1] - 7.25]  # the first update of 2 is clipped to 0.5, the second none
    for own in sent:
        assert kstest(own.double().numpy(), laplace(scale=0.25).cdf).pvalue > 0.001
        assert own.abs().mean().item() == pytest.approx(0.25, rel=0.02)
    correlations = np.corrcoef(torch.stack(sent).numpy())
    assert np.abs(correlations - np.eye(4)).max() < 0.02
