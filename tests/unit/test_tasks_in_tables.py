"""What records and tables make of a task's own score, and of the privacy budget, without naming either."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fglbench.config.expand import expand
from fglbench.config.load import load_config
from fglbench.errors import ConfigError
from fglbench.records.study import read_study
from fglbench.stages.collect import collect
from fglbench.stages.figures import make_figures
from fglbench.stages.tables import make_tables
from fglbench.storage import read_json
from fglbench.tracking.runs import tracked_runs
from fglbench.workflow.single import run_cell


def values(**changes: Any) -> dict[str, Any]:
    return {
        "datasets": [{"name": "sbm", "nodes": 120, "classes": 3, "average_degree": 6.0, "features": 12}],
        "partitions": ["random"],
        "clients": [3],
        "methods": ["fedavg"],
        "backbones": [{"name": "mlp", "hidden": 8}],
        "seeds": [0],
        "training": {"rounds": 4, "local_epochs": 2},
        "device": "cpu",
        **changes,
    }


def records(tmp_path: Path, **changes: Any) -> Path:
    """The collected records of one trained cell."""
    done = run_cell(values(**changes), tmp_path / "results")
    assert done["outcome"] == "ok", done["reason"]
    collect(expand(load_config(values(**changes))), "mine", tmp_path / "results", tmp_path / "records")
    return tmp_path / "records"


def test_tables_figures_and_curves_of_another_task_show_its_score(tmp_path: Path) -> None:
    tables = [{"name": "fit", "title": "Fit.", "digits": 3}]
    figures = [{"name": "curve", "kind": "accuracy_per_round", "title": "Fit per round"}]
    found = records(tmp_path, protocol={"task": "feature_reconstruction"}, tables=tables, figures=figures)
    runs = pd.read_parquet(found / "runs.parquet")
    row = runs[(runs["metric"] == "r2") & (runs["split"] == "test") & (runs["reading"] == "val")]
    (pooled,) = row.loc[row["mean"] == "pooled", "value"]
    make_tables(found, tmp_path / "tables", tmp_path)
    table = (tmp_path / "tables" / "fit.csv").read_text(encoding="utf-8")
    assert f"{pooled:.3f}" in table
    assert "accuracy" not in set(runs["metric"])
    curves = pd.read_parquet(found / "curves.parquet")
    assert curves["val_score"].notna().all()
    assert read_json(found / "study.json")["metric"] == "r2"
    make_figures(found, tmp_path / "figures")
    assert (tmp_path / "figures" / "curve.png").stat().st_size > 0


def test_the_privacy_budget_of_an_upload_is_a_column(tmp_path: Path) -> None:
    training = {"rounds": 4, "local_epochs": 2, "ldp": {"clip": 0.002, "noise": 0.0001}}
    tables = [{"name": "budget", "title": "Budget.", "metric": "privacy_budget"}]
    found = records(tmp_path, training=training, tables=tables)
    runs = pd.read_parquet(found / "runs.parquet").set_index("metric")
    assert runs.loc["privacy_budget", "value"] == pytest.approx(40)
    make_tables(found, tmp_path / "tables", tmp_path)
    assert "mlp,fedavg,40," in (tmp_path / "tables" / "budget.csv").read_text(encoding="utf-8")


def test_a_method_that_sends_nothing_has_no_privacy_budget(tmp_path: Path) -> None:
    training = {"rounds": 2, "local_epochs": 1, "ldp": {"clip": 0.002, "noise": 0.0001}}
    runs = pd.read_parquet(records(tmp_path, training=training, methods=["local"]) / "runs.parquet")
    assert runs.loc[runs["metric"] == "privacy_budget", "value"].isna().all()


def test_one_study_has_tables_and_figures_of_nodes_and_of_links(tmp_path: Path) -> None:
    sbm = values()["datasets"][0]
    links = {**sbm, "label": "links", "protocol": {"task": "link_prediction"}}
    shown: dict[str, Any] = {
        "datasets": [{**sbm, "label": "nodes"}, links],
        "methods": ["fedavg", "fedgta"],
        "tables": [
            {"name": "of-nodes", "title": "Nodes.", "where": {"dataset": ["nodes"]}},
            {"name": "of-links", "title": "Links.", "where": {"dataset": ["links"]}},
            {"name": "precision", "title": "Links.", "metric": "ap", "where": {"dataset": ["links"]}},
        ],
        "figures": [
            {"name": "f", "kind": "accuracy_per_round", "title": "AUC", "where": {"dataset": ["links"]}},
        ],
    }
    results = tmp_path / "results"
    for dataset in shown["datasets"]:
        for method in shown["methods"]:
            run_cell(values(datasets=[dataset], methods=[method]), results)
    collect(expand(load_config(values(**shown))), "mine", results, tmp_path / "records")
    record = read_json(tmp_path / "records" / "study.json")
    assert [table["metric"] for table in record["tables"]] == ["accuracy", "auc", "ap"]
    assert record["figures"][0]["metric"] == "auc"
    make_tables(tmp_path / "records", tmp_path / "tables", tmp_path)
    runs = pd.read_parquet(tmp_path / "records" / "runs.parquet")
    at = (runs["split"] == "test") & (runs["reading"] == "val") & (runs["mean"] == "pooled")
    for name, metric, dataset in (("of-nodes", "accuracy", "nodes"), ("precision", "ap", "links")):
        found = runs[at & (runs["metric"] == metric) & (runs["dataset"] == dataset) & (runs["label"] == "fedavg")]
        text = (tmp_path / "tables" / f"{name}.csv").read_text(encoding="utf-8")
        assert f"{100 * found['value'].item():.8f}"[:8] in text
    of_gta = runs[(runs["label"] == "fedgta") & (runs["dataset"] == "links")]
    assert set(of_gta["outcome"]) == {"not_applicable"}
    assert all(
        "reads predictions as classes, which the task link-prediction does not have" in why for why in of_gta["reason"]
    )
    make_figures(tmp_path / "records", tmp_path / "figures")
    assert (tmp_path / "figures" / "f.png").stat().st_size > 0


def test_identity_features_are_refused_where_their_parameters_would_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fglbench.stages.attempt.memory_mb", lambda device: 64)
    features = {"protocol": {"features": "identity"}, "backbones": [{"name": "mlp", "hidden": 512}]}
    sbm = {"datasets": [{"name": "sbm", "nodes": 20_000, "classes": 3, "average_degree": 2.0, "features": 4}]}
    done = run_cell(values(**features, **sbm), tmp_path)
    assert done["outcome"] == "oom"
    assert "20000 inputs, and parameters for them take 586 MiB of 64 MiB" in str(done["reason"])


ACCURACY = [{"name": "a", "title": "A", "metric": "accuracy"}]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocol": {"task": "node_clasification"}}, "protocol.task: 'node-clasification' is not a task. Did you"),
        ({"protocol": {"task": {"name": "node_classification", "label": "x"}}}, "protocol.task.label: a task has"),
        ({"protocol": {"task": "feature_reconstruction"}, "tables": ACCURACY}, "metric: 'accuracy' is not a metric."),
        ({"training": {"ldp": {"clip": 0.1}}}, "training.ldp.noise"),
    ],
    ids=["name", "label", "metric", "noise"],
)
def test_what_does_not_fit_is_told_before_anything_runs(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(values(**changes))
    assert said in str(refused.value)


def test_what_a_study_leaves_open_is_shown_in_the_words_of_its_task() -> None:
    (table,), figures = (
        getattr(load_config(values(protocol={"task": "link_prediction"})), key) for key in ("tables", "figures")
    )
    assert (table.name, table.title, table.where) == ("auc", "Test AUC in percent.", {})
    assert [figure.name for figure in figures][:2] == ["auc-per-round", "auc-per-second"]
    assert figures[0].title == "Test AUC per round"
    plain = load_config(values())
    assert (plain.tables[0].name, plain.tables[0].title) == ("accuracy", "Test accuracy in percent.")


def test_several_tasks_have_tables_and_figures_of_their_own() -> None:
    (sbm,) = values()["datasets"]
    datasets = [{**sbm, "label": "nodes"}, {**sbm, "label": "links", "protocol": {"task": "link_prediction"}}]
    config = load_config(values(datasets=datasets))
    assert [(table.name, table.where) for table in config.tables] == [
        ("accuracy", {"dataset": ["nodes"]}),
        ("auc", {"dataset": ["links"]}),
    ]
    names = [figure.name for figure in config.figures]
    assert len(set(names)) == len(names) == 12
    assert {"accuracy-per-round", "auc-per-round", "label-heatmap-accuracy", "label-heatmap-auc"} <= set(names)


def test_curves_of_a_mixed_study_have_the_words_of_their_own_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sbm,) = values()["datasets"]
    datasets = [{**sbm, "label": "nodes"}, {**sbm, "label": "links", "protocol": {"task": "link_prediction"}}]
    for dataset in datasets:
        run_cell(values(datasets=[dataset]), tmp_path / "results")
    collect(expand(load_config(values(datasets=datasets))), "mine", tmp_path / "results", tmp_path / "records")
    said: list[str] = []
    monkeypatch.setattr("matplotlib.axes.Axes.set_ylabel", lambda self, text, *_, **__: said.append(text))
    make_figures(tmp_path / "records", tmp_path / "figures")
    assert {"Test AUC (%)", "Test accuracy (%)"} <= set(said)
    study = read_study(tmp_path / "records")
    assert [study.metric_on(label) for label in ("nodes", "links")] == ["accuracy", "auc"]
    curves = [name for run in tracked_runs(study, tmp_path / "results") for name in run.curves]
    assert {"test_accuracy", "test_auc"} <= set(curves)
