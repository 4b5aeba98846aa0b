"""Expansion: every combination once, identities that depend on exactly what decides a number."""

import pytest

from fglbench import registry
from fglbench.config.entries import labels
from fglbench.config.expand import expand, other_protocols
from fglbench.config.identity import LONGEST_RANGES, seed_batches, seed_ranges, seeds_of, slug
from fglbench.config.schema import Entry, Study
from fglbench.errors import ConfigError

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
        {"protocol": {"setting": "inductive"}},
        {"protocol": {"mean": "macro"}},
        {"protocol": {"split": {"train": 0.3, "val": 0.3, "test": 0.4}}},
        {"seeds": [1]},
    ],
)
def test_whatever_decides_a_number_is_another_cell_at_another_path(changes):
    other = only_cell(**changes)
    assert other.id != only_cell().id
    assert other.folder("train") != only_cell().folder("train")


def test_nothing_is_propagated_ahead_for_a_method_that_changes_graphs():
    kept, rebuilt = only_cell(methods=["fedsage"]).preprocessed, only_cell(methods=["fedgl"]).preprocessed
    assert kept == only_cell().preprocessed
    assert rebuilt.spec == {**kept.spec, "propagate": False}
    assert rebuilt.slug != kept.slug


def test_the_transductive_setting_is_named_in_no_cell():
    """It was there before the other one, and its cells keep their identity."""
    assert only_cell(protocol={"setting": "transductive"}).id == only_cell().id
    assert "setting" not in only_cell().preprocessed.spec
    inductive = only_cell(protocol={"setting": "inductive"})
    assert inductive.preprocessed.spec == {**only_cell().preprocessed.spec, "setting": "inductive"}
    assert "-inductive-" in inductive.preprocessed.slug
    assert inductive.partition == only_cell().partition


def test_a_dataset_may_have_a_protocol_of_its_own():
    other = {"setting": "inductive", "split": {"kind": "public"}}
    entries = ["cora", {"name": "cora", "label": "Cora inductive", "protocol": other}]
    expansion = expand(study(datasets=entries, methods=["fedavg"], partitions=["louvain"], clients=[5], seeds=[0]))
    one, own = expansion.cells
    assert one.id == only_cell(methods=["fedavg"]).id
    assert own.id == only_cell(methods=["fedavg"], protocol=other).id
    assert own.partition.spec["split"] == {**one.partition.spec["split"], "kind": "public"}
    assert {label: p.setting for label, p in other_protocols(expansion.study).items()} == {
        "Cora inductive": "inductive"
    }


def test_roles_of_links_are_part_of_the_split_and_roles_of_nodes_are_not():
    links = {"name": "link_prediction"}
    plain, cell = only_cell(), only_cell(protocol={"task": links})
    assert "task" not in plain.partition.spec
    assert cell.partition.spec["task"]["name"] == "link-prediction"
    assert cell.partition.spec["split"] == {"empty": "keep"}
    other = only_cell(protocol={"task": {**links, "train": 0.8, "test": 0.15}})
    assert other.partition.slug != cell.partition.slug
    assert only_cell(protocol={"task": "feature_reconstruction"}).partition.slug == plain.partition.slug


def test_a_dataset_may_have_a_task_of_its_own():
    entries = ["cora", {"name": "cora", "label": "links", "protocol": {"task": "link_prediction"}}]
    nodes, links = expand(
        study(datasets=entries, methods=["fedavg"], partitions=["metis"], clients=[10], seeds=[0])
    ).cells
    assert "task" not in nodes.method.spec
    assert links.method.spec["task"]["name"] == "link-prediction"
    assert nodes.partition.slug != links.partition.slug
    assert nodes.dataset == links.dataset
    assert nodes.preprocessed == links.preprocessed


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


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([{"name": "feddc"}], ["feddc (openfgl)"]),
        ([{"name": "feddc", "variant": "paper"}], ["feddc (paper)"]),
        ([{"name": "feddc"}, {"name": "feddc", "alpha": 0.1}], ["feddc (openfgl)", "feddc alpha=0.1"]),
        ([{"name": "feddc", "label": "FedDC"}, {"name": "fedgta"}], ["FedDC", "fedgta"]),
    ],
)
def test_a_variant_that_is_not_the_papers_is_in_the_label(entries, expected):
    assert labels([Entry.model_validate(entry) for entry in entries]) == expected
    assert {p.method for p in expand(study(methods=entries)).placements} == {entry["name"] for entry in entries}


def test_labels_tell_entries_apart():
    entries = study(methods=["fedavg", {"name": "fedprox", "mu": 0.1}, {"name": "fedprox", "mu": 1.0}]).methods
    assert labels(entries) == ["fedavg", "fedprox mu=0.1", "fedprox mu=1.0"]


@pytest.mark.parametrize(
    ("seeds", "text"), [([0, 1, 2], "0-2"), ([4], "4"), ([0, 2, 3, 7], "0+2-3+7"), ([3, 1], "1+3")]
)
def test_seed_ranges_are_reversible(seeds, text):
    assert seed_ranges(seeds) == text
    assert seeds_of(text) == sorted(seeds)


def test_seeds_share_a_job_up_to_its_size_and_the_length_of_a_file_name():
    assert seed_batches([], 5) == []
    assert seed_batches([0, 1, 2, 3, 4], 2) == [[0, 1], [2, 3], [4]]
    scattered = [10**9 + 2 * place for place in range(50)]
    batches = seed_batches(scattered, 50)
    assert [seed for batch in batches for seed in batch] == scattered
    assert [len(batch) for batch in batches] == [18, 18, 14]  # 18 names of 10 digits and 17 signs between: 197
    assert max(len(seed_ranges(batch)) for batch in batches) <= LONGEST_RANGES


def training_of(study, **at):
    return {
        p.cell.folder("train"): p.cell.method.spec["training"]
        for p in expand(study).placements
        if all(getattr(p, key) == value for key, value in at.items())
    }


def test_entries_change_training_and_later_ones_win():
    changed = study(
        datasets=["cora", {"name": "photo", "training": {"local_epochs": 5, "lr": 0.5, "rounds": 7}}],
        methods=["local", {"name": "fedavg", "training": {"participation": 0.2, "rounds": 9}}],
        backbones=[{"name": "gcn", "training": {"lr": 0.3}}],
        overrides=[{"datasets": ["photo"], "training": {"lr": 0.1, "rounds": 8}}],
    )
    (photo,) = {tuple(t.items()) for t in training_of(changed, dataset="photo", label="fedavg").values()}
    (plain,) = {tuple(t.items()) for t in training_of(changed, dataset="cora", label="local").values()}
    names = ("local_epochs", "lr", "rounds", "participation")
    assert [dict(photo)[name] for name in names] == [5, 0.1, 9, 0.2]
    assert [dict(plain)[name] for name in names] == [3, 0.3, 100, 1.0]


def test_a_hidden_width_of_a_dataset_reaches_the_backbone():
    cell = only_cell(datasets=[{"name": "cora", "training": {"hidden": 256}}])
    assert cell.method.spec["backbone"]["settings"]["hidden"] == 256
    assert cell.id == only_cell(training={"hidden": 256}).id


def test_changes_that_change_nothing_keep_the_cell():
    same = [
        {"datasets": [{"name": "cora", "training": {"lr": 0.01}}]},
        {"methods": [{"name": "fedprox", "training": {"participation": 1.0}}]},
        {"overrides": [{"methods": ["fedprox"], "settings": {"mu": 0.01}}]},
        {"grids": [{"datasets": ["cora"]}]},
    ]
    assert {only_cell(**changes).id for changes in same} == {only_cell().id}


def test_an_override_may_be_for_some_numbers_of_clients():
    overrides = [{"methods": ["fedprox"], "clients": [5], "settings": {"mu": 0.5}, "training": {"rounds": 7}}]
    found = expand(study(methods=["fedavg", "fedprox"], clients=[5, 10], overrides=overrides)).placements
    kept = {
        (p.method, p.clients): (p.cell.method.spec["settings"].get("mu"), p.cell.method.spec["training"]["rounds"])
        for p in found
    }
    rounds = kept["fedavg", 5][1]
    assert kept["fedprox", 5] == (0.5, 7) and rounds != 7
    assert kept["fedprox", 10] == (0.01, rounds) and kept["fedavg", 10] == (None, rounds)


def test_overrides_fill_in_what_an_entry_leaves_open():
    methods = [{"name": "fedprox", "label": "open"}, {"name": "fedprox", "mu": 0.5, "label": "own"}]
    overrides = [{"methods": ["fedprox"], "datasets": ["citeseer"], "settings": {"mu": 0.1}}]
    found = {
        (p.dataset, p.label): p.cell.method.spec["settings"]["mu"]
        for p in expand(study(methods=methods, overrides=overrides)).placements
    }
    assert found == {
        ("cora", "open"): 0.01, ("cora", "own"): 0.5, ("citeseer", "open"): 0.1, ("citeseer", "own"): 0.5
    }  # fmt: skip


def test_an_override_by_a_label_is_for_that_entry_alone():
    methods = ["fedprox", {"name": "fedprox", "label": "half", "training": {"participation": 0.5}}]
    overrides = [{"methods": ["fedprox"], "settings": {"mu": 0.1}}, {"methods": ["half"], "settings": {"mu": 0.7}}]
    found = expand(study(methods=methods, overrides=overrides)).placements
    assert {(p.label, p.cell.method.spec["settings"]["mu"]) for p in found} == {("fedprox", 0.1), ("half", 0.7)}


def test_the_width_in_a_methods_training_stands_whatever_the_backbone_is_given():
    methods = ["fedavg", {"name": "fedavg", "label": "narrow", "training": {"hidden": 8}}]
    overrides = [{"backbones": ["gcn"], "backbone_settings": {"hidden": 32}}]
    for changes in ({"overrides": overrides}, {"backbones": [{"name": "gcn", "hidden": 32}]}):
        found = expand(study(methods=methods, **changes)).placements
        widths = {(p.label, p.cell.method.spec["backbone"]["settings"]["hidden"]) for p in found}
        assert widths == {("fedavg", 32), ("narrow", 8)}


def test_grids_are_a_union_without_repetition():
    grids = [
        {"datasets": ["cora"], "partitions": ["louvain"], "clients": [10], "seeds": 2},
        {"datasets": ["cora"], "partitions": ["louvain"], "clients": [10], "methods": ["fedavg"], "seeds": [1, 5]},
        {"datasets": ["citeseer"], "partitions": ["metis"], "clients": [5], "methods": ["local"], "seeds": [0]},
    ]
    expansion = expand(study(grids=grids))
    seeds = {}
    for p in expansion.placements:
        seeds.setdefault((p.dataset, p.scheme, p.clients, p.label), []).append(p.cell.seed)
    assert seeds == {
        **{("cora", "louvain", 10, label): [0, 1] for label in ("global", "local", "fedprox")},
        ("cora", "louvain", 10, "fedavg"): [0, 1, 5],
        ("citeseer", "metis", 5, "local"): [0],
    }
    assert {p.cell.id for p in expansion.placements} <= {p.cell.id for p in expand(study(seeds=6)).placements}


def test_a_label_means_its_entry_alone_and_a_name_all_of_its_entries():
    methods = ["fedavg", {"name": "fedavg", "label": "few", "training": {"participation": 0.2}}]
    methods += [{"name": "fedprox", "label": label, "mu": mu} for label, mu in (("weak", 0.1), ("strong", 1.0))]
    found = expand(study(methods=methods, grids=[{"methods": ["fedavg", "fedprox"]}])).placements
    assert {p.label for p in found} == {"fedavg", "weak", "strong"}


def test_grids_that_contradict_each_other_are_refused():
    grids = [{"methods": ["fedavg"]}, {"methods": ["fedavg"], "training": {"lr": 0.5}}]
    with pytest.raises(ConfigError, match=r"grids: two grids train .cora, louvain, 5, fedavg, gcn, 0. with different"):
        expand(study(grids=grids))


def test_datasets_and_schemes_may_have_other_names_in_a_reference_file():
    changes = {
        "datasets": [{"name": "cora-fedgta", "label": "Cora", "printed": {"dataset": "cora"}}, "citeseer"],
        "partitions": [{"name": "native", "printed": {"partition": "louvain"}}],
    }
    names = expand(study(**changes)).names
    assert names["dataset"] == {"Cora": "cora", "citeseer": "citeseer"}
    assert names["scheme"] == {"native": "louvain"}
    plain = study(datasets=["cora-fedgta"], partitions=["native"])
    assert expand(study(**changes)).cells[0] == expand(plain).cells[0]
