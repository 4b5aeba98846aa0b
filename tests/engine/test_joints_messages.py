"""What the server sends beside the parameters arrives in the steps of the clients that it is for."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from federations import TRAIN, Case
from laws import make_five, run
from oracle import average
from peers import SEED, Peer, adams, assert_weights, peers_of, perceptron, start_of
from torch.nn.functional import cross_entropy

from fglbench.engine.rounds import draw_clients
from fglbench.methods import base, fedavg
from fglbench.seeding import numpy_stream

WANTED = torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(1))  # by round, client and class


def tail(number: int, client: int) -> torch.Tensor:
    """So many values for a client as its number, plus one."""
    return torch.arange(client + 1.0) + 10 * number


class Sends(fedavg.Method):
    """The server tells every client where its last bias is to be, and how much that weighs by a list of values."""

    asked: ClassVar[list[tuple[int, list[int]]]] = []

    def download(self, number: int, clients: np.ndarray) -> base.Messages:
        self.asked.append((number, clients.tolist()))
        return {"bias": WANTED[number, clients], "tails": [tail(number, client) for client in clients]}

    def loss(self, step: base.Step) -> torch.Tensor:
        tails = step.downloads["tails"]
        assert [own.tolist() for own in tails] == [tail(step.round, client).tolist() for client in step.clients]
        weights = torch.stack([own.mean() for own in tails]) / 10
        bias = step.downloads["bias"]
        assert isinstance(bias, torch.Tensor)
        return weights * (step.parameters["1.bias"] - bias).square().sum(1)


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the fourth has no training node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


def batches(peer: Peer, order: np.random.Generator, size: int | None) -> list[np.ndarray]:
    """The training nodes of the steps of an epoch."""
    nodes = np.flatnonzero(peer.role == TRAIN)
    shuffled = order.permutation(nodes) if size else nodes
    return np.split(shuffled, range(size or len(nodes), len(nodes), size or len(nodes)))


@pytest.mark.parametrize("chunk", [None, 2, 1])
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_downloads_are_there_in_every_step(
    five: Case, participation: float, batch_size: int | None, chunk: int | None
) -> None:
    """With batches some clients sit out the last steps of an epoch."""
    Sends.asked.clear()
    federation = five.federation("mlp")
    result = run(federation, Sends, "mlp", chunk=chunk, participation=participation, batch_size=batch_size)
    peers, orders = peers_of(five, start_of(federation)), [numpy_stream(SEED, "batches", i) for i in range(5)]
    optimisers, asked, sent = adams(peers), [], [0]
    for number in range(3):
        active = [int(i) for i in draw_clients(SEED, number, 5, participation) if i != 3]
        size = chunk or len(active)
        asked += [(number, active[first : first + size]) for first in range(0, len(active), size)]
        for i in active:
            for _ in range(2):
                for rows in batches(peers[i], orders[i], batch_size):
                    optimisers[i].zero_grad()
                    own = peers[i].weights
                    loss = cross_entropy(perceptron(own, peers[i].x)[rows], peers[i].labels[rows])
                    pull = (own["1.bias"] - WANTED[number, i]).square().sum()
                    (loss + tail(number, i).mean() / 10 * pull).backward()
                    optimisers[i].step()
        mean = average([peers[i].read() for i in active], [peers[i].size() for i in active], list(peers[0].weights))
        for peer in peers:
            peer.write(mean)
        sent.append(sent[-1] + sum(4 * (3 + i + 1) for i in active))
    assert_weights(result.parameters["last"], peers)
    assert Sends.asked == asked
    np.testing.assert_array_equal(result.history["bytes_down"] - result.history["bytes_up"], sent[1:])
