"""Tables: which cells are averaged, which are best, what is printed, and what is escaped."""

import csv
import io
import re

import pandas as pd
import pytest
from synthetic_records import frame, full_study, run_rows, study_of, table_spec, write_study

from fglbench.errors import ConfigError, StorageError
from fglbench.records.study import read_study
from fglbench.reporting.cells import Table, TableCell
from fglbench.reporting.names import table_files
from fglbench.reporting.outcomes import OUTCOMES
from fglbench.reporting.render import escape_latex, escape_markdown, fragment, to_csv, to_html, to_latex, to_markdown
from fglbench.reporting.tables import build_table
from fglbench.reporting.terminal import to_text
from fglbench.stages.tables import make_tables

HOSTILE = 'a|b*c`d_e%f&g#h$i{j}k~l^m\\n<o>"p", q'


def by_label(table: Table, column: int = 0) -> dict[str, TableCell]:
    return {row[-1]: cells[column] for row, cells in zip(table.rows, table.cells, strict=True)}


def failing(state: str, **more: object) -> dict[str, object]:
    return {"outcome": state, "outcome_round": more.get("outcome_round", float("nan")), "reason": more.get("reason")}


def test_mean_and_sample_deviation_in_percent():
    study = study_of(frame(run_rows([0.80, 0.82, 0.87])), seeds=[0, 1, 2])
    cell = by_label(build_table(study, table_spec()))["FedAvg"]
    assert cell.text == "83.0 ± 3.6"
    assert cell.mean == pytest.approx(83.0)
    assert cell.std == pytest.approx(3.605551275)
    assert (cell.n, cell.state) == (3, "ok")


def test_one_seed_prints_no_deviation():
    table = build_table(study_of(frame(run_rows([0.8])), seeds=[0]), table_spec())
    assert by_label(table)["FedAvg"].text == "80.0"
    assert "one seed (n = 1)" in table.caption[0]
    assert "±" not in to_markdown(table)


def test_split_reading_and_mean_are_chosen_and_said():
    study = study_of(frame(run_rows([0.8, 0.8])), seeds=[0, 1])
    last = build_table(study, table_spec(reading="last", mean="macro"))
    assert by_label(last)["FedAvg"].mean == pytest.approx(76.0)
    caption = " ".join(last.caption)
    assert "Last round" in caption
    assert "macro (plain mean over the clients" in caption
    assert "Protocol: evaluate aggregated" in caption


def test_the_mean_over_nodes_is_the_pooled_one_where_no_node_is_shared():
    own, shared = frame(run_rows([0.8])), frame(run_rows([0.7], label="Local"))
    once = shared[shared["mean"] == "pooled"].assign(mean="nodes", value=lambda rows: rows["value"] + 0.05)
    study = study_of(pd.concat([own, shared, once], ignore_index=True), seeds=[0])
    table = build_table(study, table_spec(mean="nodes"))
    assert {label: cell.text for label, cell in by_label(table).items()} == {"FedAvg": "80.0", "Local": "75.0"}
    assert "nodes (every node counts once" in " ".join(table.caption)
    assert build_table(study, table_spec(mean="nodes", metric="bytes_up", percent=False)).cells[0][0].text == "4.0"
    pooled = build_table(study, table_spec())
    assert by_label(pooled)["Local"].text == "70.0"
    assert "counted together; a node that several clients hold counts once for each of them)" in " ".join(
        pooled.caption
    )
    assert "several clients hold" not in " ".join(build_table(study_of(own, seeds=[0]), table_spec()).caption)


def test_the_protocols_of_a_table_are_said_where_datasets_differ():
    study = study_of(frame(run_rows([0.8])), seeds=[0])
    dataset = study.runs["dataset"].iloc[0]
    split = {"kind": "public", "train": 0.2, "val": 0.4, "test": 0.4}
    study.settings["protocols"] = {dataset: {"split": split, "setting": "inductive"}, "Elsewhere": {"setting": "other"}}
    assert "Protocol: split.kind public, setting inductive." in build_table(study, table_spec()).caption
    both = study_of(frame([*run_rows([0.8]), *run_rows([0.8], dataset="B")]), seeds=[0])
    both.settings["protocols"] = {"B": {"setting": "inductive"}}
    caption = build_table(both, table_spec(columns=["dataset", "scheme", "clients"], where={})).caption
    assert f"Protocol of {dataset}: evaluate aggregated." in caption
    assert "Protocol of B: setting inductive." in caption
    assert "Best-on-test" in " ".join(build_table(study, table_spec(reading="test")).caption)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tuned": "mine", "overrides": [{}]}, "Settings found by searches on validation nodes: tuned/mine.yaml."),
        ({"tuned": None, "overrides": [{}]}, "Some cells have settings from the overrides of the study."),
        ({"tuned": None, "overrides": []}, None),
    ],
)
def test_settings_that_were_searched_or_overridden_are_said(settings, sentence):
    made = build_table(study_of(frame(run_rows([0.8])), seeds=[0], settings=settings), table_spec()).caption
    assert [line for line in made if "ettings" in line] == ([sentence] if sentence else [])


def test_memory_is_in_the_units_it_is_measured_in():
    runs = frame(run_rows([0.8])).replace({"metric": {"train_seconds": "peak_memory_mb"}})
    made = build_table(study_of(runs, seeds=[0]), table_spec(metric="peak_memory_mb"))
    assert made.caption[0].startswith("Peak memory in MiB")


def test_training_of_single_datasets_is_said_where_they_are_shown():
    own = {"hidden": 256, "local_epochs": 5, "lr": 0.01}  # of which lr is the study's
    datasets = ["Cora", "Photo", "CS", "Physics", "Computers", "DBLP"]
    entries = [
        {"name": "cora", "training": {}},
        *({"name": name, "training": own} for name in ("photo", "cs", "physics")),
    ]
    entries += [{"name": "computers", "training": {"dropout": 0.0}}, {"name": "dblp", "training": {"hidden": 8}}]
    study = study_of(
        frame(*(run_rows([0.8], dataset=dataset) for dataset in datasets[:5])),
        seeds=[0],
        order={"dataset": datasets},
        training={"rounds": 100, "hidden": 64, "local_epochs": 3, "lr": 0.01, "dropout": None},
        settings={"datasets": entries},
    )
    sentence = (
        "Training differs by dataset: Photo, CS and Physics with hidden 256 (not 64), local_epochs 5 (not 3); "
        "Computers with dropout 0.0."
    )
    assert sentence in build_table(study, table_spec()).caption
    alone = build_table(study, table_spec(where={"dataset": ["Cora"]}))
    assert "Training" not in " ".join(alone.caption)


def test_training_of_single_methods_is_said_where_they_are_shown():
    study = study_of(
        frame(run_rows([0.8], label="A"), run_rows([0.8], label="B")),
        seeds=[0],
        order={"label": ["A", "B"]},
        training={"participation": 1.0},
        settings={"methods": [{"name": "fedavg", "training": {}}, {"name": "b", "training": {"participation": 0.5}}]},
    )
    sentence = "Training differs by method: B with participation 0.5 (not 1.0)."
    assert sentence in build_table(study, table_spec()).caption
    assert sentence not in build_table(study, table_spec(where={"label": ["A"]})).caption


def test_seeds_that_differ_between_cells_are_printed_in_each():
    runs = frame(run_rows([0.8, 0.8], label="FedAvg"), run_rows([0.7, 0.7, 0.7], label="Local"))
    table = build_table(study_of(runs), table_spec())
    assert by_label(table)["FedAvg"].text == "80.0 ± 0.0 (2)"
    assert by_label(table)["Local"].text == "70.0 ± 0.0 (3)"
    assert "(n) in each cell" in table.caption[0]


def test_ties_as_printed_share_the_mark():
    runs = frame(
        run_rows([0.8001, 0.8001], label="A"),
        run_rows([0.8004, 0.8004], label="B"),  # prints 80.0 as well
        run_rows([0.7990, 0.7990], label="C"),
        run_rows([0.79904, 0.79904], label="D"),
        run_rows([0.5, 0.5], label="E"),
    )
    cells = by_label(build_table(study_of(runs, seeds=[0, 1]), table_spec()))
    assert [name for name, cell in cells.items() if cell.best] == ["A", "B"]
    assert [name for name, cell in cells.items() if cell.second] == ["C", "D"]


def test_lower_is_better_for_times_and_a_table_may_say_otherwise():
    runs = frame(run_rows([0.8, 0.8], label="A", seconds=3.0), run_rows([0.8, 0.8], label="B", seconds=9.0))
    study = study_of(runs, seeds=[0, 1])
    assert by_label(build_table(study, table_spec(metric="train_seconds")))["A"].best
    assert by_label(build_table(study, table_spec(metric="train_seconds", better="higher")))["B"].best
    rounds = by_label(build_table(study, table_spec(metric="selected_round")))
    assert not any(cell.best or cell.second for cell in rounds.values())


def three(label: str, *points: float) -> list[dict]:
    """A cell with these accuracies in percent on seeds 0, 1, ..."""
    return run_rows([value / 100 for value in points], label=label)


@pytest.fixture
def tested() -> Table:
    """Against A: B differs by -1, 1, -1, C by -10, -10, -9.9; D has A's numbers; Global is ahead of all."""
    runs = frame(
        three("Global", 90, 90, 90),
        three("A", 80, 82, 84),
        three("B", 79, 83, 83),
        three("C", 70, 72, 74.1),
        three("D", 80, 82, 84),
    )
    return build_table(study_of(runs, seeds=[0, 1, 2]), table_spec(separable=0.05))


def test_what_is_not_separable_from_the_best_is_marked(tested):
    cells = by_label(tested)
    assert {name: cell.mark for name, cell in cells.items() if cell.mark} == {"B": "≈"}
    assert [cells[name].best for name in "ABCD"] == [True, False, False, True]
    assert cells["A"].against_best is None and cells["Global"].against_best is None
    # B: t = -1/3 / (sqrt(4/3) / sqrt(3)) = -0.5, so p = 1 - 0.5 / 1.5 = 2/3; of three tests the second smallest, x 2.
    assert cells["B"].against_best.difference.mean == pytest.approx(-1 / 3)
    assert cells["B"].against_best.p == 1.0
    # C: t = 299 with two degrees of freedom, p = 1 - 299 / sqrt(299^2 + 2), x 3.
    assert cells["C"].against_best.p == pytest.approx(3 * (1 - 299 / (299**2 + 2) ** 0.5))
    assert cells["D"].against_best.p == 1.0
    assert cells["B"].hint == "against the best -0.33 ± 1.15, n = 3, p = 1"


def test_the_mark_is_explained_in_every_format(tested):
    meaning = (
        "not separable from the best with these seeds (paired t-test over common seeds, Holm-corrected, level 5 %)"
    )
    assert tested.legend == [("≈", meaning)]
    assert f"Separable from the best {meaning.partition('seeds ')[2]}: 1 of 3 cells." in tested.notes
    assert "| <u>81.7 ± 2.3</u> ≈ |" in to_markdown(tested)
    assert r"\underline{81.7 $\pm$ 2.3} $\approx$ " in to_latex(tested)
    assert '<u>81.7 ± 2.3</u><span class="mark"> ≈</span>' in to_html(tested)
    text = to_text(tested, width=200)
    assert "│ 81.7 ± 2.3 ≈ │" in text and "│ 72.0 ± 2.1   │" in text
    for shown in (to_markdown(tested), to_html(tested), text):
        assert f"≈ {meaning}" in shown
    rows = {row["label"]: row for row in csv.DictReader(io.StringIO(to_csv(tested)))}
    assert float(rows["C"]["cora minus best"]) == pytest.approx(-299 / 30)
    assert float(rows["C"]["cora minus best std"]) == pytest.approx(0.1 / 3**0.5)
    assert (rows["B"]["cora p"], rows["A"]["cora p"]) == ("1", "")


def test_p_values_are_corrected_for_all_rivals_of_a_column():
    # Differences 1, 1.5, 2: t = 1.5 / (0.5 / sqrt(3)) = sqrt(27), p = 1 - sqrt(27 / 29) = 0.035; for two rivals 0.070.
    best, others = three("A", 80, 82, 84), [three(name, 79, 80.5, 82) for name in "BC"]
    for rivals, p, mark in ((1, 0.0351, ""), (2, 0.0702, "≈")):
        study = study_of(frame(best, *others[:rivals]), seeds=[0, 1, 2])
        cell = by_label(build_table(study, table_spec(separable=0.05)))["B"]
        assert (cell.against_best.p, cell.mark) == (pytest.approx(p, abs=5e-5), mark)


def test_only_common_seeds_are_paired():
    runs = frame(run_rows([0.8, 0.82, 0.84], label="A"), run_rows({1: 0.81, 2: 0.829, 7: 0.1}, label="B"))
    runs = pd.concat([runs, frame(run_rows({9: 0.5}, label="C"))])
    table = build_table(study_of(runs), table_spec(separable=0.05))
    lag = by_label(table)["B"].against_best.difference
    assert (lag.mean, lag.n) == (pytest.approx(-1.05), 2)
    assert by_label(table)["C"].against_best is None
    assert any("1 of 1 cells; 1 more have no rival or fewer than two common seeds." in note for note in table.notes)


def test_without_a_level_nothing_is_tested():
    table = build_table(study_of(frame(three("A", 80, 82), three("B", 80, 81)), seeds=[0, 1]), table_spec())
    assert all(cell.mark == "" and cell.against_best is None for row in table.cells for cell in row)
    assert "cora p" not in to_csv(table)
    assert not any("Separable" in note for note in table.notes)


def test_selected_rounds_count_from_1():
    study = study_of(frame(run_rows([0.8, 0.8])), seeds=[0, 1])  # records of rounds 10 and 11, counted from 0
    table = build_table(study, table_spec(metric="selected_round"))
    assert by_label(table)["FedAvg"].text == "11.5 ± 0.7"
    assert "11.5" in to_csv(table)


def test_global_is_printed_but_does_not_compete():
    runs = frame(run_rows([0.9, 0.9], label="Global"), run_rows([0.8, 0.8]), run_rows([0.7, 0.7], label="Local"))
    table = build_table(study_of(runs, seeds=[0, 1]), table_spec())
    cells = by_label(table)
    assert cells["Global"].text == "90.0 ± 0.0"
    assert not cells["Global"].best
    assert cells["FedAvg"].best
    assert cells["Local"].second
    assert "Global trains on the whole graph in one place and is not marked" in " ".join(table.caption)


def test_a_lone_method_is_not_marked():
    table = build_table(study_of(frame(run_rows([0.8, 0.8])), seeds=[0, 1]), table_spec())
    assert not by_label(table)["FedAvg"].best
    assert "bold" not in " ".join(table.caption)


def test_methods_compete_within_a_dataset_when_datasets_are_rows():
    runs = frame(
        run_rows([0.9, 0.9], label="A"),
        run_rows([0.8, 0.8], label="B"),
        run_rows([0.3, 0.3], label="A", dataset="citeseer"),
        run_rows([0.4, 0.4], label="B", dataset="citeseer"),
    )
    table = build_table(study_of(runs, seeds=[0, 1]), table_spec(rows=["dataset"], columns=["label"]))
    assert table.rows == [("citeseer",), ("cora",)]
    assert [[cell.best for cell in row] for row in table.cells] == [[False, True], [True, False]]


def test_many_cells_without_a_number_for_one_reason_are_counted():
    def not_run(count: int, dataset: str) -> list[dict]:
        absent = failing("not_run", reason="not finished")
        return [
            row
            for number in range(count)
            for row in run_rows(None, label=f"method {number}", dataset=dataset, outcomes={0: absent})
        ]

    few = build_table(study_of(frame(not_run(2, "cora")), seeds=[0]), table_spec())
    assert few.notes == ["cora, gcn, method 0; cora, gcn, method 1: seed 0: not run (not finished)."]
    many = build_table(study_of(frame(not_run(7, "cora"), not_run(1, "pubmed")), seeds=[0]), table_spec())
    assert many.notes == ["cora, 7 cells; pubmed, 1 cell: seed 0: not run (not finished)."]


@pytest.mark.parametrize("state", ["diverged", "oom", "timeout", "failed", "not_applicable", "not_run"])
def test_every_outcome_has_its_symbol_and_legend(state):
    runs = frame(
        run_rows([0.8, 0.8]), run_rows(None, label="X", outcomes={0: failing(state), 1: failing(state, reason="why")})
    )
    table = build_table(study_of(runs, seeds=[0, 1]), table_spec())
    cell = by_label(table)["X"]
    assert cell.text == OUTCOMES[state].symbol
    assert cell.mean is None
    assert (OUTCOMES[state].symbol, OUTCOMES[state].meaning) in table.legend
    assert "(why)" in cell.detail
    assert by_label(table)["FedAvg"].best


def test_symbols_are_distinct():
    assert len({outcome.symbol for outcome in OUTCOMES.values()}) == len(OUTCOMES)


def test_a_partly_failed_cell_says_k_of_n_and_is_not_best():
    diverged = failing("diverged", outcome_round=6.0, reason="loss is not finite")
    runs = frame(run_rows([0.8] * 3), run_rows({0: 0.99, 2: 0.99}, label="X", outcomes={1: diverged}))
    table = build_table(study_of(runs, seeds=[0, 1, 2]), table_spec())
    cell = by_label(table)["X"]
    assert cell.text == "2 of 3 †"
    assert cell.mean is None
    assert not cell.best
    assert by_label(table)["FedAvg"].best
    assert "seed 1: diverged in round 7 (loss is not finite)" in cell.detail
    assert any(symbol == "k of n:" for symbol, _ in table.legend)


def test_seeds_without_a_record_count_as_not_run():
    table = build_table(study_of(frame(run_rows([0.8, 0.8])), seeds=[0, 1, 2, 3]), table_spec())
    assert by_label(table)["FedAvg"].text == "2 of 4 ○"


def test_a_method_without_a_dataset_is_not_run_there():
    runs = frame(run_rows([0.8]), run_rows([0.8], label="X"), run_rows([0.7], label="X", dataset="citeseer"))
    table = build_table(study_of(runs, seeds=[0], order={"dataset": ["cora", "citeseer"]}), table_spec())
    assert table.columns == [("cora",), ("citeseer",)]
    assert by_label(table, column=1)["FedAvg"].text == "○"


def test_a_score_that_no_client_has_is_no_number():
    runs = frame(run_rows([0.8, 0.8]))
    runs.loc[(runs["seed"] == 0) & (runs["metric"] == "accuracy"), "value"] = float("nan")
    table = build_table(study_of(runs, seeds=[0, 1]), table_spec())
    assert by_label(table)["FedAvg"].text == "1 of 2 ∅"


def test_times_of_different_devices_are_neither_averaged_nor_compared():
    runs = frame(
        run_rows({0: 0.8}, label="A", device="cpu"),
        run_rows({1: 0.8}, label="A", device="cuda"),
        run_rows([0.8, 0.8], label="B", device="cpu", seconds=9.0),
        run_rows([0.8, 0.8], label="C", device="cuda", seconds=1.0),
    )
    table = build_table(study_of(runs, seeds=[0, 1]), table_spec(metric="train_seconds"))
    cells = by_label(table)
    assert cells["A"].text == "≠"
    assert not cells["B"].second
    assert not cells["C"].best
    assert "Device: cpu; cpu, cuda; cuda." in table.caption
    assert by_label(build_table(study_of(runs, seeds=[0, 1]), table_spec()))["A"].text == "80.0 ± 0.0"


def test_clients_without_nodes_are_said():
    table = build_table(study_of(frame(run_rows([0.8, 0.8], evaluated=9)), seeds=[0, 1]), table_spec())
    assert "cora: 9 of 10 clients evaluated." in table.notes


def test_devices_of_one_type_are_told_apart_by_name():
    devices = ("cuda: NVIDIA T4", "cuda: NVIDIA H100")
    runs = frame(*(run_rows({seed: 0.8}, label="A", device=device) for seed, device in enumerate(devices)))
    study = study_of(runs, seeds=[0, 1])
    assert by_label(build_table(study, table_spec(metric="train_seconds")))["A"].text == "≠"
    assert by_label(build_table(study, table_spec()))["A"].state == "ok"


def test_methods_that_the_study_calls_centralised_do_not_compete():
    parts = [run_rows([value, value], label=label) for label, value in (("Oracle", 0.9), ("A", 0.8), ("B", 0.7))]
    table = build_table(study_of(frame(*parts), seeds=[0, 1], centralised=["oracle"]), table_spec())
    assert [by_label(table)[label].best for label in ("Oracle", "A", "B")] == [False, True, False]
    assert "Oracle trains on the whole graph in one place and is not marked." in table.caption


def test_only_datasets_without_validation_nodes_are_said_to_have_none():
    runs = frame(run_rows([0.8]), run_rows([0.7], dataset="citeseer"))
    counted = [
        runs[runs["metric"] == "accuracy"].assign(
            split="val", evaluated=runs["dataset"].map({"cora": 9, "citeseer": 0})
        )
    ]
    study = study_of(pd.concat([runs, *counted]), seeds=[0])
    words = "because no client has validation nodes."
    both = build_table(study, table_spec()).caption
    assert f"citeseer: last round, {words}" in both and "Round chosen by the validation nodes." in both
    assert f"Last round, {words}" in build_table(study, table_spec(where={"dataset": ["citeseer"]})).caption
    alone = build_table(study, table_spec(where={"dataset": ["cora"]})).caption
    assert "Round chosen by the validation nodes." in alone and words not in " ".join(alone)


def test_order_is_the_study_s():
    order = {"label": ["Local", "Global", "FedAvg"], "dataset": ["cora", "citeseer"]}
    runs = frame(*(run_rows([0.5], label=label) for label in ("FedAvg", "Extra", "Global", "Local")))
    table = build_table(study_of(runs, seeds=[0], order=order), table_spec(rows=["label"]))
    assert [row[0] for row in table.rows] == ["Local", "Global", "FedAvg", "Extra"]


def test_ranks_and_paired_leads_are_noted():
    table = build_table(full_study(), table_spec(rows=["label"], columns=["dataset", "scheme", "clients"], where={}))
    (note,) = (
        note for note in table.notes if note.startswith("Average rank over 6 columns, each dataset counted once: ")
    )
    # Three methods on two datasets: 2.3437 sqrt(3 * 4 / (6 * 2)), whatever schemes and numbers of clients there are.
    assert "critical difference (Nemenyi, 5 %): 2.34" in note
    table = build_table(
        full_study(), table_spec(rows=["dataset", "scheme"], columns=["clients"], where={"label": ["FedAvg"]})
    )
    assert not any(note.startswith("Average rank") for note in table.notes)
    runs = frame(run_rows([0.8, 0.9], label="A"), run_rows([0.7, 0.82], label="B"))
    notes = build_table(study_of(runs, seeds=[0, 1]), table_spec()).notes
    assert "Best minus second, paired by seed: cora +9.0 ± 1.4." in notes


def test_columns_of_one_dataset_have_ranks_and_no_test():
    runs = frame(*(run_rows([v, v], label=label, clients=c) for label, v in (("A", 0.8), ("B", 0.7)) for c in (5, 10)))
    spec = table_spec(rows=["label"], columns=["clients"], where={})
    assert "Average rank over 2 columns: A 1.00, B 2.00." in build_table(study_of(runs, seeds=[0, 1]), spec).notes


def test_times_of_different_devices_have_no_ranks():
    parts = [
        run_rows([0.8], label=label, dataset=dataset, device=device, seconds=seconds)
        for label, device, seconds in (("A", "cpu: x", 10.0), ("B", "cuda: y", 1.0))
        for dataset in ("cora", "citeseer")
    ]
    study = study_of(frame(*parts), seeds=[0])
    ranked = [
        any(note.startswith("Average rank") for note in build_table(study, table_spec(metric=metric)).notes)
        for metric in ("train_seconds", "accuracy")
    ]
    assert ranked == [False, True]


def test_mixed_cells_are_refused_with_the_way_out():
    runs = frame(run_rows([0.8]), run_rows([0.8], scheme="metis"))
    with pytest.raises(ConfigError, match=r"one cell would mix several values of scheme \(scheme: louvain, metis\)"):
        build_table(study_of(runs, seeds=[0]), table_spec(where={}))


def test_one_label_for_two_settings_is_refused():
    other = run_rows([0.7])
    for row in other:
        row["cell"] = "another"
    with pytest.raises(ConfigError, match="share the label 'FedAvg'"):
        build_table(study_of(frame(run_rows([0.8]), other), seeds=[0]), table_spec())


def test_an_unknown_metric_is_refused_with_the_closest():
    with pytest.raises(ConfigError, match="Did you mean 'accuracy'"):
        build_table(study_of(frame(run_rows([0.8])), seeds=[0]), table_spec(metric="acuracy"))


def test_a_filter_without_records_gives_an_empty_table_that_says_so():
    table = build_table(study_of(frame(run_rows([0.8])), seeds=[0]), table_spec(where={"dataset": ["pubmed"]}))
    assert table.rows == []
    assert "No record matches" in table.notes[0]
    assert "No record matches" in to_markdown(table) + to_latex(table)
    assert to_csv(table) == "backbone,method\n"


def test_markdown_marks_and_shape():
    text = to_markdown(build_table(full_study(), table_spec()))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[0] == "| backbone | method | cora | citeseer |"
    assert len(lines) == 6
    assert len(re.findall(r"\*\*\d\d\.\d ± \d\.\d\*\*", text)) == 2
    assert len(re.findall(r"<u>\d\d\.\d ± \d\.\d</u>", text)) == 2


def test_escaping_of_markdown_and_latex():
    assert escape_markdown("a|b*c`d_e<f>&\ng") == r"a\|b\*c\`d\_e&lt;f&gt;&amp; g"
    assert escape_markdown("\\[x]~$") == r"\\\[x\]\~\$"
    assert escape_latex("%_&#${}~^\\") == r"\%\_\&\#\$\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert escape_latex("80 ± 1 †\n") == r"80 $\pm$ 1 \dag{}"
    assert escape_latex("".join(outcome.symbol for outcome in OUTCOMES.values())).isascii()


@pytest.fixture
def hostile() -> Table:
    runs = frame(run_rows([0.8, 0.8], label=HOSTILE), run_rows([0.7, 0.7], label="two\nlines"))
    return build_table(study_of(runs, seeds=[0, 1]), table_spec(title=HOSTILE))


def test_hostile_labels_survive_csv(hostile):
    rows = list(csv.DictReader(io.StringIO(to_csv(hostile))))
    assert [row["label"] for row in rows] == [HOSTILE, "two\nlines"]
    assert float(rows[0]["cora"]) == pytest.approx(80.0)
    assert (rows[0]["cora n"], rows[0]["cora outcome"]) == ("2", "ok")


def test_hostile_labels_keep_the_markdown_grid(hostile):
    lines = [line for line in to_markdown(hostile).splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {4}
    assert r"a\|b\*c\`d\_e" in lines[2]


def test_hostile_labels_keep_latex_balanced(hostile):
    text = to_latex(hostile)
    bare = re.sub(r"\\[\\{}%_&#$]", "", text)
    assert bare.count("{") == bare.count("}")
    row = next(line for line in text.splitlines() if line.startswith("gcn & a"))
    assert len(re.findall(r"(?<!\\)&", row)) == 2
    assert r"\%f\&g\#h\$i\{j\}k\textasciitilde{}l\textasciicircum{}m\textbackslash{}n" in row


@pytest.mark.parametrize("label", ["*mine", "[mine]"])
def test_a_label_is_no_option_of_the_row_above_in_latex(label):
    study = study_of(frame(run_rows([0.8], label="A"), run_rows([0.8], label=label)), seeds=[0])
    text = to_latex(build_table(study, table_spec(rows=["label"])))
    assert f"\n{{}}{label} & " in text


def test_hostile_labels_stay_text_in_html(hostile):
    page = to_html(hostile)
    assert "<o>" not in page
    assert "&lt;o&gt;" in fragment(page)
    assert fragment(page).strip().startswith('<div class="table"')


def test_html_spans_shared_heads():
    spec = table_spec(rows=["label"], columns=["dataset", "scheme", "clients"], where={})
    page = to_html(build_table(full_study(), spec))
    assert page.count('colspan="4"') == 2
    assert page.count('colspan="2"') == 4
    assert r"\multicolumn{4}{c}{cora}" in to_latex(build_table(full_study(), spec))


def test_terminal_text_shows_all_cells(hostile):
    text = to_text(build_table(full_study(), table_spec()), width=100)
    assert "2 of 3 †" in text
    assert "FedProx" in text
    assert HOSTILE in to_text(hostile, width=160)


def test_the_stage_writes_exactly_the_promised_files(tmp_path, reference_folder):
    study = full_study()
    write_study(study, tmp_path / "study")
    make_tables(tmp_path / "study", tmp_path / "tables", reference_folder)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == sorted(
        table_files(study.tables, study.settings["reference"])
    )
    before = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    make_tables(tmp_path / "study", tmp_path / "tables", reference_folder)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}


def test_a_missing_record_file_is_named(tmp_path):
    write_study(full_study(), tmp_path)
    (tmp_path / "curves.parquet").unlink()
    with pytest.raises(StorageError, match=r"curves\.parquet cannot be read.*collect stage"):
        read_study(tmp_path)


@pytest.fixture
def reference_folder(pytestconfig):
    return pytestconfig.rootpath / "workflow" / "studies" / "reference"


def test_a_table_wider_than_the_terminal_is_printed_in_blocks_without_cutting_a_number():
    table = build_table(full_study(), table_spec())
    wide, narrow = to_text(table, width=200), to_text(table, width=40)
    assert wide.count("method") == 1
    assert narrow.count("method") > 1
    assert "…" not in narrow
    for row in table.cells:
        for cell in row:
            assert cell.text in narrow
    assert max(len(line) for line in to_text(table, width=60).splitlines()) <= 60
