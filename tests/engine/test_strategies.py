"""Strategies against plain loops over clients, and at the limits where they are another method."""

from typing import Any

import numpy as np
import oracle
import plain_strategies
import pytest
import torch
from federations import TASK, TRAIN, Case, backbone_of, method_of, schedule_of
from laws import assert_close, assert_same, make_five, run

from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.engine.rounds import draw_clients
from fglbench.methods import base
from fglbench.methods.gcfl import minimum_cut
from fglbench.methods.gcfl_plus import warping_distances
from fglbench.seeding import torch_stream

SETTINGS = {"depth": 2, "hidden": 8, "dropout": 0.0}
SEED = 3
SPLITS = {"eps1": 10.0, "eps2": 0.0, "first_round": 2}  # as soon as there may be a split


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Clients of 12, 10, 9, 8 and 1 nodes; the third has no edge, the fourth no training node."""
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


def trained(
    case: Case,
    method: str,
    chunk: int | None = None,
    own: dict[str, Any] | None = None,
    backbone_name: str = "gcn",
    **schedule: Any,
) -> tuple[Result, Any]:
    federation = case.federation(backbone_name, **SETTINGS)
    backbone = backbone_of(federation, backbone_name, **SETTINGS)
    made = method_of(federation, backbone, method, **(own or {}))
    return train(federation, made, TASK, schedule_of(**schedule), SEED, chunk_clients=chunk), made


def plan_of(rounds: int, participation: float, **changes: Any) -> oracle.Plan:
    drawn = [draw_clients(SEED, number, 5, participation) for number in range(rounds)]
    return oracle.Plan(**{"backbone": "gcn", "settings": SETTINGS, "rounds": rounds, "participants": drawn, **changes})


def assert_oracle(
    case: Case,
    result: Result,
    plan: oracle.Plan,
    strategy: plain_strategies.Strategy,
    optimiser: str,
    batch_size: int | None = None,
) -> None:
    """The engine's last parameters are those of the plain loop."""
    federation = case.federation(plan.backbone, **SETTINGS)
    initial = initial_of(case, plan.backbone)
    clients = oracle.clients_of(case.graph, case.nodes, case.ptr, case.role)
    expected = plain_strategies.run(clients, federation.classes, initial, plan, strategy, optimiser, batch_size, SEED)
    assert result.state == "ok"
    for name, stack in result.parameters["last"].items():
        found, wanted = stack.detach(), torch.stack([own[name] for own in expected])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)


def initial_of(case: Case, name: str = "gcn") -> dict[str, torch.Tensor]:
    return backbone_of(case.federation(name, **SETTINGS), name, **SETTINGS).initial(
        torch_stream(SEED, "initialisation")
    )


def differs(one: Result, other: Result) -> bool:
    name = "0.weight"
    return bool((one.parameters["last"][name] - other.parameters["last"][name]).abs().max() > 1e-3)


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize(("optimiser", "lr"), [("sgd", 0.1), ("adam", 0.003)])
@pytest.mark.parametrize(
    "name", ["fedprox", "scaffold", "moon", "feddc", "feddc of openfgl", "gcfl", "gcfl+", "fedgta"]
)
def test_batches(five: Case, name: str, optimiser: str, lr: float, chunk: int | None) -> None:
    """Clients of a round differ in the number of their local steps."""
    own: dict[str, Any] = {
        "fedprox": {"mu": 0.5},
        "moon": {"mu": 1.0},
        "feddc": {"alpha": 0.3, "variant": "paper"},
        "feddc of openfgl": {"alpha": 0.3, "variant": "openfgl"},
        "gcfl": SPLITS,
        "gcfl+": {**SPLITS, "window": 2},
    }.get(name, {})
    schedule: dict[str, Any] = {"rounds": 5, "local_epochs": 3, "participation": 0.7, "optimiser": optimiser, "lr": lr}
    plan, quotient = plan_of(5, 0.7, local_epochs=3, lr=lr), optimiser == "sgd"
    plain: plain_strategies.Strategy = {
        "fedprox": plain_strategies.FedProx(0.5),
        "scaffold": plain_strategies.Scaffold(plan, weighted=True, quotient=quotient),
        "moon": plain_strategies.Moon(1.0, 0.5, initial_of(five)),
        "feddc": plain_strategies.FedDC(plan, 0.3, quotient),
        "feddc of openfgl": plain_strategies.FedDC(plan, 0.3, quotient=True, openfgl=True),
        "gcfl": plain_strategies.GCFL(plan, 10.0, 0.0, 2),
        "gcfl+": plain_strategies.GCFL(plan, 10.0, 0.0, 2, window=2),
        "fedgta": plain_strategies.FedGTA(),
    }[name]
    result, _ = trained(five, name.split()[0], chunk, own, batch_size=2, **schedule)
    assert_oracle(five, result, plan, plain, optimiser, batch_size=2)
    assert differs(result, trained(five, "fedavg", None, batch_size=2, **schedule)[0])


# ---- scaffold


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("weights", ["nodes", "equal"])
@pytest.mark.parametrize(("optimiser", "lr"), [("sgd", 0.5), ("adam", 0.01)])
def test_scaffold(five: Case, optimiser: str, lr: float, weights: str, participation: float, chunk: int | None) -> None:
    result, _ = trained(
        five,
        "scaffold",
        chunk,
        {"weights": weights},
        rounds=5,
        local_epochs=3,
        participation=participation,
        optimiser=optimiser,
        lr=lr,
    )
    plan = plan_of(5, participation, local_epochs=3, lr=lr)
    plain = plain_strategies.Scaffold(plan, weighted=weights == "nodes", quotient=optimiser == "sgd")
    assert_oracle(five, result, plan, plain, optimiser)
    fedavg, _ = trained(
        five, "fedavg", None, rounds=5, local_epochs=3, participation=participation, optimiser=optimiser, lr=lr
    )
    assert differs(result, fedavg)


def test_scaffold_starts_as_fedavg_and_sends_its_variates(five: Case) -> None:
    federation = five.federation()
    assert_close_but_for_bytes(run(federation, "scaffold", rounds=1), run(federation, "fedavg", rounds=1))
    fedavg, scaffold = (run(federation, name, rounds=3).history for name in ("fedavg", "scaffold"))
    np.testing.assert_array_equal(scaffold["bytes_up"], 2 * fedavg["bytes_up"])
    each = fedavg["bytes_down"][0]
    assert scaffold["bytes_down"].tolist() == [each, 3 * each, 5 * each]  # c is zero, and not sent, in the first round


def assert_close_but_for_bytes(one: Result, other: Result, tolerance: float = 0.0) -> None:
    for name in ("bytes_up", "bytes_down"):
        one.history[name] = other.history[name]
    assert_close(one, other, tolerance)


def test_scaffold_keeps_the_mean_of_its_variates(five: Case) -> None:
    _, method = trained(five, "scaffold", rounds=4, participation=0.6)
    shares = five.federation().count(TRAIN) / five.federation().count(TRAIN).sum()
    for name, common in method._common.items():
        mean = torch.einsum("c,c...->...", torch.from_numpy(shares).float(), method._variates[name])
        torch.testing.assert_close(common[0], mean, rtol=0, atol=1e-6)


# ---- moon


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_moon(five: Case, temperature: float, participation: float, chunk: int | None) -> None:
    own = {"mu": 1.0, "temperature": temperature}
    result, _ = trained(five, "moon", chunk, own, rounds=5, participation=participation, lr=0.03)
    plain = plain_strategies.Moon(1.0, temperature, initial_of(five))
    assert_oracle(five, result, plan_of(5, participation, lr=0.03), plain, "adam")
    fedavg, _ = trained(five, "fedavg", None, rounds=5, participation=participation, lr=0.03)
    assert differs(result, fedavg)


@pytest.mark.parametrize("name", oracle.MODELS)
def test_moon_compares_what_the_last_layer_reads(five: Case, name: str) -> None:
    """On every backbone."""
    schedule: dict[str, Any] = {"rounds": 4, "optimiser": "sgd", "lr": 0.2}
    result, method = trained(five, "moon", None, {"mu": 2.0}, name, **schedule)
    plan = plan_of(4, 1.0, lr=0.2, backbone=name, settings=method.backbone.settings.model_dump())
    plain = plain_strategies.Moon(2.0, 0.5, initial_of(five, name))
    assert_oracle(five, result, plan, plain, "sgd")
    fedavg, _ = trained(five, "fedavg", None, None, name, **schedule)
    last, without = (run.parameters["last"] for run in (result, fedavg))
    assert max(float((last[key] - without[key]).abs().max()) for key in last) > 1e-3


def test_moon_is_fedavg_with_mu_zero_and_in_its_first_round(five: Case) -> None:
    federation = five.federation()
    without = run(federation, "moon", own={"mu": 0.0}, dropout=0.5)
    assert_same(without, run(federation, "fedavg", dropout=0.5))
    assert_same(run(federation, "moon", own={"mu": 5.0}, rounds=1), run(federation, "fedavg", rounds=1))


# ---- feddc


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("optimiser", "lr"), [("sgd", 0.2), ("adam", 0.003)])
def test_feddc(five: Case, optimiser: str, lr: float, participation: float, chunk: int | None) -> None:
    schedule = {"rounds": 5, "local_epochs": 3, "participation": participation, "optimiser": optimiser, "lr": lr}
    result, _ = trained(five, "feddc", chunk, {"alpha": 0.3, "variant": "paper"}, **schedule)
    plan = plan_of(5, participation, local_epochs=3, lr=lr)
    assert_oracle(five, result, plan, plain_strategies.FedDC(plan, 0.3, quotient=optimiser == "sgd"), optimiser)
    assert differs(result, trained(five, "fedavg", None, **schedule)[0])


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(("optimiser", "lr"), [("sgd", 0.2), ("adam", 0.003)])
def test_feddc_of_openfgl(five: Case, optimiser: str, lr: float, participation: float) -> None:
    schedule = {"rounds": 5, "local_epochs": 3, "participation": participation, "optimiser": optimiser, "lr": lr}
    result, _ = trained(five, "feddc", None, {"alpha": 0.3}, **schedule)  # the default
    plan = plan_of(5, participation, local_epochs=3, lr=lr)
    strategy = plain_strategies.FedDC(plan, 0.3, quotient=True, openfgl=True)
    assert_oracle(five, result, plan, strategy, optimiser)
    assert differs(result, trained(five, "feddc", None, {"alpha": 0.3, "variant": "paper"}, **schedule)[0])


def test_feddc_of_openfgl_counts_the_steps_of_batches(five: Case) -> None:
    """d_i / (K lr): K is the number of local steps, which differs by client where there are batches."""
    schedule: dict[str, Any] = {"rounds": 1, "local_epochs": 3, "batch_size": 2, "evaluate": "trained", "lr": 0.003}
    result, method = trained(five, "feddc", None, {"variant": "openfgl"}, **schedule)
    nodes = five.federation(**SETTINGS).count(TRAIN)
    assert len({-(-n // 2) for n in nodes}) > 2
    for client, count in enumerate(nodes):
        length = 0.003 * 3 * max(1, -(-count // 2))
        for name, start in initial_of(five).items():
            update = result.parameters["last"][name][client] - start
            torch.testing.assert_close(-method._variates[name][client] * length, update, rtol=0, atol=1e-6)


def test_feddc_starts_as_fedprox_and_takes_twice_its_step(five: Case) -> None:
    """h_i = 0 and d_i = 0: the local loss is FedProx's; the server then averages theta_i + (theta_i - theta)."""
    federation = five.federation()
    feddc = run(federation, "feddc", own={"alpha": 0.7, "variant": "paper"}, rounds=1, evaluate="trained")
    fedprox = run(federation, "fedprox", own={"mu": 0.7}, rounds=1, evaluate="trained")
    assert_close_but_for_bytes(feddc, fedprox, 1e-6)
    start = initial_of(five)
    prox, dc = (
        run(federation, name, own=own, rounds=1).parameters["last"]
        for name, own in (("fedprox", {"mu": 0.7}), ("feddc", {"alpha": 0.7, "variant": "paper"}))
    )
    for name, mean in prox.items():
        torch.testing.assert_close(dc[name], 2 * mean - start[name], rtol=0, atol=1e-6)


def test_feddc_sends_twice_the_bytes(five: Case) -> None:
    fedavg, feddc = (run(five.federation(), name, rounds=3).history for name in ("fedavg", "feddc"))
    np.testing.assert_array_equal(feddc["bytes_up"], 2 * fedavg["bytes_up"])
    each = fedavg["bytes_down"][0]
    assert feddc["bytes_down"].tolist() == [each, 3 * each, 5 * each]


# ---- gcfl, gcfl+


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("method", "own"),
    [("gcfl", {}), ("gcfl", {"relative": True}), ("gcfl+", {}), ("gcfl+", {"relative": True, "standardise": True})],
)
def test_gcfl(five: Case, method: str, own: dict[str, bool], participation: float, chunk: int | None) -> None:
    window: Any = {"window": 2} if method == "gcfl+" else {}
    schedule = {"rounds": 8, "participation": participation}
    result, made = trained(five, method, chunk, {**SPLITS, **window, **own}, **schedule)
    plan = plan_of(8, participation)
    plain = plain_strategies.GCFL(plan, 10.0, 0.0, 2, **window, **own)
    assert_oracle(five, result, plan, plain, "adam")
    groups = {frozenset(np.flatnonzero(made.cluster == number).tolist()) for number in set(made.cluster)}
    assert groups == {frozenset(cluster) for cluster in plain.clusters}
    assert len(groups) > 1
    assert differs(result, trained(five, "fedavg", None, **schedule)[0])


@pytest.mark.parametrize("method", ["gcfl", "gcfl+"])
@pytest.mark.parametrize("own", [{"eps1": 0.0}, {"eps2": 1e6, "eps1": 1e6}, {"eps1": 1e6, "first_round": 9}])
def test_gcfl_that_never_splits_is_fedavg(five: Case, method: str, own: dict[str, float]) -> None:
    federation = five.federation()
    own = {"first_round": 0, **own, **({"window": 2} if method == "gcfl+" else {})}
    for participation in (1.0, 0.6):
        schedule = {"dropout": 0.5, "rounds": 6, "participation": participation}
        fedavg = run(federation, "fedavg", **schedule)
        assert_close_but_for_bytes(run(federation, method, own=own, **schedule), fedavg)


def test_gcfl_plus_sends_one_number_a_client(five: Case) -> None:
    plain, plus = (run(five.federation(), name, rounds=2).history["bytes_up"] for name in ("gcfl", "gcfl+"))
    assert (plus - plain).tolist() == [4 * 4, 8 * 4]


def fake_round(number: int, case: Case, updates: np.ndarray, **uploads: torch.Tensor) -> base.Round:
    """A round in which client c moved by updates[c] from zero."""
    counts = case.federation().count(TRAIN)
    sizes = torch.from_numpy(counts).float()
    moved = torch.from_numpy(updates).float()
    clients = np.flatnonzero(sizes.numpy() > 0)
    received = {"w": torch.zeros_like(moved)}
    own = {"w": torch.where(sizes[:, None] > 0, moved, 0.0)}
    return base.Round(number, clients, counts, sizes, own, received, schedule_of(), uploads)


def test_gcfl_finds_the_clusters_that_updates_make(five: Case) -> None:
    """Clients 0 and 4 move one way, 1 and 2 the other; 3 has no training node and stays with the larger part."""
    own = {**SPLITS, "first_round": 0, "eps1": 0.6, "relative": True}
    _, method = trained(five, "gcfl", None, own, rounds=1)
    method.cluster[:] = 0
    method._updates, method._unit = {}, 0.0
    sizes = five.federation().count(TRAIN)
    assert sizes[0] + sizes[4] < sizes[1] + sizes[2]
    moved = np.array([[3.0, 0.1], [-2.0, 0.1], [-2.5, 0.0], [9.0, 9.0], [4.0, 0.0]])
    mixing = method.aggregate(fake_round(5, five, moved))[base.SHARED]
    assert method.cluster.tolist() == [1, 0, 0, 0, 1]
    one, other = sizes[[0, 4]] / sizes[[0, 4]].sum(), sizes[[1, 2]] / sizes[[1, 2]].sum()
    expected = np.zeros((5, 5))
    for client in (0, 4):
        expected[client, [0, 4]] = one
    for client in (1, 2, 3):
        expected[client, [1, 2]] = other
    np.testing.assert_allclose(mixing.numpy(), expected, atol=1e-6)


def test_gcfl_plus_finds_the_clusters_that_gradient_norms_make(five: Case) -> None:
    """Falling norms of clients 0 and 2, at other levels and times, and rising ones of 1 and 4."""
    own = {**SPLITS, "window": 4, "first_round": 3, "standardise": True}
    _, method = trained(five, "gcfl+", None, own, rounds=1)
    norms = np.array([[8, 4, 2, 1], [1, 2, 4, 8], [40, 39, 20, 5], [0.5, 1, 1.1, 4]], dtype=np.float32)
    method._sequences = [[] for _ in range(5)]
    method._updates, method._unit = {}, 0.0
    updates = np.random.default_rng(0).normal(size=(5, 6))
    for number in range(4):
        assert not method.cluster.any()
        method.aggregate(fake_round(number, five, updates, gradient_norm=torch.from_numpy(norms[:, number].copy())))
    assert method.cluster[[0, 2]].tolist() != method.cluster[[1, 4]].tolist()
    assert len(set(method.cluster[[0, 2]])) == len(set(method.cluster[[1, 4]])) == 1


def test_warping_distances() -> None:
    """[0, 1, 1] and [0, 0, 1] warp onto each other; [0, 2] and [1, 1] are 1 apart in both steps."""
    np.testing.assert_allclose(warping_distances(np.array([[0.0, 1, 1], [0, 0, 1]])), np.zeros((2, 2)))
    np.testing.assert_allclose(warping_distances(np.array([[0.0, 2], [1, 1]]))[0, 1], 2**0.5)
    np.testing.assert_allclose(warping_distances(np.array([[1.0, 2, 3], [2, 2, 5]]))[0, 1], 5**0.5)  # 1 + 0 + 0 + 4
    sequences = np.random.default_rng(0).normal(size=(6, 7))
    expected = [[plain_strategies.warp(one, other) for other in sequences.tolist()] for one in sequences.tolist()]
    np.testing.assert_allclose(warping_distances(sequences), expected, atol=1e-12)


def test_norms_that_do_not_change_are_not_blown_up(five: Case) -> None:
    federation = five.federation("gcn", **SETTINGS)
    method = method_of(federation, backbone_of(federation, "gcn", **SETTINGS), "gcfl+", window=3, standardise=True)
    method._sequences = [[2.0, 2.0, 2.0], [1.0, 2.0, 3.0], [1.0, 3.0, 5.0], [3.0, 2.0, 1.0], [0.0, 0.0, 0.0]]
    alike = method.similarities(np.eye(5), np.arange(5))
    assert alike.max() < 10


def test_minimum_cut_is_the_cheapest_of_all() -> None:
    for seed in range(10):
        weights = np.random.default_rng(seed).random((6, 6))
        weights += weights.T
        one, other = plain_strategies.cheapest_cut(range(6), lambda i, j, w=weights: w[i, j])
        assert sorted(map(set, minimum_cut(weights)), key=min) == sorted([one, other], key=min)
    assert sorted(map(len, minimum_cut(np.zeros((3, 3))))) == [1, 2]  # nothing joins them
