"""FedGTA: equations 3 to 7 worked out by hand on six nodes of two clients; a plain loop over clients; limits."""

from pathlib import Path
from typing import Any

import numpy as np
import plain_strategies
import pytest
import scipy.sparse as sp
import torch
from federations import NONE, TEST, TRAIN, VAL, Case, backbone_of, method_of, schedule_of
from laws import make_five, run
from test_strategies import assert_close_but_for_bytes, assert_oracle, differs, plan_of, trained

from fglbench.federation.federation import Federation
from fglbench.methods import base
from fglbench.methods.fedgta import GraphTensors, confidence, moments, propagate, similar
from fglbench.storage import read_json, read_npz
from fglbench.workflow.single import run_cell

# The first client is the path 0 - 1 - 2, the second the triangle 3 - 4 - 5.
SOFT = [[0.8, 0.2], [0.5, 0.5], [0.4, 0.6], [0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]
# With loops, the path has the degrees 2, 3, 2 and the triangle 3, 3, 3. So node 0 reads
# 0.5 y_0 + y_1 / sqrt(6), node 1 reads y_1 / 3 + (y_0 + y_2) / sqrt(6), and the triangle's nodes read their mean, which
# is (0.6, 0.4) in every step. Step 1, node 0, class 0: 0.5 * 0.8 + 0.5 * (0.5 * 0.8 + 0.5 / sqrt(6)) = 0.702062.
FIRST = [[0.702062, 0.252062], [0.578282, 0.496633], [0.402062, 0.552062], [0.75, 0.25], [0.6, 0.4], [0.45, 0.55]]
SECOND = [[0.693557, 0.264390], [0.571759, 0.496913], [0.418557, 0.539390], [0.75, 0.25], [0.6, 0.4], [0.45, 0.55]]
# Equation 4 on SECOND: 2 / e + sum_j y log y is 0.130245, 0.068613, 0.038246 for the path's nodes, and 0.173423,
# 0.062748, 0.047620 for the triangle's; times the degrees.
CONFIDENCE = [2 * 0.130245 + 3 * 0.068613 + 2 * 0.038246, 3 * (0.173423 + 0.062748 + 0.047620)]
# Equation 5 with K = 3: the means over a client's nodes of y, y^2, y^3, of both steps; first raw, then less the mean
# over classes ((0.702062 + 0.252062) / 2 for node 0 in step 1).
RAW = [
    [
        *(0.560802, 0.433586, 0.561291, 0.433565, 0.329652, 0.204984, 0.327706, 0.202589),
        *(0.201473, 0.102253, 0.197952, 0.099371),
    ],
    [0.6, 0.4, 0.6, 0.4, 0.375, 0.175, 0.375, 0.175, 0.243, 0.082, 0.243, 0.082],
]
CENTRAL = [
    [
        *(0.063608, -0.063608, 0.063863, -0.063863, 0.019306, 0.019306, 0.017032, 0.017032),
        *(0.003679, -0.003679, 0.003238, -0.003238),
    ],
    [0.1, -0.1, 0.1, -0.1, 0.025, 0.025, 0.025, 0.025, 0.0055, -0.0055, 0.0055, -0.0055],
]
# Equation 6: the cosines of the two rows are 0.995316 (raw) and 0.999312 (central).
# Equation 7: shares of the confidences 0.542821 and 0.851373.
SHARES = [0.389344, 0.610656]


def six_nodes(**changes: Any) -> Federation:
    edges = [(0, 1), (1, 2), (3, 4), (4, 5), (3, 5)]
    pairs = np.array(edges + [(j, i) for i, j in edges])
    values = {
        "ptr": np.array([0, 3, 6]),
        "labels": np.array([0, 1, 1, 0, 0, 1]),
        "role": np.array([TEST, TRAIN, VAL, TRAIN, NONE, TEST], dtype=np.int8),
        "classes": 2,
        "adjacency": sp.csr_matrix((np.ones(len(pairs), dtype=np.float32), pairs.T), shape=(6, 6)),
        "x": np.ones((6, 1), dtype=np.float32),
    }
    return Federation(**{**values, **changes})


def round_on(
    federation: Federation, clients: tuple[int, ...] = (0, 1), soft: Any = SOFT, weights: tuple[float, ...] = (1, 1)
) -> base.ClientRound:
    """A round after which the clients' models give these soft labels."""
    of_all = torch.zeros(federation.num_clients)
    of_all[list(clients)] = torch.tensor(weights, dtype=torch.float32)
    return base.ClientRound(
        0,
        np.array(clients),
        of_all.long().numpy(),
        of_all,
        {},
        {},
        np.zeros(federation.num_clients, dtype=np.float32),
        schedule_of(),
        lambda: torch.tensor(soft).log(),
        lambda _: np.zeros(2),
    )


def mixed(method: base.Method, round: base.ClientRound, uploads: base.Messages) -> torch.Tensor:
    """The server's matrix for what the clients of a round upload."""
    at_server = base.Round(round.number, round.clients, round.counts, round.weights, {}, {}, round.schedule, uploads)
    return method.aggregate(at_server)[base.SHARED]


def answer(federation: Federation, round: base.ClientRound, **own: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """What clients upload, and the mixing matrix that follows."""
    method = method_of(federation, backbone_of(federation, "gcn"), "fedgta", **{"k": 2, "order": 3, **own})
    uploads = method.upload(round)
    return uploads, mixed(method, round, uploads)


def assert_near(found: torch.Tensor, expected: Any, tolerance: float = 2e-6) -> None:
    np.testing.assert_allclose(found.numpy(), np.asarray(expected), rtol=0, atol=tolerance)


def test_equation_3_label_propagation() -> None:
    graph = GraphTensors(six_nodes(), torch.device("cpu"))
    steps = propagate(torch.tensor(SOFT), graph.operator, k=2, alpha=0.5)
    assert_near(steps[:, 0], FIRST)
    assert_near(steps[:, 1], SECOND)


def test_equation_4_confidence() -> None:
    graph = GraphTensors(six_nodes(), torch.device("cpu"))
    assert graph.degrees.flatten().tolist() == [1, 2, 1, 2, 2, 2]
    assert_near(confidence(torch.tensor(SECOND), graph.degrees + 1, graph), CONFIDENCE, 1e-5)


def test_equation_5_moments() -> None:
    steps = torch.tensor([FIRST, SECOND]).transpose(0, 1)
    central = steps - steps.mean(2, keepdim=True)
    graph = GraphTensors(six_nodes(), torch.device("cpu"))
    assert_near(moments([steps], graph, 3), RAW)
    assert_near(moments([central], graph, 3), CENTRAL)
    assert_near(moments([steps, central], graph, 3), np.hstack([RAW, CENTRAL]))


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4], ids=["small", "squares overflow", "moments overflow"])
def test_high_moments_of_hubs_keep_their_direction(scale: float) -> None:
    """Beyond what float32 holds the cosines are those of float64, and the other client's moments stay as they are."""
    graph, order = GraphTensors(six_nodes(), torch.device("cpu")), 20
    large = torch.tensor([FIRST, SECOND]).transpose(0, 1).clone()
    large[:3] *= scale
    found = moments([large], graph, order)
    powers = large.double().flatten(1).numpy()[:, None, :] ** np.arange(1, order + 1)[:, None]
    exact = np.stack([powers[client].mean(0).ravel() for client in (slice(0, 3), slice(3, 6))])
    unit = exact / np.linalg.norm(exact, axis=1, keepdims=True)
    cosine = float(unit[0] @ unit[1])
    assert similar(found, cosine - 1e-5, strictly=False)[0].tolist() == [True, True]
    assert similar(found, cosine + 1e-5, strictly=False)[0].tolist() == [True, False]
    alone = large.clone()
    alone[:3] = 0.5
    assert torch.equal(found[1], moments([alone], graph, order)[1])


@pytest.mark.parametrize(("rows", "cosine"), [(RAW, 0.995316), (CENTRAL, 0.999312)])
def test_equation_6_similarity(rows: list[list[float]], cosine: float) -> None:
    for epsilon, expected in ((cosine - 2e-6, True), (cosine + 2e-6, False)):
        assert similar(torch.tensor(rows), epsilon, strictly=False).tolist() == [[True, expected], [expected, True]]
    same = torch.tensor([rows[0], rows[0]])
    assert similar(same, 1.0, strictly=True).tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize(
    ("kind", "epsilon", "alike"),
    [
        ("raw", 0.9953, True),
        ("raw", 0.9954, False),
        ("central", 0.9993, True),
        ("central", 0.9994, False),
        (
            "hybrid",
            0.9939,
            True,
        ),  # (1.451544 + 0.027387) / sqrt((1.404751 + 0.017623) (1.514046 + 0.042621)) = 0.993901
        ("hybrid", 0.9940, False),
    ],
)
def test_equation_7_mixing(kind: str, epsilon: float, alike: bool) -> None:
    federation = six_nodes()
    uploads, mixing = answer(federation, round_on(federation), moments=kind, epsilon=epsilon)
    expected = {"raw": RAW, "central": CENTRAL, "hybrid": np.hstack([RAW, CENTRAL])}[kind]
    assert_near(uploads["moments"], expected)
    assert_near(uploads["confidence"], CONFIDENCE, 1e-5)
    assert_near(mixing, [SHARES, SHARES] if alike else np.eye(2), 1e-5)


def test_the_public_variant() -> None:
    """Nodes 1 and 3 are training nodes, of class 1 and 0, and start from (0, 1) and (1, 0).

    These are added to their rows in both steps, so that the second gives node 1 (0.224537, 2.010802). A softmax makes
    the others' rows, of node 0 from (0.6, 0.562071): (0.509481, 0.490519), and (0.500474, 0.499526) at temperature 20.
    """
    federation = six_nodes()
    own = {"variant": "public", "order": 2, "moments": "raw"}
    uploads, mixing = answer(federation, round_on(federation), epsilon=0.6, **own)
    one, other = [[0.509481, 0.490519], [0.374708, 0.625292]], [[0.598688, 0.401312], [0.524979, 0.475021]]
    path = [(one[0][0] + one[1][0]) / 3, (one[0][1] + 1 + one[1][1]) / 3]
    path += [(one[0][0] ** 2 + one[1][0] ** 2) / 3, (one[0][1] ** 2 + 1 + one[1][1] ** 2) / 3]
    triangle = [(1 + other[0][0] + other[1][0]) / 3, (other[0][1] + other[1][1]) / 3]
    triangle += [(1 + other[0][0] ** 2 + other[1][0] ** 2) / 3, (other[0][1] ** 2 + other[1][1] ** 2) / 3]
    assert_near(uploads["moments"], [path, triangle])
    # 2 / e + sum_j y log y is 2 / e for the training nodes and about 2 / e - log 2 for the others
    assert_near(uploads["confidence"], [1.556824, 1.642071], 1e-5)
    share = 1.556824 / (1.556824 + 1.642071)
    assert_near(mixing, [[share, 1 - share]] * 2, 1e-5)  # the cosine is 0.620147
    assert_near(answer(federation, round_on(federation), epsilon=0.63, **own)[1], np.eye(2))
    central = answer(federation, round_on(federation), **{**own, "moments": "central"})[0]["moments"]
    assert_near(central, [[0, 0, 0.046460, 0.046460], [0, 0, 0.043570, 0.043570]], 1e-5)


def test_without_moments_all_are_alike_and_without_confidence_training_nodes_weigh() -> None:
    federation = six_nodes()
    round = round_on(federation, weights=(3, 1))
    uploads, mixing = answer(federation, round, epsilon=1.0, no_moments=True)
    assert set(uploads) == {"confidence"}
    assert_near(mixing, [SHARES, SHARES], 1e-5)
    uploads, mixing = answer(federation, round, epsilon=-1.0, no_confidence=True)
    assert set(uploads) == {"moments"}
    assert_near(mixing, [[0.75, 0.25]] * 2)
    uploads, mixing = answer(federation, round, epsilon=1.0, no_confidence=True, no_moments=True)
    assert uploads == {}
    assert_near(mixing, [[0.75, 0.25]] * 2)


def test_who_sits_out_keeps_what_it_has_and_who_never_trained_receives_the_mean() -> None:
    federation = six_nodes()
    method = method_of(federation, backbone_of(federation, "gcn"), "fedgta")
    first = round_on(federation, clients=(1,), weights=(1,))
    uploads = {"confidence": torch.tensor([2.0]), "moments": torch.ones(1, 4)}
    assert_near(mixed(method, first, uploads), [[0, 1], [0, 1]])
    second = round_on(federation, clients=(0,), weights=(1,))
    assert_near(mixed(method, second, uploads), np.eye(2))


def test_a_client_without_edges_has_no_confidence_in_the_public_variant() -> None:
    whole = six_nodes()
    edges = whole.adjacency.tolil()
    edges[3:, 3:] = 0
    apart = six_nodes(adjacency=edges.tocsr())
    uploads, mixing = answer(apart, round_on(apart), epsilon=-1.0, variant="public")
    assert uploads["confidence"][0] > 0 == uploads["confidence"][1]
    assert_near(mixing, [[1, 0], [1, 0]])
    assert_near(answer(apart, round_on(apart), epsilon=1.0, variant="public")[1], np.eye(2))
    # By the paper's equations it has the loops of its nodes: 0.5 y + 0.5 y = y in every step.
    own = sum(2 * np.exp(-1) + np.sum(np.log(row) * row) for row in SOFT[3:])
    assert_near(answer(apart, round_on(apart))[0]["confidence"], [CONFIDENCE[0], own], 1e-5)


def test_labels_of_other_than_training_nodes_are_never_read() -> None:
    for variant in ("paper", "public"):
        seen = []
        for labels in ([0, 1, 1, 0, 0, 1], [1, 1, 0, 0, -1, 0]):  # nodes 1 and 3 train
            federation = six_nodes(labels=np.array(labels))
            seen.append(answer(federation, round_on(federation), variant=variant)[0])
        assert all(torch.equal(seen[0][name], seen[1][name]) for name in seen[0])


# ---- in training


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_five(tmp_path_factory.mktemp("five"), [0, 1, 2, 3, 4])


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize(
    ("own", "median"),
    [
        ({"moments": "raw", "order": 2}, 0.99),
        ({"moments": "central", "order": 3, "k": 3, "alpha": 0.3}, 0.5),
        ({"moments": "hybrid", "order": 2, "no_confidence": True}, 0.97),
        ({"moments": "raw", "order": 3, "variant": "public"}, 0.8),
        ({"moments": "central", "order": 2, "variant": "public", "k": 2}, 0.3),
        ({"moments": "hybrid", "order": 2, "no_moments": True}, 0.97),
    ],
)
def test_agrees_with_a_plain_loop(
    five: Case, own: dict[str, Any], median: float, participation: float, chunk: int | None
) -> None:
    schedule = {"rounds": 4, "participation": participation, "lr": 0.03}
    result, _ = trained(five, "fedgta", chunk, {**own, "epsilon": median}, **schedule)
    plain = plain_strategies.FedGTA(epsilon=median, **own)
    assert_oracle(five, result, plan_of(4, participation, lr=0.03), plain, "adam")
    assert differs(result, trained(five, "fedavg", None, **schedule)[0])
    if not own.get("no_moments"):
        assert 0 < plain.accepted < plain.compared  # the threshold lets some pairs pass and keeps others apart


def test_with_epsilon_minus_one_and_training_nodes_as_weights_it_is_fedavg(five: Case) -> None:
    federation = five.federation()
    own = {"epsilon": -1.0, "no_confidence": True}
    fedavg = run(federation, "fedavg", dropout=0.5, rounds=5)
    assert_close_but_for_bytes(run(federation, "fedgta", own=own, dropout=0.5, rounds=5), fedavg, 1e-5)


def test_bytes_of_moments_and_confidence(five: Case) -> None:
    fedavg = run(five.federation(), "fedavg", rounds=1).history
    history = run(five.federation(), "fedgta", own={"k": 2, "order": 3, "moments": "raw"}, rounds=1).history
    assert history["bytes_up"] - fedavg["bytes_up"] == 4 * (4 * 2 * 3 * 3 + 4)  # 4 clients, 3 classes
    assert history["bytes_down"].tolist() == fedavg["bytes_down"].tolist()


def test_a_run_stores_its_mixing_matrices(tmp_path: Path) -> None:
    values = {
        "datasets": [{"name": "sbm", "nodes": 60, "classes": 3, "features": 8}],
        "partitions": ["random"],
        "clients": [3],
        "methods": ["fedavg"],
        "seeds": [0],
        "training": {"rounds": 4, "local_epochs": 1, "hidden": 4},
        "device": "cpu",
    }
    folders = [Path(run_cell({**values, "methods": [name]}, tmp_path)["folder"]) for name in ("fedavg", "fedgta")]
    assert not (folders[0] / "mixing.npz").exists()
    stored = read_npz(folders[1] / "mixing.npz")
    assert stored["rounds"].tolist() == [0, 1, 2, 3]
    assert (stored["mixing"].shape, stored["mixing"].dtype) == ((4, 3, 3), np.float32)
    assert "mixing.npz" in read_json(folders[1] / "run.json")["files"]


def test_the_mixing_matrix_is_recorded(five: Case) -> None:
    recorded = run(five.federation(), "fedgta", rounds=3, own={"epsilon": 0.9}).mixing
    assert recorded["rounds"].tolist() == [0, 1, 2]
    np.testing.assert_allclose(recorded["mixing"].sum(2), 1, atol=1e-6)
    assert (recorded["mixing"][:, :, 3] == 0).all()  # the fourth client has nothing to give
