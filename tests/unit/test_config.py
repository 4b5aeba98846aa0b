"""Configurations: what is accepted, and that everything wrong is said at once, with the way out."""

from pathlib import Path

import pytest
import yaml

from fglbench.config.expand import expand
from fglbench.config.files import read_yaml
from fglbench.config.load import load_config, load_study, repeated_keys, typed
from fglbench.config.merge import tasks_shown
from fglbench.errors import ConfigError

ROOT = Path(__file__).parents[2]

GIVEN = """
datasets: [cora, citeseer]
partitions: [louvain, metis]
clients: [5, 10]
methods: [global, local, fedavg, fedprox]
backbones: [gcn]
seeds: 3
training: {rounds: 100, local_epochs: 3, hidden: 64, lr: 0.01, weight_decay: 0.0005, dropout: 0.5}
"""


def problems(**changes) -> list[str]:
    values = {**yaml.safe_load(GIVEN), **changes}
    with pytest.raises(ConfigError) as caught:
        load_config(values, "my.yaml", ROOT / "workflow" / "studies")
    return caught.value.problems


def test_the_documented_configuration_is_valid(tmp_path):
    config = load_config({**yaml.safe_load(GIVEN), "data": {"mirror": str(tmp_path)}})
    assert [entry.name for entry in config.methods] == ["global", "local", "fedavg", "fedprox"]
    assert config.training.optimiser == "adam"


def test_the_shipped_configuration_is_valid_and_needs_no_network():
    from fglbench.datasets import catalogue

    config = load_config(read_yaml(ROOT / "config.yaml"), studies=ROOT / "workflow" / "studies")
    assert not any(catalogue.get(entry.name).needs_files for entry in config.datasets)


@pytest.mark.parametrize("path", sorted((ROOT / "workflow" / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_studies_are_valid(path):
    load_study(path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"method": ["local"]}, "my.yaml: method: unknown key. Did you mean 'methods'?"),
        ({"training": {"learning_rte": 1}}, "my.yaml: training.learning_rte: unknown key."),
        ({"training": {"epochs": 3}}, "my.yaml: training.epochs: unknown key. Did you mean 'local_epochs'?"),
        ({"device": "gpu"}, "my.yaml: device: 'gpu' is not valid. Did you mean 'cuda'?"),
        ({"datasets": ["corra"]}, "my.yaml: datasets[0]: 'corra' is not a dataset. Did you mean 'cora'?"),
        ({"methods": ["local", "fedproxx"]}, "my.yaml: methods[1]: 'fedproxx' is not a method. Did you mean 'fedprox'"),
        (
            {"methods": [{"name": "fedsage", "aggregation": "fedgtaa"}]},
            "my.yaml: methods[0].aggregation: 'fedgtaa' is not a method that aggregates for another one. "
            "Did you mean 'fedgta'?",
        ),
        (
            {"methods": [{"name": "fedgl", "aggregation": "fedsage"}]},
            "my.yaml: methods[0].aggregation: 'fedsage' is not a",
        ),
        (
            {"methods": [{"name": "fedgl", "aggregation": "fedprox", "aggregation_settings": {"nu": 1.0}}]},
            "my.yaml: methods[0].aggregation_settings.nu: unknown key. Valid: mu, mu_step, weights.",
        ),
        ({"partitions": ["louvan"]}, "my.yaml: partitions[0]: 'louvan' is not a scheme. Did you mean 'louvain'?"),
        ({"backbones": ["gnc"]}, "my.yaml: backbones[0]: 'gnc' is not a backbone. Did you mean 'gcn'?"),
        (
            {"partitions": ["whole"]},
            "my.yaml: partitions[0]: 'whole' is reserved; centralised methods use it automatically",
        ),
        ({"clients": [0]}, "my.yaml: clients[0]: 0: a federation has at least 1 client."),
        ({"clients": [3000]}, "my.yaml: clients[0]: 3000 clients cannot share the 2708 nodes of 'cora'."),
        (
            {"partitions": ["native"]},
            "my.yaml: partitions: 'native' needs a dataset with a partition, and 'cora' has none. Datasets with "
            "one: citeseer-fedgta, cora-fedgta.",
        ),
        (
            {"datasets": ["cora-fedgta"], "partitions": ["native"], "clients": [10, 5]},
            "my.yaml: clients[1]: 5: the partition of 'cora-fedgta' has 10 clients; with the scheme 'native', give "
            "that number.",
        ),
        ({"clients": []}, "my.yaml: clients: the list is empty"),
        ({"methods": []}, "my.yaml: methods: the list is empty"),
        ({"clients": [5, 5]}, "my.yaml: clients: 5 is listed 2 times."),
        ({"methods": ["local", "local"]}, "my.yaml: methods: 'local' is listed 2 times."),
        (
            {"methods": [{"name": "fedprox", "mu": 0.1, "label": "x"}, {"name": "fedprox", "label": "x"}]},
            "my.yaml: methods: label 'x' is listed 2 times.",
        ),
        (
            {"methods": [{"name": "fedprox", "nu": 1}]},
            "my.yaml: methods[0].nu: unknown key. Valid: mu, mu_step, weights.",
        ),
        ({"methods": [{"name": "fedprox", "mu": -1}]}, "my.yaml: methods[0].mu: -1: input should be greater"),
        ({"methods": [{"name": "fedprox", "mu": "1e-3"}]}, "my.yaml: methods[0].mu: YAML reads '1e-3' as text"),
        (
            {"training": yaml.safe_load("lr: 1e-3")},
            "my.yaml: training.lr: YAML reads '1e-3' as text, not as a number. Write 0.001 without quotes.",
        ),
        (
            {"training": {"optimiser": "adamm"}},
            "my.yaml: training.optimiser: 'adamm' is not valid. Did you mean 'adam'",
        ),
        ({"protocol": {"split": {"train": 0.5, "val": 0.4, "test": 0.4}}}, "my.yaml: protocol.split"),
        ({"seeds": 0}, "my.yaml: seeds: 0 seeds cannot be run"),
        ({"seeds": [1, 1]}, "my.yaml: seeds: 1 is listed 2 times."),
        ({"seeds": [-1]}, "my.yaml: seeds[0]: -1 is negative; give 0 or more."),
        ({"studies": ["fedgtaa"]}, "my.yaml: studies[0]: 'fedgtaa' is not a study."),
        ({"data": {"mirror": "/nowhere/at/all"}}, "my.yaml: data.mirror: '/nowhere/at/all' is not a readable folder"),
        ({"components": ["/nowhere"]}, "my.yaml: components: '/nowhere' is not a folder."),
        (
            {"tables": [{"name": "t", "title": "T", "columns": ["dataset"]}]},
            "my.yaml: tables[0]: 'scheme' has 2 values in this study",
        ),
        (
            {"tables": [{"name": "t", "title": "T", "where": {"scheme": ["louvan"]}}]},
            "my.yaml: tables[0].where.scheme: 'louvan' is not in this study. Did you mean 'louvain'?",
        ),
        (
            {"tables": [{"name": "t", "title": "T", "metric": "acuracy"}]},
            "my.yaml: tables[0].metric: 'acuracy' is not a metric. Did you mean 'accuracy'?",
        ),
        ({"tables": [{"name": "../t", "title": "T"}]}, "my.yaml: tables[0].name"),
        (
            {"tables": [{"name": "t", "title": "T", "rows": ["labell"]}]},
            "my.yaml: tables[0].rows[0]: 'labell' is not valid. Did you mean 'label'?",
        ),
        (
            {"figures": [{"name": "f", "title": "F", "kind": "label_heatmapp"}]},
            "my.yaml: figures[0].kind: 'label_heatmapp' is not valid. Did you mean 'label_heatmap'?",
        ),
        (
            {"datasets": [{"name": "cora", "training": {"epochs": 5}}]},
            "my.yaml: datasets[0].training.epochs: unknown key. Did you mean 'local_epochs'?",
        ),
        (
            {"methods": [{"name": "fedavg", "training": {"participation": 1.5}}]},
            "my.yaml: methods[0].training.participation: 1.5: input should be less",
        ),
        (
            {"partitions": [{"name": "louvain", "training": {"lr": 0.1}}]},
            "my.yaml: partitions[0].training: a partition scheme has no training",
        ),
        (
            {"methods": [{"name": "fedavg", "protocol": {"setting": "inductive"}}]},
            "my.yaml: methods[0].protocol: only an entry of datasets can change the protocol.",
        ),
        (
            {"datasets": [{"name": "cora", "protocol": {"seting": "inductive"}}]},
            "my.yaml: datasets[0].protocol.seting: unknown key. Did you mean 'setting'?",
        ),
        (
            {"datasets": [{"name": "cora", "protocol": {"mean": "macro"}}]},
            "my.yaml: datasets[0].protocol.mean: this key is the same for all datasets; valid here: split, ",
        ),
        (
            {"datasets": [{"name": "cora", "protocol": {"split": {"train": 0.9}}}]},
            "my.yaml: datasets[0].protocol.split",
        ),
        (
            {"datasets": [{"name": "photo", "protocol": {"split": {"kind": "public"}}}]},
            "my.yaml: datasets[0].protocol.split.kind: 'photo' has no public split; use ratios.",
        ),
        (
            {
                "tables": [
                    {"name": "t", "title": "T", "reference": {"table": "3"}},
                    {"name": "t-compared", "title": "T"},
                ]
            },
            "my.yaml: tables: name 't-compared' is listed 2 times.",
        ),
        (
            {"backbones": [{"name": "gcn", "printed": {"backbone": "gcn2"}}]},
            "my.yaml: backbones[0].printed.backbone: entries of backbones have no name in the column 'backbone'",
        ),
        (
            {"datasets": [{"name": "cora", "printed": {"method": "x"}}]},
            "my.yaml: datasets[0].printed.method: entries of datasets have no name in the column 'method'",
        ),
        ({"tables": [{"name": "t", "title": "T", "separable": 5}]}, "my.yaml: tables[0].separable"),
        (
            {"methods": [{"name": "fedavg", "printed": {"varient": "x"}}]},
            "my.yaml: methods[0].printed.varient",
        ),
        (
            {"methods": [{"name": "fedavg", "training": {"lr": 0.1}}, {"name": "fedavg", "training": {"lr": 0.1}}]},
            "my.yaml: methods: 'fedavg' is listed 2 times.",
        ),
        ({"grids": [{"methods": ["fedavgg"]}]}, "my.yaml: grids[0].methods: 'fedavgg' is not in this study. Did you"),
        ({"grids": [{"clients": [7]}]}, "my.yaml: grids[0].clients: 7 is not among the study's clients: 5, 10."),
        ({"grids": [{"seeds": []}]}, "my.yaml: grids[0].seeds: the list is empty"),
        ({"grids": [{"dataset": ["cora"]}]}, "my.yaml: grids[0].dataset: unknown key. Did you mean 'datasets'?"),
        ({"overrides": [{"datasets": ["cora"]}]}, "my.yaml: overrides[0]: changes nothing"),
        ({"overrides": [{"settings": {"mu": 1.0}}]}, "my.yaml: overrides[0].settings: name the methods"),
        (
            {"overrides": [{"methods": ["fedprox"], "settings": {"nu": 1.0}}]},
            "my.yaml: overrides[0].settings.nu: unknown key. Valid: mu, mu_step, weights.",
        ),
        (
            {"overrides": [{"methods": ["fedavg"], "settings": {"training": {"lr": 0.5}}}]},
            "my.yaml: overrides[0].settings: 'training' is not a setting of a method.",
        ),
        (
            {"methods": ["fedgl"], "overrides": [{"methods": ["fedgl"], "settings": {"aggregation": "nope"}}]},
            "my.yaml: overrides[0].settings.aggregation: 'nope' is not a method that aggregates",
        ),
        (
            {
                "methods": [{"name": "fedgl", "aggregation": "fedprox"}],
                "overrides": [{"methods": ["fedgl"], "settings": {"aggregation_settings": {"mmu": 1.0}}}],
            },
            "my.yaml: overrides[0].settings.aggregation_settings.mmu: unknown key. Did you mean 'mu'?",
        ),
        (
            {"methods": [{"name": "fedgl", "aggregation_settings": {"training": {"lr": 1.0}}}]},
            "my.yaml: methods[0].aggregation: 'training' is not a setting of a method.",
        ),
        (
            {"tables": [{"name": "t", "title": "T", "where": {"clients": ["5"]}}]},
            "my.yaml: tables[0].where.clients: '5' is text; write 5 without quotes.",
        ),
        (
            {"datasets": ["karate"], "clients": [30], "protocol": {"split": {"held_out": 0.5}}},
            "my.yaml: clients[0]: 30 clients cannot share the 17 nodes of 'karate' that are not held out.",
        ),
        ({"seeds": [2**70]}, "my.yaml: seeds[0]: 1180591620717411303424 is too large"),
        (
            {
                "reference": "fedgta",
                "tables": [{"name": "t", "title": "T", "reference": {"table": "3", "where": {"metod": "x"}}}],
            },
            "my.yaml: tables[0].reference.where: 'metod' is not a column of fedgta.csv. Did you mean 'method'?",
        ),
        (
            {"overrides": [{"backbones": ["sgc"], "training": {"lr": 0.1}}]},
            "my.yaml: overrides[0].backbones: 'sgc' is not in this study.",
        ),
        ({"tuned": "nothing"}, "my.yaml: tuned: 'nothing' is not a file of settings in"),
        ({"results": "../elsewhere"}, "my.yaml: results"),
        (
            {"protocol": {"task": "link_prediction", "split": {"train": 0.2, "val": 0.4, "test": 0.4}}},
            "my.yaml: protocol.split.train: link-prediction draws its own roles, see its settings; leave out this key.",
        ),
        (
            {"datasets": [{"name": "cora", "protocol": {"task": "link_prediction", "split": {"stratify": False}}}]},
            "my.yaml: datasets[0].protocol.split.stratify: link-prediction draws its own roles",
        ),
        (
            {"datasets": [{"name": "cora", "protocol": {"task": "link_predicton"}}]},
            "my.yaml: datasets[0].protocol.task: 'link-predicton' is not a task. Did you mean 'link-prediction'?",
        ),
        (
            {"protocol": {"task": "link_prediction", "setting": "inductive"}},
            "my.yaml: protocol.setting: link-prediction supports only the transductive setting; leave out this key.",
        ),
        (
            {"protocol": {"task": "link_prediction", "global_test": "whole"}},
            "my.yaml: protocol.global_test: link-prediction does not use this key; leave it out.",
        ),
        (
            {"protocol": {"task": "link_prediction"}, "training": {"batch_size": 8}},
            "my.yaml: training.batch_size: link-prediction trains on all nodes of a client at once; leave out",
        ),
        (
            {
                "protocol": {"task": "link_prediction"},
                "methods": [{"name": "fedavg", "training": {"batch_size": 8}}],
            },
            "my.yaml: methods[0].training.batch_size: link-prediction trains on all nodes of a client at once",
        ),
        (
            {
                "reference": "fedgta",
                "tables": [{"name": "t", "title": "T", "reference": {"table": "3"}, "where": {"dataset": ["coar"]}}],
            },
            "my.yaml: tables[0].where.dataset: 'coar' is not in this study. Did you mean 'cora'?",
        ),
        (
            {"protocol": {"task": {"name": "link_prediction", "train": 0.9}}},
            "my.yaml: protocol.task",
        ),
        (
            {
                "datasets": ["cora", {"name": "cora", "label": "links", "protocol": {"task": "link_prediction"}}],
                "tables": [{"name": "t", "title": "T"}],
            },
            "my.yaml: tables[0].metric: the datasets have several tasks (node-classification, link-prediction), each",
        ),
        (
            {
                "datasets": ["cora", {"name": "cora", "label": "links", "protocol": {"task": "link_prediction"}}],
                "figures": [{"name": "f", "title": "F", "kind": "accuracy_per_round"}],
            },
            "my.yaml: figures[0].where: the datasets have several tasks",
        ),
        ({"results": "/absolute"}, "my.yaml: results"),
    ],
)
def test_a_problem_is_named_with_the_way_out(changes, expected):
    assert any(problem.startswith(expected) for problem in problems(**changes)), problems(**changes)


def write_tuned(folder: Path, *overrides: dict) -> Path:
    (folder / "tuned").mkdir()
    (folder / "tuned" / "found.yaml").write_text(yaml.safe_dump({"overrides": list(overrides), "searches": []}))
    (folder / "mine.yaml").write_text(GIVEN + "tuned: found\n")
    return folder / "mine.yaml"


def test_settings_found_by_a_search_come_after_the_studys_own(tmp_path):
    study = load_study(write_tuned(tmp_path, {"methods": ["fedprox"], "datasets": ["cora"], "settings": {"mu": 0.1}}))
    assert [(change.methods, change.settings) for change in study.overrides] == [(["fedprox"], {"mu": 0.1})]


def test_problems_in_a_file_of_found_settings_name_that_file(tmp_path):
    path = write_tuned(tmp_path, {"methods": ["fedprx"], "settings": {"mu": 0.1}}, {"training": {"lrr": 1}})
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    found = str(tmp_path / "tuned" / "found.yaml")
    first, second = caught.value.problems
    assert first.startswith(f"{found}: overrides[0].methods: 'fedprx' is not in this study. Did you mean 'fedprox'?")
    assert second.startswith(f"{found}: overrides[1].training.lrr: unknown key.")


def test_only_the_clients_that_share_a_grid_with_a_dataset_must_fit_it():
    wanted = {"clients": [5, 3000], "datasets": ["cora", "pubmed"]}
    grids = [{"clients": [5]}, {"clients": [3000], "datasets": ["pubmed"]}]
    assert "clients[1]" in problems(**wanted)[0]
    load_config({**yaml.safe_load(GIVEN), **wanted, "grids": grids})


def test_a_table_by_method_needs_no_labels_where_each_method_has_one():
    shape = {"name": "t", "title": "T", "columns": ["dataset", "scheme", "clients"]}
    by_method = {**shape, "rows": ["method"]}
    one = {**shape, "rows": ["backbone"], "where": {"method": ["fedavg"]}}
    load_config({**yaml.safe_load(GIVEN), "tables": [by_method, {**one, "name": "one"}]})
    methods = ["local", "fedavg", {"name": "fedavg", "label": "half", "training": {"participation": 0.5}}]
    for table in (by_method, one):
        (found,) = problems(methods=methods, tables=[table])
        assert found.startswith("my.yaml: tables[0]: 'label' has 2 values in this study")


def test_entries_that_overrides_tell_apart_may_be_alike():
    methods = [{"name": "fedavg", "label": label} for label in ("slow", "fast")]
    overrides = [{"methods": ["fast"], "training": {"lr": 0.5}}]
    config = load_config({**yaml.safe_load(GIVEN), "methods": methods, "overrides": overrides})
    found = {(p.label, p.cell.method.spec["training"]["lr"]) for p in expand(config).placements}
    assert found == {("slow", 0.01), ("fast", 0.5)}


def test_an_override_may_set_what_the_entrys_aggregation_takes():
    methods = [{"name": "fedgl", "aggregation": "fedprox"}]
    overrides = [{"methods": ["fedgl"], "settings": {"aggregation_settings": {"mu": 0.5}}}]
    config = load_config({**yaml.safe_load(GIVEN), "methods": methods, "overrides": overrides})
    (cell,) = {p.cell.method.slug: p.cell for p in expand(config).placements}.values()
    assert cell.method.spec["settings"]["aggregation_settings"] == {"mu": 0.5}


def test_a_missing_key_says_what_it_is():
    values = yaml.safe_load(GIVEN)
    del values["datasets"]
    with pytest.raises(ConfigError, match=r"config.yaml: datasets: is missing; Datasets\."):
        load_config(values)


def test_a_value_of_a_wrong_type_hides_no_other_problem():
    found = problems(
        datasets=["corra"],
        clients=[0, 5, 5, "7"],
        training={"lr": "1e-3", "foo": 1},
        methods=[],
        data={"mirror": "/nowhere"},
        studies=["x", "x"],
        components=["/no"],
    )
    for start in ("datasets[0]", "clients[0]", "clients: 5", "clients[3]", "training.lr", "training.foo", "methods"):
        assert any(problem.startswith(f"my.yaml: {start}") for problem in found), (start, found)
    for start in ("data.mirror", "studies[0]", "studies: 'x'", "components"):
        assert any(problem.startswith(f"my.yaml: {start}") for problem in found), (start, found)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"training": {"lr": float("inf")}}, "my.yaml: training.lr: inf"),
        ({"methods": [{"name": "fedprox", "mu": float("nan")}]}, "my.yaml: methods[0].mu: nan"),
        ({"components": 5}, "my.yaml: components.folders: 5 is not a list"),
        ({"datasets": "cora"}, "my.yaml: datasets: 'cora' is not a list; write [cora]."),
        (
            {"training": {"rounds": "10"}},
            "my.yaml: training.rounds: YAML reads '10' as text, not as a number. Write 10 ",
        ),
        (
            {"protocol": {"split": {"kind": "public"}}, "datasets": ["photo"]},
            "my.yaml: protocol.split.kind: 'photo' has no",
        ),
        (
            {"protocol": {"features": "row"}, "datasets": ["digits"]},
            "my.yaml: protocol.features: 'digits' has negative",
        ),
        ({"seeds": "3"}, "my.yaml: seeds: YAML reads '3' as text, not as a number. Write 3 without quotes."),
        ({"methods": ["fedprox", {"name": "fedprox", "mu": 0.01}]}, "my.yaml: methods: 'fedprox' is listed 2 times."),
        (
            {"tables": [{"name": "t", "title": "T", "rows": ["label", "label"]}]},
            "my.yaml: tables[0]: axis 'label' is listed 2 times.",
        ),
        ({"protocol": {"split": {"train": 0.5, "val": 0.5, "test": 0.0}}}, "my.yaml: protocol.split.test: 0.0"),
        ({"protocol": {"global_test": "held_out"}}, "my.yaml: protocol.global_test: 'held_out' needs a fraction"),
        (
            {"tables": [{"name": "t", "title": "T", "split": "global_test"}]},
            "my.yaml: tables[0].split: 'global_test' needs protocol.global_test",
        ),
        (
            {"tables": [{"name": "t", "title": "T", "metric": "auc"}]},
            "my.yaml: tables[0].metric: 'auc' needs protocol.logits: true",
        ),
        (
            {"tables": [{"name": "t", "title": "T", "mean": "weighted"}]},
            "my.yaml: tables[0].mean: 'weighted' needs protocol.mean: 'weighted'",
        ),
        (
            {"overrides": [{"methods": ["fedprox"], "clients": [5, 8], "settings": {"mu": 1.0}}]},
            "my.yaml: overrides[0].clients: 8 is not among the study's clients: ",
        ),
        (
            {"figures": [{"name": "f", "kind": "accuracy_by_method", "title": "F", "split": "global_test"}]},
            "my.yaml: figures[0].split: 'global_test' needs protocol.global_test",
        ),
        (
            {"figures": [{"name": "f", "kind": "accuracy_by_method", "title": "F", "metric": "acuracy"}]},
            "my.yaml: figures[0].metric: 'acuracy' is not a metric. Did you mean 'accuracy'?",
        ),
        (
            {"figures": [{"name": "f", "kind": "accuracy_per_round", "title": "F", "metric": "accuracy"}]},
            "my.yaml: figures[0]: a figure of this kind shows the score that selects rounds",
        ),
        (
            {"figures": [{"name": "f", "kind": "accuracy_by_clients", "title": "F", "gains": {"fedavg": "fedprx"}}]},
            "my.yaml: figures[0].gains: 'fedprx' is not a label of the study. Did you mean 'fedprox'?",
        ),
        (
            {"figures": [{"name": "f", "kind": "label_heatmap", "title": "F", "gains": {"fedavg": "fedprox"}}]},
            "my.yaml: figures[0].gains: only figures of kind 'accuracy_by_clients'",
        ),
        (
            {"figures": [{"name": "f", "kind": "accuracy_by_method", "title": "F", "metric": "auc"}]},
            "my.yaml: figures[0].metric: 'auc' needs protocol.logits: true",
        ),
        (
            {
                "figures": [
                    {
                        "name": "f",
                        "kind": "accuracy_by_clients",
                        "title": "F",
                        "where": {"label": ["fedavg"]},
                        "gains": {"fedavg": "fedprox"},
                    }
                ]
            },
            "my.yaml: figures[0].gains: 'fedprox' is not among the labels under 'where'",
        ),
    ],
)
def test_odd_values_are_reported_too(changes, expected):
    assert any(problem.startswith(expected) for problem in problems(**changes)), problems(**changes)


def test_all_problems_come_in_one_report():
    found = problems(datasets=["corra"], clients=[0], methods=["fedproxx", "local", "local"])
    assert len(found) == 4


def test_values_of_the_command_line_get_the_types_of_yaml():
    merged = {"clients": ["5", "10"], "training": {"lr": "0.1", "rounds": 3}, "device": "cpu", "title": "5"}
    given = {"clients": ["5", "10"], "training": {"lr": "0.1"}, "device": "cpu"}
    assert typed(merged, given) == {
        "clients": [5, 10],
        "training": {"lr": 0.1, "rounds": 3},
        "device": "cpu",
        "title": "5",
    }


@pytest.mark.parametrize("content", [b"a: [", b"- a", b"3", "title: é".encode("latin-1"), b"title: 2024-13-45"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, content):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        read_yaml(path)


def test_a_filter_of_a_figure_with_a_value_that_is_not_in_the_study(tmp_path):
    figure = {"name": "curves", "kind": "accuracy_per_round", "title": "Curves"}
    mirror = {"mirror": str(tmp_path)}
    assert problems(figures=[{**figure, "where": {"dataset": ["coraa"]}}], data=mirror) == [
        "my.yaml: figures[0].where.dataset: 'coraa' is not in this study. Did you mean 'cora'? Valid: citeseer, cora."
    ]
    (found,) = problems(figures=[{**figure, "where": {"method": ["fedproxy"]}}], data=mirror)
    assert "Did you mean 'fedprox'?" in found


def test_a_misspelt_value_of_a_filter_is_named_beside_a_good_one(tmp_path):
    table = {"name": "t", "title": "T", "where": {"label": ["fedavg", "fedprx", "lokal"], "clients": [5, 6]}}
    found = problems(tables=[table], data={"mirror": str(tmp_path)})
    assert [problem.partition(" Valid")[0] for problem in found] == [
        "my.yaml: tables[0].where.label: 'fedprx' is not in this study. Did you mean 'fedprox'?",
        "my.yaml: tables[0].where.label: 'lokal' is not in this study. Did you mean 'local'?",
        "my.yaml: tables[0].where.clients: '6' is not in this study.",
    ]


def test_a_key_that_is_given_twice_is_a_problem_beside_the_others(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text(
        "seeds: 3\ndatasets: [karate]\ntraining: {rounds: 3, lr: 0.1, rounds: 4}\nseeds: 5\n"
        "methods:\n  - {name: fedprox, mu: 1.0, mu: 2.0}\n"
    )
    assert repeated_keys(path) == [
        f"{path}: line 3: 'rounds' is given a second time; keep one of the two.",
        f"{path}: line 4: 'seeds' is given a second time; keep one of the two.",
        f"{path}: line 6: 'mu' is given a second time; keep one of the two.",
    ]
    with pytest.raises(ConfigError) as caught:
        load_config(read_yaml(path), "my.yaml", files=[path])
    assert len([problem for problem in caught.value.problems if "a second time" in problem]) == 3
    assert any(problem.startswith("my.yaml: clients: is missing") for problem in caught.value.problems)
    path.write_text("a: &shared {b: 1}\nc: {<<: *shared, d: 1}\ne: [{b: 1}, {b: 1}]\n")
    assert repeated_keys(path) == []


def test_links_beside_nodes_with_a_public_split_and_with_batches_are_valid():
    links = {"name": "polblogs", "protocol": {"task": "link_prediction"}, "training": {"batch_size": None}}
    changes = {"datasets": ["cora", links], "protocol": {"split": {"kind": "public"}}, "training": {"batch_size": 32}}
    config = load_config({**yaml.safe_load(GIVEN), **changes})
    assert len(config.tables) == 2


def test_a_label_means_its_entry_alone_also_where_another_entry_has_that_name():
    links = {"name": "cora", "protocol": {"task": "link_prediction"}}
    config = load_config({**yaml.safe_load(GIVEN), "datasets": [{**links, "label": "links"}, "cora"]})
    assert tasks_shown(config, ["cora"]) == ["node-classification"]
    assert tasks_shown(config, ["links"]) == ["link-prediction"]
