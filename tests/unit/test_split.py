"""Roles: hand-worked shares, and what holds for every split."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment
from fglbench.partition.ratios import (
    NONE,
    TEST,
    TRAIN,
    VAL,
    apportion,
    draw_roles,
    largest_remainder,
    rounded,
    shuffle_roles,
)
from fglbench.partition.split import (
    SplitSettings,
    assign_roles,
    check_roles,
    clients_without,
    counts_of,
    draw_per_class,
    refuse_empty,
)

DEFAULT = (0.2, 0.4, 0.4)


def counts_by_class(labels: np.ndarray, role: np.ndarray, code: int) -> list[int]:
    return np.bincount(labels[role == code], minlength=int(labels.max()) + 1).tolist()


def split_of(labels, parts, seed=0, masks=None, of: dict | None = None, **chosen):
    assignment, settings = Assignment(list(parts), **(of or {})), SplitSettings(**chosen)
    roles = assign_roles(np.asarray(labels), assignment, settings, seed, "toy", "random", masks or {})
    if settings.empty == "error":
        refuse_empty(counts_of(roles), assignment.held_out_clients, f"{len(parts)} clients")
    return roles


@pytest.mark.parametrize(
    ("ratios", "total", "expected"),
    [
        (DEFAULT, 10, [2, 4, 4]),
        (DEFAULT, 0, [0, 0, 0]),
        (DEFAULT, 1, [0, 1, 0]),  # .2 .4 .4: a tie of val and test, val first
        (DEFAULT, 3, [1, 1, 1]),  # .6 1.2 1.2
        (DEFAULT, 4, [1, 2, 1]),  # .8 1.6 1.6: train, then val
        (DEFAULT, 7, [1, 3, 3]),  # 1.4 2.8 2.8
        ((0.1, 0.2, 0.7), 10, [1, 2, 7]),  # 0.1 * 10 and its kin must not round down
        ((0.6, 0.2, 0.2), 5, [3, 1, 1]),
        ((1.0, 0.0, 0.0), 6, [6, 0, 0]),
        ((1 / 3, 1 / 3, 1 / 3), 2, [1, 1, 0]),
    ],
)
def test_largest_remainder(ratios, total, expected):
    assert largest_remainder(ratios, total) == expected


@pytest.mark.parametrize(
    ("counts", "total", "one_each", "expected"),
    [
        ([10, 10], 4, False, [2, 2]),
        ([7, 2, 1], 5, False, [3, 1, 1]),  # 3.5 1.0 0.5: of equal fractions the lower tie number, here class 2
        ([50, 49, 1], 10, False, [5, 5, 0]),
        ([50, 49, 1], 10, True, [5, 4, 1]),  # 5.0 4.9 0.1: class 1 is furthest above its share
        ([8, 1, 1, 1], 2, True, [0, 1, 0, 1]),  # rarest first, ties by number: class 3 has 0, class 1 has 1
        ([3, 0, 2], 2, True, [1, 0, 1]),
        ([2, 3], 5, True, [2, 3]),
        ([4, 4], 0, True, [0, 0]),
    ],
)
def test_apportion(counts, total, one_each, expected):
    ties = {3: np.array([2, 1, 0]), 2: np.array([0, 1]), 4: np.array([3, 1, 2, 0])}[len(counts)]
    assert apportion(np.array(counts), total, ties, one_each).tolist() == expected


def test_hand_worked_client():
    labels = np.array([0] * 12 + [1] * 7 + [2] + [-1] * 5)
    role = draw_roles(labels, [4, 8, 8], np.random.default_rng(0))
    # 20 labelled: 4 train, 8 val, 8 test. Train shares 2.4 1.4 0.2 give 2 1 0, one each gives 2 1 1.
    # Left are 10 6 0: val shares 5 3 0, test the rest.
    assert counts_by_class(labels, role, TRAIN) == [2, 1, 1]
    assert counts_by_class(labels, role, VAL) == [5, 3, 0]
    assert counts_by_class(labels, role, TEST) == [5, 3, 0]
    assert (role[labels < 0] == NONE).all()


def test_common_classes_wait_where_training_nodes_do_not_suffice():
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 3])
    role = draw_roles(labels, [2, 4, 4], np.random.default_rng(1))
    assert counts_by_class(labels, role, TRAIN) == [0, 0, 1, 1]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-1, 6), min_size=0, max_size=120),
    st.sampled_from([DEFAULT, (0.6, 0.2, 0.2), (0.1, 0.05, 0.85), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0)]),
    st.integers(0, 1000),
)
def test_laws_of_one_client(labels, ratios, seed):
    labels = np.array(labels, dtype=np.int64)
    labelled = labels >= 0
    totals = largest_remainder(ratios, int(labelled.sum()))
    role = draw_roles(labels, totals, np.random.default_rng(seed))
    assert [int((role == code).sum()) for code in (TRAIN, VAL, TEST)] == totals
    assert all(abs(got - ratio * labelled.sum()) < 1 for got, ratio in zip(totals, ratios, strict=True))
    assert ((role == NONE) == ~labelled).all()
    present, sizes = np.unique(labels[labelled], return_counts=True)
    trained = set(labels[role == TRAIN].tolist())
    assert len(trained) == len(present) or len(trained) == totals[0]
    left_out = [size for label, size in zip(present, sizes, strict=True) if int(label) not in trained]
    served = [size for label, size in zip(present, sizes, strict=True) if int(label) in trained]
    assert not left_out or not served or max(served) <= min(left_out)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(0, 1000))
def test_classes_keep_their_share(sizes, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    role = draw_roles(labels, largest_remainder(DEFAULT, len(labels)), np.random.default_rng(seed))
    for code, ratio in ((TRAIN, 0.2), (VAL, 0.4), (TEST, 0.4)):
        got = np.bincount(labels[role == code], minlength=len(sizes))
        # Rounding moves a class by less than one node; the guaranteed training nodes of all may be paid by one class.
        assert (np.abs(got - ratio * np.array(sizes)) < 1 + len(sizes)).all()


class Reversed:
    """A stream whose permutations are the reverse order, so that draws can be worked out by hand."""

    def permutation(self, values):
        return np.arange(values)[::-1] if isinstance(values, int) else np.asarray(values)[::-1]


def test_hand_worked_shuffle():
    labels = np.array([0, 0, 0, 0, 0, 0, -1, 1, 2, 2, 2])
    # 10 labelled: 2 train, 4 val, 4 test, from the last one down; class 1 has no training node.
    assert (
        shuffle_roles(labels, [2, 4, 4], Reversed()).tolist()
        == [TEST] * 4 + [VAL] * 2 + [NONE] + [VAL] * 2 + [TRAIN] * 2
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-1, 6), min_size=0, max_size=120), st.integers(0, 1000))
def test_a_shuffle_has_the_totals_of_the_ratios_whatever_the_classes(labels, seed):
    labels = np.array(labels, dtype=np.int64)
    totals = largest_remainder(DEFAULT, int((labels >= 0).sum()))
    role = shuffle_roles(labels, totals, np.random.default_rng(seed))
    assert [int((role == code).sum()) for code in (TRAIN, VAL, TEST)] == totals
    assert ((role == NONE) == (labels < 0)).all()
    other = np.where(labels >= 0, 0, -1)  # the same nodes with one class
    assert np.array_equal(role, shuffle_roles(other, totals, np.random.default_rng(seed)))


def test_stratify_decides_how_each_client_is_split():
    labels = np.array([0] * 90 + [1] * 10)
    parts = [np.arange(0, 50), np.arange(50, 100)]
    stratified, shuffled = (np.concatenate(split_of(labels, parts, 3, stratify=s)) for s in (True, False))
    assert [counts_by_class(labels, stratified, code) for code in (TRAIN, VAL, TEST)] == [[18, 2], [36, 4], [36, 4]]
    assert [int((shuffled == code).sum()) for code in (TRAIN, VAL, TEST)] == [20, 40, 40]
    assert not np.array_equal(stratified, shuffled)


def per_class(train, val, test=None):
    return SplitSettings(kind="per_class", train_per_class=train, val_nodes=val, test_nodes=test)


def test_hand_worked_numbers_per_class():
    labels = np.array([0, 0, 1, 0, -1, 1, 2, 0])
    # From the last one down: 2 of class 0 (nodes 7, 3), 2 of class 1 (5, 2), the one of class 2 (6); left are 1, 0.
    roles = draw_per_class(labels, per_class(2, 1), Reversed(), "toy")
    assert roles.tolist() == [TEST, VAL, TRAIN, TRAIN, NONE, TRAIN, TRAIN, TRAIN]
    roles = draw_per_class(labels, per_class(1, 2, 1), Reversed(), "toy")
    assert roles.tolist() == [NONE, TEST, VAL, VAL, NONE, TRAIN, TRAIN, TRAIN]


def test_roles_per_class_are_the_same_for_every_partition():
    labels = np.arange(60) % 3
    whole = split_of(labels, [np.arange(60)], 5, kind="per_class", train_per_class=4, val_nodes=20)[0]
    assert counts_by_class(labels, whole, TRAIN) == [4, 4, 4]
    parts = [np.arange(0, 60, 2), np.arange(1, 60, 2)]
    for part, roles in zip(
        parts, split_of(labels, parts, 5, kind="per_class", train_per_class=4, val_nodes=20), strict=True
    ):
        assert np.array_equal(roles, whole[part])


@pytest.mark.parametrize(("val", "test"), [(6, 1), (5, 2), (6, None), (7, None)])
def test_more_nodes_than_there_are_is_refused(val, test):
    labels = np.arange(9) % 3
    with pytest.raises(
        PartitionError, match=r"'toy': split\.val_nodes .* 1 leaves 6 of 9 labelled nodes\. Lower these"
    ):
        draw_per_class(labels, per_class(1, val, test), np.random.default_rng(0), "toy")


def test_identities_name_only_what_decides_the_roles():
    ratios = {"train": 0.2, "val": 0.4, "test": 0.4}
    assert SplitSettings().spec() == {"kind": "ratios", **ratios, "empty": "keep"}
    assert SplitSettings(stratify=False).spec() == {"kind": "ratios", **ratios, "stratify": False, "empty": "keep"}
    assert SplitSettings(kind="public", stratify=False).spec() == {"kind": "public", **ratios, "empty": "keep"}
    assert SplitSettings(kind="file").spec() == {"kind": "file", "empty": "keep"}
    counts = {"train_per_class": 20, "val_nodes": 500}
    assert per_class(20, 500).spec() == {"kind": "per_class", **counts, "empty": "keep"}


def test_each_client_is_split_on_its_own():
    labels = np.array([0, 1] * 20)
    parts = [np.arange(0, 10), np.arange(10, 40)]
    roles = split_of(labels, parts)
    assert [[int((role == code).sum()) for code in (TRAIN, VAL, TEST)] for role in roles] == [[2, 4, 4], [6, 12, 12]]
    assert all(role.dtype == np.int8 and len(role) == len(part) for role, part in zip(roles, parts, strict=True))


def test_seed_decides_and_only_the_seed():
    labels = np.arange(60) % 3
    parts = [np.arange(0, 25), np.arange(25, 60)]
    first, again, other = (np.concatenate(split_of(labels, parts, seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.integers(2, 5), st.integers(0, 1000))
def test_a_shared_node_has_one_role(nodes, clients, seed):
    stream = np.random.default_rng(seed)
    parts = [np.sort(stream.choice(nodes, size=stream.integers(1, nodes + 1), replace=False)) for _ in range(clients)]
    roles = split_of(stream.integers(-1, 3, size=nodes), parts, seed)
    by_node: dict[int, set[int]] = {}
    for part, role in zip(parts, roles, strict=True):
        for node, code in zip(part.tolist(), role.tolist(), strict=True):
            by_node.setdefault(node, set()).add(code)
    assert all(len(codes) == 1 for codes in by_node.values())


def numbers_of(roles):
    return [[int((role == code).sum()) for code in (TRAIN, VAL, TEST)] for role in roles]


@pytest.mark.parametrize("stratify", [True, False])
def test_the_ratios_hold_in_every_client_though_they_share_nodes(stratify):
    """Three clients of 10 nodes: each pair shares 3, and each has 4 for itself.

    Of the first two groups of 3 each has a train node, so the clients 0, 1 and 2 have 0.8, 0.4 and 0.4 too much of it,
    and the third group of 3 has none; of the 4 of its own client 0 takes none.
    """
    shared = {(0, 1): [0, 1, 2], (0, 2): [3, 4, 5], (1, 2): [6, 7, 8]}
    own = [[9, 10, 11, 12], [13, 14, 15, 16], [17, 18, 19, 20]]
    parts = [
        np.array(sorted(own[client] + [node for pair, nodes in shared.items() if client in pair for node in nodes]))
        for client in range(3)
    ]
    for seed in range(5):
        roles = split_of(np.zeros(21, dtype=int), parts, seed, stratify=stratify)
        assert numbers_of(roles) == [[2, 4, 4]] * 3
        role = np.concatenate(roles)[np.unique(np.concatenate(parts), return_index=True)[1]]
        assert numbers_of(role[nodes] for nodes in shared.values()) == [[1, 1, 1], [1, 1, 1], [0, 2, 1]]


@settings(max_examples=60, deadline=None)
@given(st.integers(20, 60), st.integers(2, 5), st.integers(0, 1000))
def test_clients_with_enough_nodes_of_their_own_have_the_numbers_they_had_alone(own, clients, seed):
    stream = np.random.default_rng(seed)
    shared = np.arange(clients * own, clients * own + 30)
    parts = [
        np.concatenate([np.arange(client * own, (client + 1) * own), shared[stream.random(30) < 0.3]])
        for client in range(clients)
    ]
    roles = split_of(stream.integers(0, 3, size=clients * own + 30), parts, seed)
    for part, numbers in zip(parts, numbers_of(roles), strict=True):
        assert np.abs(np.array(numbers) - np.array(DEFAULT) * len(part)).max() < 1


def test_numbers_that_are_owed_to_other_roles_are_rounded_to_the_whole():
    assert rounded([-0.5, 1.5, 2.0], 3) == [0, 1, 2]  # 0, 1.29, 1.71
    assert rounded([-0.4, 0.2, 0.2], 0) == [0, 0, 0]


def test_owned_nodes_are_split_on_their_own_and_copies_follow():
    labels = np.zeros(40, dtype=int)
    parts = [np.arange(0, 25), np.arange(15, 40)]
    copies = [np.arange(0, 25) >= 20, np.arange(15, 40) < 20]
    roles = split_of(labels, parts, 3, of={"copies": copies})
    assert numbers_of(role[~copy] for role, copy in zip(roles, copies, strict=True)) == [[4, 8, 8], [4, 8, 8]]
    assert np.array_equal(roles[0][15:], roles[1][:10])
    assert np.array_equal(roles[0][:20], split_of(labels, [np.arange(20), np.arange(20, 40)], 3)[0])


def test_held_out_clients_are_tested_and_nothing_else():
    labels = np.array([0] * 10 + [0, 0, -1, 0, 0])
    parts, of = [np.arange(10), np.arange(10, 15)], {"held_out_clients": (1,)}
    roles = split_of(labels, parts, of=of, empty="error")  # it lacks train and val nodes as it should
    assert numbers_of(roles) == [[2, 4, 4], [0, 0, 4]]
    assert roles[1].tolist() == [TEST, TEST, NONE, TEST, TEST]
    masks = {"train": np.arange(15) % 3 == 0, "val": np.arange(15) % 3 == 1, "test": np.arange(15) % 3 == 2}
    roles = split_of(labels, parts, masks=masks, of=of, kind="public")
    assert roles[0].tolist() == [TRAIN, VAL, TEST] * 3 + [TRAIN]
    assert roles[1].tolist() == [NONE, TEST, NONE, NONE, TEST]
    with pytest.raises(PartitionError, match=r"2 clients: no test targets at clients \[1\]\."):
        split_of(np.where(np.arange(15) < 10, 0, -1), parts, of=of, empty="error")


def test_roles_that_come_with_a_partition_are_taken_as_they_are():
    given_roles = np.array([TRAIN, VAL, TEST, NONE, TRAIN], dtype=np.int8)
    labels, parts = np.array([0, 1, 0, 1, -1]), [np.array([0, 2]), np.array([1, 3, 4])]
    roles = split_of(labels, parts, of={"roles": given_roles}, kind="file")
    assert [role.tolist() for role in roles] == [[TRAIN, TEST], [VAL, NONE, NONE]]
    with pytest.raises(
        PartitionError, match=r"'toy', scheme 'random', 2 clients: split\.kind 'file' needs the scheme 'file'"
    ):
        split_of(labels, parts, kind="file")


def test_two_roles_of_one_node_are_found():
    with pytest.raises(PartitionError, match="node 4 has two roles"):
        check_roles(np.array([1, 4, 4]), np.array([1, 1, 3], dtype=np.int8))


def test_public_masks_are_handed_out():
    masks = {
        name: np.isin(np.arange(8), nodes) for name, nodes in {"train": [0, 7], "val": [1, 2], "test": [5]}.items()
    }
    labels = np.array([0, 1, -1, 1, 0, 0, 1, 1])
    roles = split_of(labels, [np.array([0, 2, 4, 7]), np.array([1, 3, 5, 6])], masks=masks, kind="public")
    assert [role.tolist() for role in roles] == [[TRAIN, NONE, NONE, TRAIN], [VAL, NONE, TEST, NONE]]


def test_public_without_masks_names_the_dataset():
    with pytest.raises(PartitionError, match=r"dataset 'toy' has no official masks.*'ratios'"):
        split_of([0, 1], [np.array([0, 1])], kind="public")


def test_public_masks_that_overlap_are_refused():
    masks = {"train": np.array([True, True]), "val": np.array([False, True])}
    with pytest.raises(PartitionError, match="'toy': 1 nodes of the official val mask are also in another"):
        split_of([0, 1], [np.array([0, 1])], masks=masks, kind="public")


def test_clients_that_lack_a_role_are_kept_or_refused():
    labels = np.array([0] * 10 + [0] + [-1, -1])
    parts = [np.arange(10), np.array([10]), np.array([11, 12])]
    roles = split_of(labels, parts)
    assert clients_without(counts_of(roles)) == {"train": [1, 2], "val": [2], "test": [1, 2]}
    with pytest.raises(PartitionError, match=r"3 clients: no train targets at .*\[1, 2\], no val targets at .*\[2\]"):
        split_of(labels, parts, empty="error")
    assert len(split_of(labels[:10], parts[:1], empty="error")) == 1


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"train": 0.3}, r"train 0\.3 \+ val 0\.4 \+ test 0\.4 is 1\.1; it must be 1"),
        ({"train": 0.2 + 1e-8}, "it must be 1"),
        ({"train": 0.0, "val": 0.6}, "greater than 0"),
        ({"val": -0.1, "test": 0.9}, "greater than or equal to 0"),
        ({"ratio": 0.2}, "Extra inputs"),
        ({"kind": "official"}, "'ratios', 'per_class', 'public' or 'file'"),
        ({"kind": "per_class", "val_nodes": 500}, "kind per_class needs 'train_per_class', such as 20"),
        ({"kind": "per_class", "train_per_class": 20}, "kind per_class needs 'val_nodes', such as 500"),
        ({"train_per_class": 20}, "'train_per_class' applies only to kind per_class"),
        ({"kind": "per_class", "train_per_class": 0, "val_nodes": 5}, "greater than or equal to 1"),
        ({"train": "2e-1"}, "valid number"),
    ],
)
def test_bad_settings_are_refused(chosen, message):
    with pytest.raises(ValidationError, match=message):
        SplitSettings(**chosen)


def test_ratios_that_only_round_to_one_are_accepted():
    assert SplitSettings(train=0.1, val=0.2, test=0.7).train == 0.1  # 0.1 + 0.2 + 0.7 is not 1.0 in binary
