"""What records and tables make of a task's own score, and of the privacy budget, without naming either."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fglbench.config.expand import expand
from fglbench.config.load import load_config
from fglbench.errors import ConfigError
from fglbench.single import run_cell
from fglbench.stages.collect import collect
from fglbench.stages.figures import make_figures
from fglbench.stages.tables import make_tables
from fglbench.storage import read_json


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
