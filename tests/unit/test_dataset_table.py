"""The table of datasets: our sizes beside those that the paper prints."""

from pathlib import Path

import pandas as pd
from synthetic_records import study_of, table_spec

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
    return dataset_table(study, table_spec(name="table2", title="Datasets.", **spec), printed)


def test_printed_sizes_stand_beside_ours_also_of_the_largest_component():
    made = table(load_reference(ROOT / "workflow/studies/reference/fedgta.csv"), reference={"table": "2"})
    text = {row[0]: [cell.text for cell in cells] for row, cells in zip(made.rows, made.cells, strict=True)}
    assert text["cora"][:8] == ["2,708", "2,708", "1,433", "1,433", "5,278", "5,429", "7", "7"]
    assert text["Photo"][4:6] == ["119,043", "119,043"]
    assert text["reddit"][:2] == ["–", "232,965"]
    assert len(made.rows) == 12


def test_split_and_setting_stand_beside_the_printed_ones():
    ratios = {"split": {"kind": "ratios", "train": 0.2, "val": 0.4, "test": 0.4}, "setting": "transductive"}
    public = {"split": {"kind": "public", "train": 0.2, "val": 0.4, "test": 0.4}, "setting": "inductive"}
    sizes = {"cora": SIZES["cora"], "flickr": {"nodes": 89250}, "pubmed": {"nodes": 19717}}
    counts = {"split": {**ratios["split"], "kind": "per_class", "train_per_class": 20, "val_nodes": 500}}
    protocols = {"flickr": public, "pubmed": ratios | counts}
    study = study_of(pd.DataFrame(), sizes=sizes, protocol=ratios, protocols=protocols)
    printed = load_reference(ROOT / "workflow/studies/reference/fedgta.csv")
    made = dataset_table(study, table_spec(reference={"table": "2"}), printed)
    text = {row[0]: [cell.text for cell in cells] for row, cells in zip(made.rows, made.cells, strict=True)}
    assert made.columns[8:] == [(name, who) for name in ("split", "setting") for who in ("ours", "printed")]
    assert text["cora"][8:] == ["20%/40%/40%", "20%/40%/40%", "transductive", "transductive"]
    assert text["pubmed"][8] == "20/class, 500, the rest"
    assert text["flickr"][8:] == ["public", "44k/22k/22k", "inductive", "inductive"]
    assert text["reddit"][8:] == ["–", "155k/23k/54k", "–", "inductive"]


def test_without_a_reference_there_are_only_our_sizes():
    made = table(None)
    assert made.columns == [("nodes",), ("features",), ("edges",), ("classes",), ("split",), ("setting",)]
    own = {"dataset": "cora", "nodes": "2,708", "features": "1,433", "edges": "5,278", "classes": "7"}
    assert made.data[0] == own | {"split": "–", "setting": "–"}


def test_rows_are_in_the_order_of_the_study():
    study = study_of(pd.DataFrame(), sizes=dict(sorted(SIZES.items())), order={"dataset": ["cora", "Photo"]})
    assert dataset_table(study, table_spec(), None).rows == [("cora",), ("Photo",)]
