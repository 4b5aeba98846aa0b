"""Which pairs of components the tests train."""

import pytest
from chosen_pairs import chosen
from pairs import BACKBONES, CORE, METHODS, PAIRS, core, dealt, default_partner, in_each_way, not_applicable

PARTNERS = {f"m{i}": [f"b{j}" for j in range(13)] for i in range(30)} | {"picky": ["b4"]}


def test_the_core_holds_every_component_with_its_default_partner_and_grows_with_their_sum() -> None:
    found = core(PARTNERS, "m0", "b2")
    assert {(name, "b2") for name in PARTNERS if name != "picky"} | {("picky", "b4")} <= found
    assert {("m0", f"b{j}") for j in range(13)} <= found
    assert all(len({one for own, one in found if own == name}) > 1 for name in PARTNERS if name != "picky")
    assert len(found) <= 2 * len(PARTNERS) + 13 < sum(map(len, PARTNERS.values())) / 5


def test_over_turns_every_pair_is_dealt() -> None:
    assert {pair for turn in range(13) for pair in dealt(PARTNERS, turn)} == {
        (name, one) for name, its in PARTNERS.items() for one in its
    }
    assert default_partner(PARTNERS, "picky", "b2") == "b4"


def test_every_method_and_every_backbone_occurs_in_each_way() -> None:
    rows = in_each_way("xyz")
    assert {(method, way) for method, _, way in rows} == {(method, way) for method in METHODS for way in "xyz"}
    assert {(backbone, way) for _, backbone, way in rows} == {
        (backbone, way) for backbone in BACKBONES for way in "xyz"
    }
    assert all(not_applicable(method, backbone) is None for method, backbone, _ in rows)


def test_parts_hold_every_pair_beyond_the_core_once_and_nothing_else() -> None:
    numbers = [None if pair in CORE else number for number, pair in enumerate(PAIRS)]
    beyond = [number for number in numbers if number is not None]
    parts = [[number for number in numbers if chosen(number, f"{part}/10")] for part in range(1, 11)]
    assert sorted(number for part in parts for number in part) == beyond != []
    assert all(parts)
    assert [number for number in numbers if chosen(number, "core")] == [None] * len(CORE)
    assert [number for number in numbers if chosen(number, "all")] == numbers


@pytest.mark.parametrize("wanted", ["", "some", "0/10", "11/10", "3/", "/3", "-1/3", "1.5/3"])
def test_other_choices_are_refused(wanted: str) -> None:
    with pytest.raises(pytest.UsageError, match="write core, all, or a part such as 3/10"):
        chosen(None, wanted)
