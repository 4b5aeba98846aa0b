"""Samplers: what a tree holds, whose numbers decide it, and how often each neighbour is drawn."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from pydantic import ValidationError
from scipy.stats import chisquare

from fglbench import registry
from fglbench.cli import main
from fglbench.errors import ComponentError
from fglbench.samplers import tree
from fglbench.samplers.base import Neighbours, variates
from fglbench.seeding import numpy_stream

SIZES = (12, 9, 5)
PTR = [0, 12, 21, 26]
NAN = float("nan")


def block_diagonal(sizes: Sequence[int] = SIZES) -> sp.csr_matrix:
    """Random clients; each one's last node has no edge, and the last client has none at all. Values mean nothing."""
    blocks = [sp.random(size, size, 0.4, "csr", random_state=client) for client, size in enumerate(sizes)]
    for block in blocks:
        block.data[:] = 1
    graph = sp.block_diag([block + block.T for block in blocks], "lil")
    alone = [*(np.cumsum(sizes) - 1), *range(sum(sizes[:-1]), sum(sizes))]
    graph[alone], graph[:, alone] = 0, 0
    graph.setdiag(0)
    found = sp.csr_matrix(graph)
    found.eliminate_zeros()
    found.data[:] = NAN
    return found


def star(leaves: int) -> sp.csr_matrix:
    """Node 0 joined to all others."""
    dense = np.zeros((leaves + 1, leaves + 1), dtype=np.float32)
    dense[0, 1:] = dense[1:, 0] = 1
    return sp.csr_matrix(dense)


def sampler(adjacency: sp.csr_matrix, *fanouts: int) -> tree.Sampler:
    return tree.Sampler(tree.Settings(fanouts=list(fanouts)), adjacency)


def streams(clients: Sequence[int], seed: int = 0) -> list[np.random.Generator]:
    return [numpy_stream(seed, "sampling", client) for client in clients]


def draw(adjacency: sp.csr_matrix, *fanouts: int, seed: int = 0) -> np.ndarray:
    """Trees of all nodes of all clients."""
    return sampler(adjacency, *fanouts).draw(np.arange(PTR[-1]), PTR, streams(range(3), seed))


@pytest.mark.parametrize(
    ("fanouts", "sizes"), [([6, 6], [1, 6, 36]), ([3], [1, 3]), ([2, 1, 4], [1, 2, 2, 8]), ([1, 1], [1, 1, 1])]
)
def test_levels_have_the_sizes_of_the_fanouts(fanouts: list[int], sizes: list[int]) -> None:
    assert tree.level_sizes(fanouts) == sizes
    drawn = draw(block_diagonal(), *fanouts)
    assert drawn.shape == (26, sum(sizes))
    assert drawn.dtype == np.int64
    assert sampler(block_diagonal(), *fanouts).size == sum(sizes)


@pytest.mark.parametrize("fanouts", [(4,), (3, 2), (2, 3, 2)])
def test_the_target_comes_first_and_the_parent_of_every_node_is_its_neighbour(fanouts: tuple[int, ...]) -> None:
    adjacency = block_diagonal()
    drawn = draw(adjacency, *fanouts)
    np.testing.assert_array_equal(drawn[:, 0], np.arange(26))
    levels = np.split(drawn, np.cumsum(tree.level_sizes(fanouts))[:-1], axis=1)
    degree = np.diff(adjacency.indptr)
    assert (degree == 0).sum() == 2 + SIZES[-1]
    known = [set(row.indices) or {number} for number, row in enumerate(adjacency)]
    for parents, children, fanout in zip(levels, levels[1:], fanouts, strict=False):
        for parent, child in zip(parents.repeat(fanout, axis=1).flat, children.flat, strict=True):
            assert child in known[parent]


def test_a_node_without_neighbours_draws_itself_also_where_it_is_the_last() -> None:
    adjacency = block_diagonal()
    alone = np.flatnonzero(np.diff(adjacency.indptr) == 0)
    drawn = draw(adjacency, 3, 2)[alone]
    np.testing.assert_array_equal(drawn, np.repeat(alone[:, None], 10, axis=1))


def test_all_that_is_read_is_of_the_targets_client() -> None:
    drawn = draw(block_diagonal(), 6, 6)
    for client in range(3):
        own = drawn[PTR[client] : PTR[client + 1]]
        assert own.min() >= PTR[client]
        assert own.max() < PTR[client + 1]


def test_neighbours_are_drawn_uniformly_and_with_replacement() -> None:
    leaves, targets = 5, 4000
    drawn = sampler(star(leaves), 3).draw(np.zeros(targets, dtype=np.int64), [0, targets], streams([0]))[:, 1:]
    assert chisquare(np.bincount(drawn.ravel(), minlength=leaves + 1)[1:]).pvalue > 0.01
    pairs = (drawn[:, 0] - 1) * leaves + drawn[:, 1] - 1  # of two siblings: independent, so equal ones as often
    assert chisquare(np.bincount(pairs, minlength=leaves**2)).pvalue > 0.01


def test_children_are_drawn_uniformly_and_apart_from_all_others() -> None:
    leaves, targets = 4, 4000
    drawn = sampler(star(leaves), 2, 1, 2).draw(np.zeros(targets, dtype=np.int64), [0, targets], streams([0]))
    assert (drawn[:, 3:5] == 0).all()  # leaf -> centre
    last = drawn[:, 5:]
    assert chisquare(np.bincount(last.ravel(), minlength=leaves + 1)[1:]).pvalue > 0.01
    for other in (last[:, 2], drawn[:, 1]):  # a cousin, the grandparent
        pairs = (last[:, 0] - 1) * leaves + other - 1
        assert chisquare(np.bincount(pairs, minlength=leaves**2)).pvalue > 0.01


def test_a_draw_depends_on_the_stream_alone() -> None:
    adjacency = block_diagonal()
    np.testing.assert_array_equal(draw(adjacency, 6, 6), draw(adjacency, 6, 6))
    assert (draw(adjacency, 6, 6) != draw(adjacency, 6, 6, seed=1)).any()


@pytest.mark.parametrize("clients", [[0], [1], [0, 2], [1, 2]])
def test_other_clients_change_no_draw(clients: list[int]) -> None:
    adjacency = block_diagonal()
    together = draw(adjacency, 6, 6)
    targets = np.concatenate([np.arange(PTR[client], PTR[client + 1]) for client in clients])
    ptr = np.cumsum([0, *(SIZES[client] for client in clients)]).tolist()
    np.testing.assert_array_equal(
        sampler(adjacency, 6, 6).draw(targets, ptr, streams(clients)),
        together[targets],
    )


def test_trees_drawn_some_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    adjacency = block_diagonal()
    together = draw(adjacency, 3, 2)
    monkeypatch.setattr(tree, "_TARGETS_AT_ONCE", 7)
    np.testing.assert_array_equal(draw(adjacency, 3, 2), together)


def test_variates_of_a_client_are_those_of_its_stream() -> None:
    drawn = variates(streams([0, 1]), [0, 2, 5], 3)
    np.testing.assert_array_equal(drawn[:2], numpy_stream(0, "sampling", 0).random((2, 3)))
    np.testing.assert_array_equal(drawn[2:], numpy_stream(0, "sampling", 1).random((3, 3)))


def test_the_variate_says_which_neighbour() -> None:
    neighbours = Neighbours(star(4))
    limits = np.array([0.0, 0.24, 0.25, 0.5, 0.75, np.nextafter(1, 0)])
    np.testing.assert_array_equal(neighbours.pick(np.zeros(6, dtype=np.int64), limits), [1, 1, 2, 3, 4, 4])
    np.testing.assert_array_equal(neighbours.pick(np.array([[0], [3]]), limits[[0, 4]]), [[1, 4], [0, 0]])


@pytest.mark.parametrize("fanouts", [[], [0], [6, 0], [1.5], 6])
def test_fanouts_are_counts_of_at_least_one_level(fanouts: object) -> None:
    with pytest.raises(ValidationError, match="fanouts"):
        tree.Settings.model_validate({"fanouts": fanouts})


def test_a_sampler_of_a_user_is_found_and_has_to_say_when_it_draws(tmp_path: Path, own_components: None) -> None:
    (tmp_path / "samplers").mkdir()
    text = registry.declaration("sampler", "tree").path.read_text(encoding="utf-8")
    (tmp_path / "samplers" / "mine.py").write_text(text, encoding="utf-8")
    (tmp_path / "samplers" / "broken.py").write_text(text.replace("(SamplerSettings)", "(ComponentSettings)"))
    registry.use_folders([tmp_path])
    assert registry.names("sampler") == ["broken", "mine", "tree"]
    assert registry.declaration("sampler", "mine").settings().model_dump() == {"redraw": "epoch", "fanouts": [6, 6]}
    with pytest.raises(ComponentError, match=r"class 'Settings\(SamplerSettings\)'; see docs/adding-a-sampler\.md"):
        registry.declaration("sampler", "broken")


def test_the_commands_know_samplers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "samplers"]) == 0
    assert capsys.readouterr().out.startswith("samplers:\n  tree  Ego-graphs of a fixed shape")
    assert main(["describe", "tree"]) == 0
    described = capsys.readouterr().out
    assert described.startswith("tree (sampler, version 1)\n")
    assert "  fanouts  [6, 6]  list of int" in described
    assert "  redraw   epoch   never | epoch | step" in described
