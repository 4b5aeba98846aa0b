"""Comparison with printed numbers, on small reference files and on the shipped one."""

import csv
import io
from dataclasses import replace

import pandas as pd
import pytest
from synthetic_records import frame, run_rows, study_of, table_spec

from fglbench.errors import ConfigError, StorageError
from fglbench.reporting.compare import compare, comparison_table, summary
from fglbench.reporting.reference import COLUMNS, load_reference, printed_numbers
from fglbench.reporting.render import to_csv, to_html, to_latex, to_markdown


def reference(*rows: dict[str, str]) -> pd.DataFrame:
    base = dict.fromkeys(COLUMNS, "") | {
        "paper": "paper",
        "table": "1",
        "dataset": "cora",
        "method": "fedavg",
        "backbone": "gcn",
        "partition": "louvain",
        "clients": "10",
        "eval": "test",
        "metric": "accuracy",
        "value": "80.0",
        "std": "0.5",
        "n_runs": "10",
    }
    return pd.DataFrame([base | row for row in rows], dtype=str)


ONE = study_of(frame(run_rows([0.8])), seeds=[0])


def spec(**changes):
    return table_spec(reference={"table": "1"}, **changes)


def verdict(ours: list[float], **row: str) -> str:
    study = study_of(frame(run_rows(ours)), seeds=list(range(len(ours))))
    (only,) = compare(study, spec(), reference(row))
    return only.verdict


@pytest.mark.parametrize(
    ("ours", "expected"),
    [(0.80, "match"), (0.82, "match"), (0.78, "match"), (0.8201, "above"), (0.7799, "below")],
)
def test_two_points_are_a_match_and_more_is_not(ours, expected):
    assert verdict([ours, ours]) == expected


def test_wide_deviations_widen_the_match():
    # Ours has deviation 4.24 points (n = 2), the paper 2.0 (n = 10): pooled sqrt((18 + 9 * 4) / 10) = 2.32.
    assert verdict([0.87, 0.81], value="80.0", std="2.0") == "match"  # +4.0 <= 4.65
    assert verdict([0.88, 0.82], value="80.0", std="2.0") == "above"  # +5.0


def test_one_seed_uses_the_printed_deviation():
    assert verdict([0.84], std="2.5") == "match"
    assert verdict([0.84], std="") == "above"


def test_difference_is_in_points_at_full_precision():
    study = study_of(frame(run_rows([0.80, 0.813])), seeds=[0, 1])
    (row,) = compare(study, spec(digits=1), reference({"value": "80.7"}))
    assert row.difference == pytest.approx(-0.05)
    assert row.tolerance == 2.0


def test_what_we_ran_without_a_number_and_what_we_did_not_run_are_told_apart():
    diverged = {"outcome": "diverged", "outcome_round": 3.0, "reason": None}
    study = study_of(frame(run_rows({0: 0.8}, outcomes={1: diverged})), seeds=[0, 1])
    rows = compare(study, spec(), reference({}, {"method": "fedgta", "value": "82.1"}))
    assert [row.verdict for row in rows] == ["no number", "not run"]
    table = comparison_table(study, spec(), reference({}, {"method": "fedgta", "value": "82.1"}))
    assert [cell.text for cell in table.cells[0]] == ["1 of 2 †", "80.0 ± 0.5", "–", "no number"]
    assert [cell.text for cell in table.cells[1]] == ["○", "82.1 ± 0.5", "–", "not run"]
    assert table.notes[0] == "2 printed: 0 match, 0 below, 0 above, 1 no number, 1 not run."


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    study = study_of(frame(run_rows([0.8, 0.8])), seeds=[0, 1])
    assert comparison_table(study, spec(), reference({"value": "80.04"})).cells[0][2].text == "+0.0"


def test_a_filter_of_labels_leaves_out_what_other_labels_are_printed_as():
    runs = frame(run_rows([0.8, 0.8]), run_rows([0.81, 0.81], label="FedProx"))
    study = study_of(runs, seeds=[0, 1])
    printed = reference({}, {"method": "fedprox"}, {"method": "moon"})
    rows = compare(study, spec(where={"label": ["FedAvg"]}), printed)
    assert [(row.printed.method, row.verdict) for row in rows] == [("fedavg", "match"), ("moon", "not run")]


def test_printed_numbers_of_other_nodes_are_compared_where_they_are_named():
    printed = reference({"eval": "client_avg"})
    assert printed_numbers(ONE, spec(), printed) == []
    named = table_spec(reference={"table": "1", "where": {"eval": ["client_avg"]}})
    assert [row.value for row in printed_numbers(ONE, named, printed)] == [80.0]


def test_a_printed_word_is_shown_and_has_no_verdict():
    study = study_of(frame(run_rows([0.8, 0.8])), seeds=[0, 1])
    table = comparison_table(study, spec(), reference({"value": "", "std": "", "note": "OOM"}))
    assert [cell.text for cell in table.cells[0]] == ["80.0 ± 0.0", "OOM", "–", "not printed"]
    assert "1 where the paper prints no number" in table.notes[0]


@pytest.mark.parametrize(
    "other",
    [{"dataset": "citeseer"}, {"backbone": "sgc"}, {"partition": "metis"}, {"clients": "5"}, {"method": "moon"}],
)
def test_every_key_must_agree(other):
    study = study_of(frame(run_rows([0.8, 0.8])), seeds=[0, 1])
    # Without the table's own filter, so that the row of the other setting is kept and stays unmatched.
    (row,) = compare(study, spec(where={}), reference(other))
    assert row.verdict == "not run"


def test_the_table_s_own_filter_applies_to_the_paper():
    rows = printed_numbers(ONE, spec(), reference({}, {"partition": "metis"}, {"clients": "5"}, {"metric": "f1"}))
    assert len(rows) == 1


def test_a_filter_of_the_reference_stands_for_the_table_s_own():
    wanted = table_spec(reference={"table": "1", "where": {"clients": [10, 500]}}, where={"clients": [10]})
    printed = reference({}, {"clients": "5"}, {"clients": "500", "dataset": "papers100m"})
    assert [row.clients for row in printed_numbers(ONE, wanted, printed)] == [10, 500]


def test_what_was_not_run_has_the_study_s_own_words():
    runs = frame(run_rows([0.8], label="FedAvg 50 %"), run_rows([0.8], label="FedAvg")).assign(method="fedavg")
    study = study_of(runs, seeds=[0], order={"label": ["FedAvg", "FedAvg 50 %"]})
    rows = compare(study, spec(), reference({"dataset": "arxiv"}, {"dataset": "arxiv", "method": "moon"}))
    assert [row.place["label"] for row in rows if row.verdict == "not run"] == ["FedAvg", "moon"]
    rows = compare(study, spec(where={"label": ["FedAvg 50 %"]}), reference({"dataset": "arxiv"}))
    assert [row.place["label"] for row in rows if row.verdict == "not run"] == ["FedAvg 50 %"]


def test_variants_are_left_out_unless_named():
    printed = reference({}, {"variant": "no_moments", "value": "70"})
    assert [row.value for row in printed_numbers(ONE, spec(), printed)] == [80.0]
    named = table_spec(reference={"table": "1", "where": {"variant": ["no_moments"]}})
    assert [row.value for row in printed_numbers(ONE, named, printed)] == [70.0]


def test_the_largest_component_stands_for_its_dataset_unless_exact():
    study = study_of(frame(run_rows([0.8, 0.8], dataset="photo-lcc")), seeds=[0, 1])
    printed = reference({"dataset": "photo"})
    assert [row.verdict for row in compare(study, spec(), printed)] == ["match"]
    exact = table_spec(reference={"table": "1", "exact": True})
    assert [row.verdict for row in compare(study, exact, printed)] == ["not run"]


def test_global_matches_without_its_partition():
    runs = frame(run_rows([0.8, 0.8], label="Global"), run_rows([0.8, 0.8], label="Global", clients=5))
    study = study_of(runs, seeds=[0, 1])
    printed = reference({"method": "global", "partition": "", "clients": ""})
    wide = spec(columns=["dataset", "clients"], where={"scheme": ["louvain"]})
    assert [row.verdict for row in compare(study, wide, printed)] == ["match"]


def test_two_labels_of_one_method_both_stand_beside_it():
    runs = frame(
        run_rows([0.8, 0.8], label="mu=.1", method="fedprox"), run_rows([0.7, 0.7], label="mu=1", method="fedprox")
    )
    rows = compare(study_of(runs, seeds=[0, 1]), spec(), reference({"method": "fedprox"}))
    assert [(row.place["label"], row.verdict) for row in rows] == [("mu=.1", "match"), ("mu=1", "below")]


def test_order_of_methods_is_correlated_by_backbone_without_global():
    values = {"fedavg": 0.80, "fedprox": 0.81, "moon": 0.79, "feddc": 0.84, "global": 0.9}
    printed = {"fedavg": 80.0, "fedprox": 81.0, "moon": 79.0, "feddc": 78.0, "global": 95.0}
    runs = frame(
        *(run_rows([value, value], label=name, method=name) for name, value in values.items()),
        *(run_rows([value / 200] * 2, label=name, method=name, backbone="sgc") for name, value in printed.items()),
    )
    numbers = [
        {"method": name, "value": str(value), "backbone": b} for name, value in printed.items() for b in ("gcn", "sgc")
    ]
    table = comparison_table(study_of(runs, seeds=[0, 1]), spec(), reference(*numbers))
    # Ours 2 3 1 4, theirs 3 4 2 1: rho = 1 - 6 * (1 + 1 + 1 + 9) / 60 = -0.2; tau = (3 - 3) / 6 = 0.
    assert "Order of 4 methods on cora, louvain, 10 clients, gcn: Spearman -0.20, Kendall 0.00." in table.notes
    assert "Order of 4 methods on cora, louvain, 10 clients, sgc: Spearman 1.00, Kendall 1.00." in table.notes


def test_summary_line():
    runs = frame(run_rows([0.8, 0.8]), run_rows([0.5, 0.5], label="moon", method="moon"))
    printed = reference({"value": "81"}, {"method": "moon"}, {"method": "feddc"})
    rows = compare(study_of(runs, seeds=[0, 1]), spec(), printed)
    assert summary(rows) == "3 printed: 1 match, 1 below, 0 above, 1 not run; median absolute difference 15.5 points."


def test_all_formats_and_footnotes():
    runs = frame(run_rows([0.8, 0.8]), run_rows([0.6, 0.6], label="Local"))
    study = study_of(runs, seeds=[0, 1])
    table = comparison_table(study, spec(), reference({"note": "a_note|50%"}))
    assert "80.0 ± 0.5 \\[1\\]" in to_markdown(table)
    assert "\\[1\\] a\\_note\\|50%" in to_markdown(table)
    assert r"[1] a\_note|50\%".replace("|", r"\textbar{}") in to_latex(table)
    assert 'class="match"' in to_html(table)
    assert "Without a printed number: Local." in table.notes
    (row,) = csv.DictReader(io.StringIO(to_csv(table)))
    assert (row["verdict"], row["note"], row["method"]) == ("match", "a_note|50%", "fedavg")
    assert float(row["difference"]) == pytest.approx(0.0)


def test_unknown_tables_and_broken_files_are_named(tmp_path):
    study = study_of(frame(run_rows([0.8])), seeds=[0])
    with pytest.raises(ConfigError, match="the file has no table '9'"):
        compare(study, table_spec(reference={"table": "9"}), reference({}))
    with pytest.raises(ConfigError, match="Did you mean 'dataset'"):
        compare(study, table_spec(reference={"table": "1", "where": {"dataste": "cora"}}), reference({}))
    with pytest.raises(StorageError, match="cannot be read as a reference file"):
        load_reference(tmp_path / "none.csv")
    (tmp_path / "half.csv").write_text("paper,table\nx,1\n")
    with pytest.raises(StorageError, match="lacks the column task, dataset"):
        load_reference(tmp_path / "half.csv")


def test_the_shipped_reference_holds_table_3(pytestconfig):
    shipped = load_reference(pytestconfig.rootpath / "workflow" / "studies" / "reference" / "fedgta.csv")
    wanted = table_spec(reference={"table": "3", "where": {"backbone": ["gcn"], "dataset": ["cora"]}})
    values = {row.method: row.value for row in printed_numbers(ONE, wanted, shipped)}
    assert values["fedavg"] == 80.7
    assert values["global"] == 84.6
    assert values["fedgta"] == 82.1
    assert len(values) == 8


def test_a_method_is_matched_as_it_is_printed():
    runs = frame(
        run_rows([0.801, 0.803], label="FedSage+ and MOON", method="fedsage+", backbone="GraphSAGE"),
        run_rows([0.70, 0.71], label="w/o Mom.", method="fedgta", backbone="GraphSAGE"),
    )
    printed = {
        "FedSage+ and MOON": {"method": "moon", "backbone": "fedsage+"},
        "w/o Mom.": {"variant": "no_moments"},
        "FedGL": {"backbone": "fedgl"},
    }
    study = study_of(runs, seeds=[0, 1], names={"backbone": {"GraphSAGE": "sage"}}, printed=printed)
    paper = reference(
        {"method": "moon", "backbone": "fedsage+"},
        {"method": "fedgta", "backbone": "sage", "variant": "no_moments"},
        {"method": "fedgta", "backbone": "sage", "variant": "no_confidence"},
        {"method": "fedavg", "backbone": "fedgl"},
    )
    where = {"scheme": ["louvain"], "clients": [10], "backbone": ["GraphSAGE"]}
    rows = compare(study, spec(where=where), paper)
    assert [(row.place["label"], row.verdict) for row in rows] == [
        ("FedSage+ and MOON", "match"),
        ("w/o Mom.", "below"),
        ("fedavg", "not run"),
    ]
    rows = compare(study, spec(where={**where, "label": ["w/o Mom."]}), paper)
    assert [row.place["label"] for row in rows] == ["w/o Mom."]


def test_labels_in_the_table_s_filter_are_names_in_the_paper():
    runs = frame(run_rows([0.801, 0.803], dataset="Cora", scheme="Louvain", backbone="GCN"))
    names = {"dataset": {"Cora": "cora"}, "scheme": {"Louvain": "louvain"}, "backbone": {"GCN": "gcn"}}
    where = {"dataset": ["Cora"], "scheme": ["Louvain"], "backbone": ["GCN"]}
    rows = compare(study_of(runs, seeds=[0, 1], names=names), spec(where=where), reference({}, {"backbone": "gamlp"}))
    assert [row.verdict for row in rows] == ["match"]


def test_labels_of_datasets_and_backbones_do_not_hide_a_printed_number():
    study = study_of(frame(run_rows([0.801, 0.803])), seeds=[0, 1])
    runs = study.runs.replace({"backbone": {"gcn": "GCN"}, "dataset": {"cora": "Cora"}})
    names = {"backbone": {"GCN": "gcn"}, "dataset": {"Cora": "cora"}}
    labelled = replace(study, runs=runs, settings={**study.settings, "names": names})
    found, missing = compare(labelled, spec(), reference({}, {"method": "fedgta"}))
    assert (found.verdict, found.place["backbone"], found.place["dataset"]) == ("match", "GCN", "Cora")
    assert (missing.verdict, missing.place["backbone"], missing.place["dataset"]) == ("not run", "GCN", "Cora")
