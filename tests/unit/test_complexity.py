"""The complexity benchmark: fitted slopes, the paper's terms, and what it measures; no time is asserted."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import linregress

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import complexity  # noqa: E402
from complexity_figure import draw  # noqa: E402
from complexity_slopes import FACTORS, QUANTITIES, power_law, slopes, table  # noqa: E402
from complexity_terms import TABLE, Sizes, term_of  # noqa: E402


@pytest.mark.parametrize("slope", [-1.0, 0.0, 0.5, 1.0, 2.7])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 4e6])
def test_an_exact_power_law_is_found(slope: float, scale: float):
    sizes = [3, 10, 64, 1000]
    law = power_law(sizes, [scale * size**slope for size in sizes])
    assert law.slope == pytest.approx(slope, abs=1e-12)
    assert law.scale == pytest.approx(scale, rel=1e-10)
    np.testing.assert_allclose(law.at(np.array([7.0])), scale * 7**slope, rtol=1e-10)


def test_fit_is_that_of_scipy():
    random = np.random.default_rng(0)
    for _ in range(20):
        sizes = random.integers(1, 10_000, 6)
        values = random.lognormal(size=6)
        law, known = power_law(sizes, values), linregress(np.log(sizes), np.log(values))
        assert law.slope == pytest.approx(known.slope, rel=1e-9)
        assert np.log(law.scale) == pytest.approx(known.intercept, rel=1e-9, abs=1e-9)


def test_values_without_a_logarithm_are_left_out():
    assert power_law([1, 2, 4, 8], [0.0, 2.0, 4.0, 8.0]).slope == pytest.approx(1.0)
    assert np.isnan(power_law([1, 2], [0.0, 2.0]).slope)
    assert np.isnan(power_law([5, 5], [1.0, 2.0]).slope)


def test_terms_by_hand():
    sizes = Sizes(nodes=100, features=10, clients=4, degree=6.0, classes=5)  # m = 300, k = 5, K = 6, T = 3, L = 2
    found = {
        ("fedavg", "client_s"): 5 * 300 * 10 + 100 * 10**2,
        ("fedavg", "server_s"): 4,
        ("scaffold", "server_s"): 4 + 4 * 100 + 100,
        ("moon", "client_s"): 25_000 + 2 * 100 * 10,
        ("feddc", "client_s"): 25_000 + 4 * 100,
        ("gcfl+", "server_s"): 4 + 16 * (2 + 9 * 100),
        ("fedgl", "inference_s"): 2 * 300 * 10 + 2 * 100 * 100 + 100**2 * 10,
        ("fedsage+", "client_s"): 2 * (300 + 250) * 10 + 2 * (100 + 250) * 100,
        ("fedgta", "client_s"): 5 * 300 * (10 + 5 * 100 * 5) + 100 * (100 + 5),
        ("fedgta", "server_s"): 4 + 4 * 5 * 6 * 5,
        ("fedgta", "bytes"): 4 + 4 * 100 + 4 * 5 * 6 * 5,
        ("fedavg", "peak_mb"): 4 * ((100 + 5) * 10 + 100) + 4 + 4 * 100,
    }
    assert {key: term_of(*key).at(sizes) for key in found} == found


VARIED = {"nodes": [60, 120], "features": [4, 8], "clients": [2, 4]}


def test_a_row_for_every_method_and_factor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(complexity, "ProcessPoolExecutor", lambda workers, **_: ThreadPoolExecutor(workers))
    measured = complexity.sweep(list(TABLE), Sizes(60, 4, 2), VARIED, smaller=1, rounds=3, repeats=1)
    assert len(measured) == 9 * 3 * 2
    assert (measured[["client_s", "server_s", "bytes", "inference_s", "prepare_s"]] > 0).all(axis=None)

    fedavg = measured[measured["method"] == "fedavg"]
    parameters = (fedavg["features"] + 1) * 5
    np.testing.assert_array_equal(fedavg["bytes"], 2 * 4 * parameters * fedavg["clients"])

    found = slopes(measured)
    assert len(found) == 9 * 3 * len(QUANTITIES)
    assert set(zip(found["method"], found["factor"], strict=True)) == {(m, f) for m in TABLE for f in FACTORS}
    own = found[(found["method"] == "fedavg") & (found["quantity"] == "bytes")].set_index("factor")
    assert own.loc["clients", "slope"] == pytest.approx(1.0)
    assert own.loc["nodes", ["slope", "paper"]].tolist() == pytest.approx([0.0, 0.0])
    assert own.loc["features", "slope"] == pytest.approx(np.log2(9 / 5))

    lines = list(table(found))
    assert all(sum(line.split()[:1] == [method] for line in lines) == len(QUANTITIES) for method in TABLE)
    figure = draw(measured)
    figure.savefig(tmp_path / "complexity.png")
    assert (tmp_path / "complexity.png").stat().st_size > 50_000
    ticks = [
        label.get_text() for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()
    ]
    assert [float(text.replace("\N{MINUS SIGN}", "-")) for text in ticks if text]


@pytest.mark.slow
def test_a_training_is_measured_in_a_process_of_its_own():
    measured = complexity.sweep(["fedgta"], Sizes(60, 4, 2), VARIED, smaller=1, rounds=2, repeats=2)
    assert measured["factor"].tolist() == ["nodes", "nodes", "features", "features", "clients", "clients"]
    assert measured[list(FACTORS)].drop_duplicates().shape == (4, 3)
    assert measured.loc[0, "client_s"] == measured.loc[2, "client_s"] == measured.loc[4, "client_s"]  # one training
