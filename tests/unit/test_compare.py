"""Comparison with printed numbers, on small reference files and on the shipped one."""

import csv
import io
from dataclasses import replace

import pandas as pd
import pytest
from synthetic_records import frame, run_rows, study_of, table_spec

from fglbench.errors import ConfigError, StorageError
from fglbench.evaluation.quantities import quantity
from fglbench.reporting.compare import VERDICTS, compare, verdict_counts
from fglbench.reporting.comparison_tables import comparison_sheet
from fglbench.reporting.figures_scatter import Point, scatter
from fglbench.reporting.reference import COLUMNS, load_reference, printed_numbers
from fglbench.reporting.sheets import RENDERERS
from fglbench.reporting.terminal import to_text


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
    # Ours has deviation 2.83 points (n = 2), the paper 1.5 (n = 10): pooled sqrt((8 + 9 * 2.25) / 10) = 1.68.
    assert verdict([0.85, 0.81], value="80.0", std="1.5") == "match"  # +3.0 <= 3.36
    assert verdict([0.86, 0.82], value="80.0", std="1.5") == "above"  # +4.0


def spread(mean: float, deviation: float) -> list[float]:
    """Three accuracies with this mean and sample deviation in points."""
    return [(mean + step * deviation) / 100 for step in (-1, 0, 1)]


@pytest.mark.parametrize(("mean", "expected"), [(84.0, "match"), (84.1, "above"), (76.0, "match"), (75.9, "below")])
def test_no_deviation_widens_the_match_beyond_four_points(mean, expected):
    # Both deviations are 3, so twice the pooled one is 6.
    assert verdict(spread(mean, 3.0), value="80.0", std="3.0") == expected


def test_a_mean_of_seeds_that_disagree_is_no_verdict():
    # 84.5 +- 16.7 against 90.3: twice the deviation would call it a match.
    assert verdict([0.652, 0.935, 0.948], value="90.3", std="0.4") == "unstable"
    assert verdict(spread(80.0, 4.0), std="0.5") == "match"
    assert verdict(spread(80.0, 4.001), std="0.5") == "unstable"
    assert verdict([0.8], std="4.1") == "unstable"
    assert verdict(spread(30.0, 9.0)) == "unstable"


def test_more_seeds_do_not_make_the_same_disagreement_stable():
    # 20 seeds half at 75, half at 85: deviation 5.13, and a standard error of no more than 1.15.
    assert verdict([0.75, 0.85] * 10) == "unstable"


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
    sheet = comparison_sheet(study, spec(), reference({}, {"method": "fedgta", "value": "82.1"}))
    assert [cell.text for cell in sheet.folded.cells[0]] == ["1 of 2 †", "80.0 ± 0.5", "–", "no number"]
    assert [cell.text for cell in sheet.folded.cells[1]] == ["○", "82.1 ± 0.5", "–", "not run"]
    assert [row[0].text for row in sheet.table.cells] == ["1 of 2 † / 80.0", "○ / 82.1"]
    assert [symbol for symbol, _ in sheet.table.legend] == ["†", "○", "k of n:"]
    assert sheet.above.caption[0] == "2 printed: 0 match, 0 below, 0 above, 0 unstable, 1 no number, 1 not run."
    assert sheet.picture is None


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    study = study_of(frame(run_rows([0.8, 0.8])), seeds=[0, 1])
    assert comparison_sheet(study, spec(), reference({"value": "80.04"})).folded.cells[0][2].text == "+0.0"


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
    sheet = comparison_sheet(study, spec(), reference({"value": "", "std": "", "note": "OOM"}))
    assert [cell.text for cell in sheet.folded.cells[0]] == ["80.0 ± 0.0", "OOM", "–", "not printed"]
    assert sheet.table.cells[0][0].text == "80.0 / OOM"
    assert "1 where the paper prints no number" in sheet.above.caption[0]


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
    assert [row.coordinates["label"] for row in rows if row.verdict == "not run"] == ["FedAvg", "moon"]
    rows = compare(study, spec(where={"label": ["FedAvg 50 %"]}), reference({"dataset": "arxiv"}))
    assert [row.coordinates["label"] for row in rows if row.verdict == "not run"] == ["FedAvg 50 %"]


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
    assert [(row.coordinates["label"], row.verdict) for row in rows] == [("mu=.1", "match"), ("mu=1", "below")]


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
    above = comparison_sheet(study_of(runs, seeds=[0, 1]), spec(), reference(*numbers)).above
    # Ours 2 3 1 4, theirs 3 4 2 1: rho = 1 - 6 * (1 + 1 + 1 + 9) / 60 = -0.2; tau = (3 - 3) / 6 = 0.
    assert above.columns[-2:] == [("order, gcn",), ("order, sgc",)]
    assert [cell.text for cell in above.cells[0][-2:]] == ["−0.20 / 0.00 (4)", "1.00 / 1.00 (4)"]


def test_summary_line():
    runs = frame(run_rows([0.8, 0.8]), run_rows([0.5, 0.5], label="moon", method="moon"))
    printed = reference({"value": "81"}, {"method": "moon"}, {"method": "feddc"})
    rows = compare(study_of(runs, seeds=[0, 1]), spec(), printed)
    counts = "3 printed: 1 match, 1 below, 0 above, 0 unstable, 1 not run"
    assert verdict_counts(rows) == f"{counts}; median absolute difference 15.5 points."


@pytest.fixture
def sheet():
    """Two datasets, two backbones, two methods: what matches, is below, above, unstable, alone and missing."""
    runs = frame(
        run_rows([0.80, 0.81]),
        run_rows([0.70, 0.70], label="moon", method="moon"),
        run_rows([0.60, 0.60], label="Local"),
        run_rows([0.90, 0.90], dataset="pubmed"),
        run_rows([0.70, 0.90], dataset="pubmed", backbone="sgc"),
    )
    order = {"dataset": ["cora", "pubmed"], "backbone": ["gcn", "sgc"], "label": ["FedAvg", "moon", "Local"]}
    printed = reference(
        {"note": "a_note|50%"},
        {"method": "moon", "value": "76.04"},
        {"dataset": "pubmed", "value": "87"},
        {"dataset": "pubmed", "backbone": "sgc", "value": "79.0"},
        {"dataset": "pubmed", "method": "moon", "value": "87"},
    )
    return comparison_sheet(study_of(runs, seeds=[0, 1], order=order), spec(), printed)


def test_ours_and_printed_stand_in_the_layout_of_the_table(sheet):
    table = sheet.table
    assert (table.row_fields, table.column_fields) == (["backbone", "method"], ["dataset"])
    assert (table.rows, table.columns) == (
        [("gcn", "FedAvg"), ("gcn", "moon"), ("gcn", "Local"), ("sgc", "FedAvg")],
        [("cora",), ("pubmed",)],
    )
    assert [[cell.text for cell in row] for row in table.cells] == [
        ["80.5 / 80.0", "90.0 / 87.0"],
        ["70.0 / 76.0", "○ / 87.0"],
        ["60.0 / –", "○ / –"],
        ["○ / –", "80.0 / 79.0"],
    ]
    assert [[cell.mark for cell in row] for row in table.cells] == [["", "▴"], ["▾", ""], ["", ""], ["", "⇕"]]
    assert [[cell.tone for cell in row] for row in table.cells[:2]] == [["", "above"], ["below", ""]]
    meanings = dict(table.legend)
    assert list(meanings) == ["▴", "▾", "⇕", "–", "○"]
    assert meanings["⇕"] == "unstable"
    caption = " ".join(table.caption)
    assert "Test accuracy in %: ours / printed in table 1 of paper, means." in caption
    assert "Numbers match within max(2 points, 2 × pooled standard deviation), at most 4 points" in caption
    assert "unstable where a standard deviation, ours or the printed one, is above 4 points" in caption
    assert "Our deviation covers all that a seed draws: partition, split and initialisation" in caption


def test_a_line_for_each_column_comes_first(sheet):
    heads = (
        "printed",
        "match",
        "below",
        "above",
        "unstable",
        "not run",
        "median difference",
        "order, gcn",
        "order, sgc",
    )
    assert sheet.above.columns == [(head,) for head in heads]
    assert sheet.above.rows == [("cora",), ("pubmed",)]
    assert [[cell.text for cell in row] for row in sheet.above.cells] == [
        ["2", "1", "1", "0", "0", "0", "3.3", "–", "–"],  # |0.5| and |-6.04|
        ["3", "0", "0", "1", "1", "1", "2.0", "–", "–"],  # 3.0 and 1.0
    ]


def test_the_csv_has_a_record_for_each_printed_number(sheet):
    rows = list(csv.DictReader(io.StringIO(RENDERERS["csv"](sheet))))
    assert [(row["dataset"], row["label"], row["backbone"], row["verdict"]) for row in rows] == [
        ("cora", "FedAvg", "gcn", "match"),
        ("cora", "moon", "gcn", "below"),
        ("pubmed", "FedAvg", "gcn", "above"),
        ("pubmed", "moon", "gcn", "not run"),
        ("pubmed", "FedAvg", "sgc", "unstable"),
    ]
    assert (rows[0]["note"], rows[0]["method"], rows[0]["tolerance"]) == ("a_note|50%", "fedavg", "2")
    assert float(rows[1]["difference"]) == pytest.approx(-6.04)


def test_every_number_follows_the_matrix_and_is_folded(sheet):
    text = RENDERERS["md"](sheet)
    order = ("agreement with print", "| gcn | moon | 70.0 / 76.0 ▾ |", "every printed number", "80.0 ± 0.5 \\[1\\]")
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "\\[1\\] a\\_note\\|50%" in text
    page = RENDERERS["html"](sheet)
    order = (
        "agreement with print",
        "data:image/png;base64,",
        "70.0 / 76.0",
        "<details>",
        '<td class="match">match</td>',
    )
    assert [page.index(part) for part in order] == sorted(page.index(part) for part in order)
    assert '<td class="unstable marked">80.0 / 79.0<span class="mark"> ⇕</span>' in page
    assert page.count("<details>") == page.count("</details>") == 1
    latex = RENDERERS["tex"](sheet)
    assert r"70.0 / 76.0 $\bigtriangledown$" in latex and "every printed number" not in latex


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_has_its_colour(verdict, sheet):
    assert f"td.{verdict.replace(' ', '-')}" in RENDERERS["html"](sheet)


def test_a_terminal_shows_the_matrix_and_not_every_number(sheet):
    text = "\n".join(to_text(table, width=160) for table in sheet.shown)
    assert "│ 70.0 / 76.0 ▾ │" in text and "│ 80.5 / 80.0   │" in text
    assert "⇕ unstable" in text
    assert "76.0 ± 0.5" not in text


def test_the_scatter_shows_each_number_where_it_stands():
    points = [
        Point("gcn", "cora", 80.0, 80.5, False),
        Point("gcn", "pubmed", 87.0, 90.0, False),
        Point("sgc", "pubmed", 79.0, 80.0, True),
    ]
    figure = scatter(points, quantity("accuracy"))
    assert [panel.get_title() for panel in figure.axes] == ["gcn", "sgc"]
    panel, other = figure.axes
    drawn = {marks.get_label(): marks.get_offsets().tolist() for marks in panel.collections[2:]}
    assert drawn == {"cora": [[80.0, 80.5]], "pubmed": [[87.0, 90.0]]}
    # The bands are 4 and 2 points wide on either side, at the left end of the panel's 75 to 94.
    edges = [sorted({y for x, y in band.get_paths()[0].vertices if x == 75.0}) for band in panel.collections[:2]]
    assert edges == [[71.0, 79.0], [73.0, 77.0]]
    (hollow,) = (marks for marks in other.collections[2:] if len(marks.get_offsets()))
    assert hollow.get_facecolors()[:, 3].tolist() == [0.0]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("Printed accuracy (%)", "Our accuracy (%)")


def test_a_variant_of_its_own_keeps_a_label_out_of_the_comparison():
    runs = frame(
        run_rows([0.8, 0.8], label="GCFL+", method="gcfl+"),
        run_rows([0.7, 0.7], label="GCFL+ (relative thresholds)", method="gcfl+"),
    )
    numbers = reference({"method": "gcfl+"}, {"method": "gcfl+", "dataset": "arxiv"})

    def shown(printed: dict) -> dict[str, list[str]]:
        table = comparison_sheet(study_of(runs, seeds=[0, 1], printed=printed), spec(), numbers).table
        return {row[-1]: [cell.text for cell in cells] for row, cells in zip(table.rows, table.cells, strict=True)}

    both = {"GCFL+": ["○ / 80.0", "80.0 / 80.0"], "GCFL+ (relative thresholds)": ["○ / –", "70.0 / 80.0"]}
    assert shown({}) == both
    alone = {"GCFL+": ["○ / 80.0", "80.0 / 80.0"], "GCFL+ (relative thresholds)": ["○ / –", "70.0 / –"]}
    assert shown({"GCFL+ (relative thresholds)": {"variant": "relative_thresholds"}}) == alone


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
    assert [(row.coordinates["label"], row.verdict) for row in rows] == [
        ("FedSage+ and MOON", "match"),
        ("w/o Mom.", "below"),
        ("fedavg", "not run"),
    ]
    rows = compare(study, spec(where={**where, "label": ["w/o Mom."]}), paper)
    assert [row.coordinates["label"] for row in rows] == ["w/o Mom."]


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
    assert (found.verdict, found.coordinates["backbone"], found.coordinates["dataset"]) == ("match", "GCN", "Cora")
    assert (missing.verdict, missing.coordinates["backbone"], missing.coordinates["dataset"]) == (
        "not run",
        "GCN",
        "Cora",
    )
