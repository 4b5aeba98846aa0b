"""The table of datasets: our sizes beside those that the paper prints."""

from pathlib import Path

import pandas as pd
from synthetic_records import study_of

from fglbench.reporting.datasets import dataset_table
from fglbench.reporting.reference import load_reference

ROOT = Path(__file__).parents[2]
SIZES = {
    "cora": {"nodes": 2708, "edges": 5278, "features": 1433, "classes": 7},
    "Photo": {"nodes": 7487, "edges": 119043, "features": 745, "classes": 8},
}


def table(printed, **spec):
    study = study_of(
        pd.DataFrame(),
        sizes=SIZES,
        order={"dataset": ["cora", "Photo"]},
        names={"dataset": {"cora": "cora", "Photo": "photo-lcc"}},
    )
    return dataset_table(study, {"name": "table2", "title": "Datasets.", **spec}, printed)


def test_printed_sizes_stand_beside_ours_also_of_the_largest_component():
    made = table(load_reference(ROOT / "workflow/studies/reference/fedgta.csv"), reference={"table": "2"})
    text = {row[0]: [cell.text for cell in cells] for row, cells in zip(made.rows, made.cells, strict=True)}
    assert text["cora"] == ["2,708", "2,708", "1,433", "1,433", "5,278", "5,429", "7", "7"]
    assert text["Photo"][4:6] == ["119,043", "119,043"]
    assert text["reddit"][:2] == ["–", "232,965"]
    assert len(made.rows) == 12


def test_without_a_reference_there_are_only_our_sizes():
    made = table(None)
    assert made.columns == [("nodes",), ("features",), ("edges",), ("classes",)]
    assert made.data[0] == {"dataset": "cora", "nodes": "2,708", "features": "1,433", "edges": "5,278", "classes": "7"}


def test_rows_are_in_the_order_of_the_study():
    study = study_of(pd.DataFrame(), sizes=dict(sorted(SIZES.items())), order={"dataset": ["cora", "Photo"]})
    assert dataset_table(study, {"name": "table2"}, None).rows == [("cora",), ("Photo",)]
