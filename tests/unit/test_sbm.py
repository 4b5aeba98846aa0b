"""The synthetic block model: exact counts, statistics, and the same graph everywhere."""

import subprocess
import sys

import numpy as np
import pytest

from fglbench.datasets.base import canonical_edges, content_hash
from fglbench.datasets.sbm import generate
from fglbench.datasets.spec import SbmSettings
from fglbench.storage import hash_arrays


@pytest.mark.parametrize("homophily", [0.0, 0.35, 0.8, 1.0])
def test_counts_and_homophily_are_exact(homophily):
    settings = SbmSettings(nodes=3_001, classes=7, average_degree=9.0, homophily=homophily, features=4)
    graph = generate(settings)
    assert graph.num_edges == settings.edges == round(3_001 * 9 / 2)
    again, cleaning = canonical_edges(graph.edges, 3_001)
    np.testing.assert_array_equal(graph.edges, again)
    assert cleaning["duplicates_removed"] == cleaning["self_loops_removed"] == cleaning["reverse_added"] == 0
    same = (graph.labels[graph.edges[0]] == graph.labels[graph.edges[1]]).sum() // 2
    assert same == round(homophily * settings.edges)
    sizes = np.bincount(graph.labels)
    assert len(sizes) == graph.classes == 7
    assert sizes.max() - sizes.min() <= 1


def test_edges_favour_no_node_and_no_class():
    graph = generate(SbmSettings(nodes=4_000, classes=4, average_degree=20.0, homophily=0.5, features=1))
    degree = np.bincount(graph.edges[0], minlength=4_000)
    # Degrees of uniformly drawn edges are Poisson: variance = mean = 20, so a block of 1,000 ids has mean 20 +- 0.14.
    assert degree.var() == pytest.approx(20, rel=0.15)
    np.testing.assert_allclose(degree.reshape(4, 1_000).mean(axis=1), 20, atol=0.6)
    across = graph.labels[graph.edges[:, graph.labels[graph.edges[0]] != graph.labels[graph.edges[1]]]]
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (across[0], across[1]), 1)
    expected = across.shape[1] / 12
    np.testing.assert_allclose(pairs[~np.eye(4, dtype=bool)], expected, rtol=0.1)


def test_features_are_centres_plus_unit_noise():
    graph = generate(SbmSettings(nodes=20_000, classes=4, features=25, signal=3.0))
    assert graph.features.dtype == np.float32
    centres = np.stack([graph.features[graph.labels == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 3.0, atol=0.1)
    assert (graph.features - centres[graph.labels]).std() == pytest.approx(1.0, abs=0.01)
    silent = generate(SbmSettings(nodes=20_000, classes=4, features=25, signal=0.0))
    means = np.stack([silent.features[silent.labels == c].mean(axis=0) for c in range(4)])
    assert np.abs(means).max() < 0.08


def test_equal_settings_give_equal_graphs_in_any_process():
    settings = {"nodes": 500, "average_degree": 6.0, "features": 8}
    code = (
        "from fglbench.datasets.base import content_hash; from fglbench.datasets.sbm import generate;"
        f"from fglbench.datasets.spec import SbmSettings; print(content_hash(generate(SbmSettings(**{settings}))))"
    )
    expected = content_hash(generate(SbmSettings(**settings)))
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        )
        assert run.stdout.strip() == expected
    assert content_hash(generate(SbmSettings(**settings, seed=1))) != expected


def test_golden():
    """Fails when the generator's numbers change: then raise the version of sbm in the catalogue."""
    graph = generate(SbmSettings(nodes=200, average_degree=6.0, features=3))
    assert hash_arrays({"edges": graph.edges, "labels": graph.labels})[:16] == "6a71a9b4c25192b6"
    expected = [[-0.5280446, -0.2900704, -0.2748159], [-1.5127821, 1.4659507, -1.7228943]]
    np.testing.assert_allclose(graph.features[[0, 199]], expected, rtol=1e-5)
