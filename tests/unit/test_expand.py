"""Expansion: every combination once, identities that depend on exactly what decides a number."""

import pytest

from fglbench import registry
from fglbench.config.entries import labels
from fglbench.config.expand import expand
from fglbench.config.identity import seed_ranges, seeds_of, slug
from fglbench.config.schema import Study

BASE = {
    "datasets": ["cora", "citeseer"],
    "partitions": ["louvain", "metis"],
    "clients": [5, 10],
    "methods": ["global", "local", "fedavg", {"name": "fedprox", "mu": 0.1}],
    "backbones": ["gcn"],
    "seeds": 3,
}


def study(**changes) -> Study:
    return Study.model_validate({**BASE, **changes})


def only_cell(**changes):
    one = {"datasets": ["cora"], "partitions": ["louvain"], "clients": [5], "methods": ["fedprox"], "seeds": [0]}
    return expand(study(**{**one, **changes})).cells[0]


def test_every_combination_has_a_placement_and_global_is_trained_once():
    expansion = expand(study())
    assert len(expansion.placements) == 2 * 2 * 2 * 4 * 3
    assert len(expansion.cells) == 2 * 2 * 2 * 3 * 3 + 2 * 3
    shown = [p for p in expansion.placements if p.method == "global" and p.dataset == "cora" and p.cell.seed == 0]
    assert {(p.scheme, p.clients) for p in shown} == {("louvain", 5), ("louvain", 10), ("metis", 5), ("metis", 10)}
    assert len({p.cell.id for p in shown}) == 1
    assert shown[0].cell.partition.spec["scheme"] == "whole"


def test_cell_ids_are_distinct_and_labels_are_no_part_of_them():
    expansion = expand(study())
    assert len({cell.id for cell in expansion.cells}) == len(expansion.cells)
    plain, labelled = only_cell(), only_cell(methods=[{"name": "fedprox", "label": "FedProx!"}])
    assert plain == labelled
    assert plain.id == labelled.id


def test_an_explicit_default_is_the_same_cell():
    assert only_cell(methods=[{"name": "fedprox", "mu": 0.01}]).id == only_cell().id
    assert only_cell(training={"lr": 0.01}).id == only_cell().id
    assert only_cell(backbones=[{"name": "gcn", "hidden": 64}]).id == only_cell(training={"hidden": 64}).id


@pytest.mark.parametrize(
    "changes",
    [
        {"datasets": ["citeseer"]},
        {"partitions": ["metis"]},
        {"partitions": [{"name": "louvain", "resolution": 2.0}]},
        {"clients": [6]},
        {"methods": ["fedavg"]},
        {"methods": [{"name": "fedprox", "mu": 0.5}]},
        {"backbones": ["sgc"]},
        {"backbones": [{"name": "gcn", "r": 0.3}]},
        {"training": {"lr": 0.02}},
        {"training": {"hidden": 32}},
        {"training": {"participation": 0.5}},
        {"protocol": {"evaluate": "trained"}},
        {"protocol": {"features": "row"}},
        {"protocol": {"mean": "macro"}},
        {"protocol": {"split": {"train": 0.3, "val": 0.3, "test": 0.4}}},
        {"seeds": [1]},
    ],
)
def test_whatever_decides_a_number_is_another_cell_at_another_path(changes):
    other = only_cell(**changes)
    assert other.id != only_cell().id
    assert other.folder("train") != only_cell().folder("train")


def test_the_reading_shown_changes_no_cell():
    assert only_cell(protocol={"reading": "last"}).id == only_cell().id


def test_a_raised_version_is_another_cell(monkeypatch):
    before = only_cell()
    monkeypatch.setattr("fglbench.config.expand.ENGINE_VERSION", 99)
    assert only_cell().id != before.id


def test_the_aggregation_of_an_fgl_model_is_part_of_its_identity(monkeypatch):
    def cell(**own):
        return only_cell(methods=[{"name": "fedsage", "aggregation": "fedprox", **own}], backbones=["sage"])

    one = cell()
    assert one.method.spec["settings"]["aggregation_settings"] == {"mu": 0.01}
    assert cell(aggregation_settings={"mu": 0.01}).id == one.id
    assert cell(aggregation_settings={"mu": 0.02}).id != one.id
    assert cell(aggregation="fedavg").id != one.id
    declared = registry.declaration("method", "fedprox")
    monkeypatch.setitem(declared.constants, "VERSION", declared.version + 1)
    assert cell().id != one.id


def test_partition_and_preprocessing_are_shared_by_methods():
    cells = expand(study(datasets=["cora"], partitions=["louvain"], clients=[5], seeds=[0])).cells
    federated = [cell for cell in cells if cell.partition.spec["scheme"] != "whole"]
    assert len({cell.folder("split") for cell in federated}) == 1
    assert len({cell.folder("preprocess") for cell in federated}) == 1
    assert len({cell.folder("train") for cell in federated}) == 3


def test_paths_are_readable_and_short():
    folder = only_cell().folder("train")
    stage, dataset, partition, method, seed = folder.split("/")
    assert (stage, dataset, seed) == ("train", "cora", "seed0")
    assert partition.startswith("louvain-k5-")
    assert method.startswith("fedprox-gcn-")
    assert len(slug("x" * 500, {})) <= 70
    assert "/" not in slug("../../etc", {})
    assert not slug("../../etc", {}).startswith(".")


def test_labels_tell_entries_apart():
    entries = study(methods=["fedavg", {"name": "fedprox", "mu": 0.1}, {"name": "fedprox", "mu": 1.0}]).methods
    assert labels(entries) == ["fedavg", "fedprox mu=0.1", "fedprox mu=1.0"]


@pytest.mark.parametrize(
    ("seeds", "text"), [([0, 1, 2], "0-2"), ([4], "4"), ([0, 2, 3, 7], "0+2-3+7"), ([3, 1], "1+3")]
)
def test_seed_ranges_are_reversible(seeds, text):
    assert seed_ranges(seeds) == text
    assert seeds_of(text) == sorted(seeds)
