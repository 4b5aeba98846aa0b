"""Phases: stretches of rounds under other losses, schedules, participants, graphs and models, against plain clients."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import TASK, TRAIN, VAL, Case, backbone_of, schedule_of
from laws import HIDDEN, assert_close, logits_of, make_five, run
from peers import (
    SEED,
    Peer,
    Squares,
    adams,
    assert_weights,
    federated_round,
    peers_of,
    squares,
    start_of,
)
from test_strategies import assert_close_but_for_bytes
from torch.nn.functional import cross_entropy

from fglbench.engine.loop import train
from fglbench.engine.rounds import draw_clients
from fglbench.errors import ComponentError
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule
from fglbench.methods import base, fedavg
from fglbench.methods.common.phases import Phase
from fglbench.settings import ComponentSettings

BYTES = 4 * (6 * HIDDEN + HIDDEN + HIDDEN * 3 + 3)  # of a client's perceptron


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node, the fifth no validation node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


class Warmed(fedavg.Method):
    """Two rounds on validation nodes, in which the third client takes no part, then rounds as usual."""

    optimiser: ClassVar[str] = "adam"

    def phases(self, schedule: Schedule) -> Sequence[Phase]:
        own = {"lr": 0.05, "weight_decay": 0.0, "local_epochs": 3, "optimiser": self.optimiser, "participation": 1.0}
        joining = np.array([True, True, False, True, True])
        warm = Phase("warm", 2, objective=Squares, schedule=replace(schedule, **own), clients=joining)
        return [warm, Phase("train", schedule.rounds)]


class WarmedBySGD(Warmed):
    optimiser = "sgd"


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("method", [Warmed, WarmedBySGD])
def test_each_phase_has_its_loss_schedule_participants_and_optimiser(
    five: Case, method: type[Warmed], chunk: int | None
) -> None:
    federation = five.federation("mlp")
    result = run(federation, method, "mlp", chunk=chunk, participation=0.6)
    peers = peers_of(five, start_of(federation))
    kind: Any = torch.optim.Adam if method is Warmed else torch.optim.SGD
    warm = [kind(peer.weights.values(), lr=0.05) for peer in peers]
    losses = [federated_round(peers, warm, [0, 1, 3], 3, squares, VAL) for _ in range(2)]
    anew = adams(peers)
    drawn = [[i for i in draw_clients(SEED, number, 5, 0.6) if i != 3] for number in (2, 3, 4)]
    losses += [federated_round(peers, anew, active) for active in drawn]
    assert_weights(result.parameters["last"], peers)
    np.testing.assert_allclose(result.history["train_loss"], losses, rtol=0, atol=1e-5)
    assert result.history["phase"].tolist() == ["warm"] * 2 + ["train"] * 3
    assert result.history["round"].tolist() == [0, 1, 2, 3, 4]
    sent = BYTES * np.cumsum([3, 3, *map(len, drawn)])
    for way in ("bytes_up", "bytes_down"):
        np.testing.assert_array_equal(result.history[way], sent)
        assert [phase[way] for phase in result.phases] == [sent[1], sent[4] - sent[1]]
    assert [(phase["name"], phase["rounds"]) for phase in result.phases] == [("warm", 2), ("train", 3)]


def test_hooks_count_rounds_from_the_start_of_their_phase(five: Case) -> None:
    seen: list[tuple[str, int]] = []

    class Looks(Warmed):
        def download(self, number: int, clients: np.ndarray) -> dict[str, torch.Tensor]:
            seen.append(("download", number))
            return {}

        def modify_gradients(self, step: base.Step, gradients: Parameters) -> None:
            if step.epoch == 0:
                seen.append(("step", step.round))

        def upload(self, round: base.ClientRound) -> dict[str, torch.Tensor]:
            seen.append(("upload", round.number))
            return {}

        def server_update(self, round: base.Round, mixed: Parameters) -> None:
            seen.append(("server", round.number))

    run(five.federation("mlp"), Looks, "mlp")
    hooks = "download", "step", "upload", "server"
    assert seen == [(hook, number) for number in (0, 1, 0, 1, 2) for hook in hooks]


def test_seconds_of_phases_add_up(five: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that hooks set forward: a hundred before the first phase, one a round, ten at each phase's end."""
    clock = [0.0]

    class Takes(Warmed):
        def prepare(self, *arguments: Any) -> base.Prepared:
            clock[0] += 100
            return super().prepare(*arguments)

        def upload(self, round: base.ClientRound) -> dict[str, torch.Tensor]:
            clock[0] += 1
            return {}

        def finish(self, phase: Phase, parameters: Parameters) -> None:
            clock[0] += 10

    monkeypatch.setattr("fglbench.engine.loop.time.perf_counter", lambda: clock[0])
    result = run(five.federation("mlp"), Takes, "mlp")
    assert result.history["train_seconds"].tolist() == [101, 102, 113, 114, 115]
    assert [phase["train_seconds"] for phase in result.phases] == [12, 13]
    assert (result.train_seconds, result.server_seconds, result.eval_seconds) == (125, 0, 0)


def gcn(edges_of: dict[int, np.ndarray], peer: Peer) -> torch.Tensor:
    """The mean cross-entropy of its training nodes by a GCN of two layers on its dense 0/1 matrix."""
    edges = edges_of[id(peer)]
    looped = torch.from_numpy(edges) + torch.eye(len(edges))
    scale = looped.sum(1).rsqrt()
    operator, weights, rows = scale[:, None] * looped * scale, peer.weights, peer.role == TRAIN
    hidden = (operator @ peer.x @ weights["0.weight"] + weights["0.bias"]).relu()
    logits = operator @ hidden @ weights["1.weight"] + weights["1.bias"]
    return cross_entropy(logits[rows], peer.labels[rows])


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("chunk", [None, 2])
def test_finish_gives_the_next_phase_other_graphs(tmp_path: Path, chunk: int | None, sparse: bool) -> None:
    """Those of the first phase are left for their complements, on which nothing was propagated ahead."""
    five = make_five(tmp_path, [0, 1, 2, 3, 4], sparse=sparse)
    federation = five.federation("gcn")
    blocks = [federation.adjacency[a:b, a:b].toarray() for a, b in zip(five.ptr, five.ptr[1:], strict=False)]
    others = [1 - block - np.eye(len(block), dtype=np.float32) for block in blocks]
    changed = federation.with_edges(sp.block_diag(others, format="csr", dtype=np.float32))

    class Changes(fedavg.Method):
        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            return [Phase("before", 2), Phase("after", 2)]

        def finish(self, phase: Phase, parameters: Parameters) -> base.Prepared | None:
            return base.Prepared(changed, bytes_up=5, bytes_down=7) if phase.name == "before" else None

    result = run(federation, Changes, "gcn", chunk=chunk)
    peers, losses = peers_of(five, start_of(federation, "gcn")), []
    for graphs in (blocks, others):
        edges_of, anew = {id(peer): edges for peer, edges in zip(peers, graphs, strict=True)}, adams(peers)
        loss = partial(gcn, edges_of)
        losses += [federated_round(peers, anew, [0, 1, 2, 4], loss=loss) for _ in range(2)]
    assert_weights(result.parameters["last"], peers)
    np.testing.assert_allclose(result.history["train_loss"], losses, rtol=0, atol=1e-5)
    assert result.graphs["last"] is changed
    before, after = result.phases
    assert (before["bytes_up"] - after["bytes_up"], before["bytes_down"] - after["bytes_down"]) == (5, 7)
    logits = logits_of(changed, result)
    np.testing.assert_array_equal(result.predictions["last"], logits.argmax(1).numpy())
    before = logits_of(federation, result)
    assert (before.argmax(1) != logits.argmax(1)).any()


def test_batches_of_the_cells_backbone_are_the_same_in_every_phase(five: Case) -> None:
    class Changes(fedavg.Method):
        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            return [Phase("train", 2), Phase("refine", 2, schedule=replace(schedule, batch_size=1))]

    with pytest.raises(ComponentError, match="phase 'refine' has batch_size 1, but the cell has None"):
        run(five.federation("gcn"), Changes, "gcn")


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_model_of_its_own_is_trained_and_leaves_the_cells_alone(five: Case, chunk: int | None) -> None:
    """It has a loss, a width, a start and draws of clients of its own; its rounds are not scored."""
    federation, ended, told = five.federation("mlp"), {}, []
    side = backbone_of(federation, "mlp", hidden=4, dropout=0.0, depth=2)

    class Beside(fedavg.Method):
        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            own = fedavg.Method(ComponentSettings(), side, federation)
            learning = replace(schedule, lr=0.05, local_epochs=3)
            first = Phase("side", 4, Squares, learning, backbone=side, method=own, initialisation="side start")
            return [first, Phase("train", schedule.rounds)]

        def finish(self, phase: Phase, parameters: Parameters) -> None:
            ended[phase.name] = parameters

    model = backbone_of(federation, "mlp", hidden=HIDDEN, dropout=0.0, depth=2)
    result = train(
        federation,
        Beside(ComponentSettings(), model, federation),
        TASK,
        schedule_of(participation=0.6),
        SEED,
        chunk_clients=chunk,
        on_round=lambda number, *_: told.append(number),
    )
    peers = peers_of(five, start_of(federation, hidden=4, stream="side start"))
    optimisers = adams(peers, lr=0.05)
    drawn = [[i for i in draw_clients(SEED, number, 5, 0.6) if i != 4] for number in range(4)]
    assert len(set(map(tuple, drawn))) > 1
    losses = [federated_round(peers, optimisers, active, 3, squares, VAL) for active in drawn]
    assert_weights(ended["side"], peers)
    np.testing.assert_allclose(result.history["side_loss"], losses, rtol=0, atol=1e-5)
    assert [(phase["name"], phase["rounds"]) for phase in result.phases] == [("side", 4), ("train", 3)]
    assert told == result.history["round"].tolist() == [0, 1, 2]
    assert set(result.history["phase"]) == {"train"}
    alone = run(federation, "fedavg", "mlp", participation=0.6)
    sent = 4 * (6 * 4 + 4 + 4 * 3 + 3) * sum(map(len, drawn))
    for way in ("bytes_up", "bytes_down"):
        np.testing.assert_array_equal(result.history[way], alone.history[way] + sent)
        assert result.phases[0][way] == sent
    assert_close_but_for_bytes(result, alone, 1e-5 if chunk else 0.0)


def test_a_model_of_its_own_may_lose_more_than_scored_ones_but_not_diverge(five: Case) -> None:
    federation = five.federation("mlp")
    side = backbone_of(federation, "mlp", hidden=4, dropout=0.0, depth=2)

    class Large(Squares):
        factor = 1e6

        def loss(self, step: base.Step) -> torch.Tensor:
            return self.factor * super().loss(step)

    class Infinite(Large):
        factor = np.inf

    class Beside(base.Method):
        objective: ClassVar[type[Large]] = Large

        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            own = base.Method(ComponentSettings(), side, federation)
            return [Phase("side", 2, self.objective, backbone=side, method=own), Phase("train", 1)]

    class Diverges(Beside):
        objective = Infinite

    assert run(federation, Beside, "mlp").state == "ok"
    result = run(federation, Diverges, "mlp")
    assert (result.state, result.diverged_round, len(result.history["round"])) == ("diverged", 0, 0)


def test_a_phase_may_train_fewer_clients_at_once(five: Case) -> None:
    seen: list[int] = []

    class Fewer(fedavg.Method):
        def phases(self, schedule: Schedule) -> Sequence[Phase]:
            return [Phase("train", schedule.rounds, chunk_clients=1)]

        def loss(self, step: base.Step) -> None:
            seen.append(len(step.clients))

    federation = five.federation("mlp")
    assert_close(run(federation, Fewer, "mlp"), run(federation, "fedavg", "mlp"), 1e-5)
    assert set(seen) == {1}
