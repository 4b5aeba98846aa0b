"""Figures: what is drawn, and that equal records give equal files."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from matplotlib import rc_context
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from synthetic_records import ACCURACY, figure_spec, frame, full_study, run_rows, study_of, write_study

from fglbench.errors import ConfigError
from fglbench.records.presentation import FigureKind
from fglbench.records.study import StudyRecord
from fglbench.reporting.figures import KINDS, draw
from fglbench.reporting.figures_base import FONT, LOOK
from fglbench.reporting.figures_fit import settle, wrapped
from fglbench.reporting.figures_ranks import cliques
from fglbench.reporting.html import FIGURE_WORDS
from fglbench.reporting.names import figure_files
from fglbench.reporting.palette import COLOURS, styles
from fglbench.stages.figures import make_figures


def texts(figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(lambda item: hasattr(item, "get_text")))


def line(axes, label):
    return next(item for item in axes.get_lines() if item.get_label() == label)


@pytest.fixture(scope="module")
def study():
    return full_study()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "average_ranks"])
def test_one_panel_per_problem_with_titles(study, kind):
    figure = draw(study, figure_spec(kind))
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    expected = {"accuracy_by_clients": 2, "labels_and_convergence": 8, "aggregation_weights": 6, "graph": 34}
    assert len(titles) == expected.get(kind, 4)
    assert titles[0].startswith("cora, louvain")
    assert figure.get_suptitle() == "A title"


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_gives_a_note_instead_of_a_crash(study, kind):
    figure = draw(study, figure_spec(kind, where={"dataset": ["pubmed"]}))
    assert "to draw for dataset: ['pubmed']" in texts(figure)


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_without_any_record_of_training_gives_notes(study, kind):
    none = pd.DataFrame()
    assert "to draw" in texts(
        draw(
            replace(study, runs=study.runs[:0], curves=none, partitions=none, mixing=none, drawings=none),
            figure_spec(kind),
        )
    )


def test_per_round_shows_mean_and_sample_deviation(study):
    axes = draw(study, figure_spec("accuracy_per_round")).axes[0]
    curves = study.curves
    rows = curves[(curves["dataset"] == "cora") & (curves["scheme"] == "louvain") & (curves["clients"] == 5)]
    values = rows[rows["label"] == "FedAvg"].pivot(index="seed", columns="round", values="test_score").to_numpy() * 100
    drawn = line(axes, "FedAvg")
    assert drawn.get_xdata().tolist() == list(range(1, 31))
    np.testing.assert_allclose(drawn.get_ydata(), values.mean(axis=0))
    place = [item.get_label() for item in axes.get_lines()].index("FedAvg")
    vertices = axes.collections[place].get_paths()[0].vertices
    band = vertices[np.isclose(vertices[:, 0], 30)][:, 1]
    spread = values[:, -1].std(ddof=1)
    assert band.min() == pytest.approx(values[:, -1].mean() - spread)
    assert band.max() == pytest.approx(values[:, -1].mean() + spread)


def test_a_point_marks_where_a_phase_begins(study):
    """In the median over seeds; 30 rounds, of which the second phase has those from round 11 or 13 on."""
    curves = study.curves
    begins = curves["seed"].map(lambda seed: 10 if seed else 12)
    phase = np.where(curves["round"] < begins, "combined", "train")
    phased = replace(study, curves=curves.assign(phase=phase))
    axes = draw(phased, figure_spec("accuracy_per_round")).axes[0]
    points = [own for own in axes.get_lines() if own.get_marker() == "o" and len(own.get_xdata()) == 1]
    expected = float(np.median([12 if not seed else 10 for seed in sorted(curves["seed"].unique())])) + 1
    assert points and {float(own.get_xdata()[0]) for own in points} == {expected}
    assert not [
        own for own in draw(study, figure_spec("accuracy_per_round")).axes[0].get_lines() if own.get_marker() == "o"
    ]


def test_per_second_interpolates_within_what_all_seeds_cover(study):
    axes = draw(study, figure_spec("accuracy_per_second")).axes[0]
    times = line(axes, "FedAvg").get_xdata()
    # Rounds take 0.05, 0.06 and 0.07 s: the slowest seed starts last, the fastest ends first.
    assert times[0] == pytest.approx(0.07)
    assert times[-1] == pytest.approx(30 * 0.05)


def test_devices_are_separate_lines_in_seconds_only(study):
    runs = study.runs.copy()
    runs.loc[runs["label"] == "Local", "device"] = "cuda"
    mixed = replace(study, runs=runs)
    assert "Local [cuda]" in texts(draw(mixed, figure_spec("accuracy_per_second")))
    assert "[cuda]" not in texts(draw(mixed, figure_spec("accuracy_per_round")))


def test_incomplete_cells_are_not_drawn(study):
    panel = draw(study, figure_spec("accuracy_per_round")).axes[3]
    assert panel.get_title() == "citeseer, louvain, 10 clients"
    assert [item.get_label() for item in panel.get_lines()] == ["Global", "Local", "FedAvg"]


def test_cells_without_a_value_for_every_seed_are_not_drawn(study):
    runs = study.runs.copy()
    of_fedavg = (runs["label"] == "FedAvg") & (runs["seed"] == 0)
    runs.loc[of_fedavg & (runs["metric"] == "accuracy"), "value"] = np.nan
    scores = draw(replace(study, runs=runs), figure_spec("accuracy_by_clients")).axes[0]
    assert scores.get_legend_handles_labels()[1] == ["Global", "Local", "FedProx"]
    without = replace(study, runs=runs[~(of_fedavg & (runs["metric"] == "server_seconds"))])
    seconds = draw(without, figure_spec("seconds_by_method")).axes[0]
    assert [text.get_text() for text in seconds.get_yticklabels()] == ["Global", "Local", "FedProx"]


def test_one_seed_has_no_error_bar(study):
    runs = study.runs[study.runs["seed"] == 0]
    panel = draw(
        replace(study, runs=runs, settings=study.settings | {"seeds": [0]}), figure_spec("accuracy_by_clients")
    ).axes[0]
    for container in panel.containers:
        drawn = [segment for bar in container.lines[2] for segment in bar.get_segments() if len(segment)]
        assert all(np.isnan(segment[:, 1]).all() for segment in drawn)


def test_scores_chosen_on_test_nodes_say_so(study):
    chosen = draw(study, figure_spec("accuracy_by_clients", reading="test")).axes[0]
    assert chosen.get_ylabel() == "Test accuracy (%, best on test)"
    assert draw(study, figure_spec("accuracy_by_clients")).axes[0].get_ylabel() == "Test accuracy (%)"


def test_a_heat_map_of_labels_takes_a_filter_of_methods(study):
    where = {"dataset": ["cora"], "label": ["FedAvg"]}
    titles = [axes.get_title() for axes in draw(study, figure_spec("label_heatmap", where=where)).axes]
    assert titles[0].startswith("cora, louvain, 5 clients")


def test_methods_that_send_nothing_are_lines(study):
    axes = draw(study, figure_spec("bytes_by_accuracy")).axes[0]
    assert axes.get_xscale() == "log"
    assert "Local (sends nothing)" in axes.get_legend_handles_labels()[1]
    silent = draw(study, figure_spec("bytes_by_accuracy", where={"label": ["Local"], "dataset": ["cora"]})).axes[0]
    assert silent.get_xscale() == "linear"


def test_weights_are_those_that_a_receiver_took(study):
    labels, axes = (
        axes
        for axes in draw(study, figure_spec("aggregation_weights", where={"dataset": ["cora"]})).axes
        if axes.get_title().startswith("cora, louvain, 5 clients")
    )
    assert labels.get_xlabel() == "Class"
    image = axes.get_images()[0].get_array()
    assert image[0].tolist() == [0.5, 0.5, 0.0, 0.0, 0.0]
    assert image[4].tolist() == [0.5, 0.0, 0.0, 0.0, 0.5]
    assert "FedProx (gcn), seed 0, round 11" in axes.get_title()


def test_bars_stack_the_servers_seconds_on_those_of_local_training(study):
    axes = draw(study, figure_spec("seconds_by_method", where={"label": ["FedAvg"], "dataset": ["cora"]})).axes[0]
    clients, server = axes.patches
    # Seeds take 2.0, 2.1 and 2.2 s, of which the server 0.5 s.
    assert clients.get_width() == pytest.approx(1.6)
    assert (server.get_x(), server.get_width()) == pytest.approx((1.6, 0.5))


def test_labels_and_curves_of_all_schemes_stand_in_one_row(study):
    figure = draw(study, figure_spec("labels_and_convergence", where={"dataset": ["cora"], "clients": [5]}))
    first, second, third, fourth = (axes for axes in figure.axes if axes.get_title())
    assert [axes.get_title() for axes in (third, fourth)] == ["cora, louvain, 5 clients", "cora, metis, 5 clients"]
    assert first.get_images() and second.get_images() and not third.get_images()
    assert [item.get_label() for item in third.get_lines()] == ["Global", "Local", "FedAvg", "FedProx"]
    assert len({axes.get_position().y0 for axes in (third, fourth)}) == 1


def participating(**labels):
    return [
        run_rows([value, value + 0.02], label=label, method=label.split()[0].lower(), participation=fraction)
        for label, (fraction, value) in labels.items()
    ]


def test_a_method_is_one_line_over_its_fractions():
    runs = participating(**{"FedAvg": (1.0, 0.8), "FedAvg 20 %": (0.2, 0.6), "Local": (1.0, 0.7)})
    axes = draw(study_of(frame(*runs), seeds=[0, 1]), figure_spec("accuracy_by_participation", where={})).axes[0]
    lines = {item.get_label(): item.lines[0] for item in axes.containers}
    assert set(lines) == {"FedAvg", "Local"}
    assert lines["FedAvg"].get_xdata().tolist() == [20, 100]
    assert lines["FedAvg"].get_ydata().tolist() == pytest.approx([61, 81])


def test_a_method_is_one_line_over_its_local_epochs_called_by_its_shortest_label():
    rows = [
        run_rows([0.6 + 0.01 * epochs, 0.8], label=label, method="fedavg", local_epochs=epochs)
        for epochs, label in ((2, "FedAvg (2)"), (3, "FedAvg"), (6, "FedAvg (6)"))
    ]
    axes = draw(study_of(frame(*rows)), figure_spec("accuracy_by_local_epochs")).axes[0]
    (drawn,) = axes.containers
    assert drawn.get_label() == "FedAvg" and drawn.lines[0].get_xdata().tolist() == [2, 3, 6]
    assert drawn.lines[0].get_ydata().tolist() == pytest.approx([71, 71.5, 73])
    assert axes.get_xlabel() == "Local epochs"


def test_two_labels_at_one_number_of_local_epochs_are_refused():
    rows = frame(run_rows([0.5], label="FedAvg"), run_rows([0.6], label="FedAvg, by nodes", method="fedavg"))
    with pytest.raises(ConfigError, match="'fedavg' has several labels at local_epochs 3: FedAvg, FedAvg, by nodes"):
        draw(study_of(rows), figure_spec("accuracy_by_local_epochs"))


def test_gains_are_differences_seed_by_seed(study):
    asked = figure_spec(
        "accuracy_by_clients", gains={"FedAvg": "Local"}, where={"scheme": ["louvain"], "dataset": ["cora"]}
    )
    axes = draw(study, asked).axes[0]
    (drawn,) = axes.containers
    runs = study.runs[(study.runs["dataset"] == "cora") & (study.runs["scheme"] == "louvain")]
    scored = runs[(runs["metric"] == "accuracy") & (runs["split"] == "test") & (runs["mean"] == "pooled")]
    scored = scored[scored["reading"] == "val"].set_index(["clients", "seed"])
    own, base = (100 * scored.loc[scored["label"] == name, "value"] for name in ("FedAvg", "Local"))
    expected = (own - base).groupby("clients").mean()
    assert drawn.lines[0].get_ydata().tolist() == pytest.approx(expected.tolist())
    assert drawn.get_label() == "FedAvg" and axes.get_ylabel().startswith("Gain: ")


def test_bars_are_the_scores_of_the_methods(study):
    where = {"dataset": ["cora"], "clients": [5], "scheme": ["louvain"]}
    axes = draw(study, figure_spec("accuracy_by_method", where=where)).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == list(ACCURACY)
    widths = [bar.get_width() for bar in axes.patches]
    assert axes.get_xlim()[0] < min(widths) and axes.get_xlim()[1] > max(widths)
    assert abs(widths[names.index("Global")] - 86) < 3 and abs(widths[names.index("Local")] - 69) < 3


def test_what_a_run_is_measured_by_is_drawn_as_it_is():
    rows = frame(run_rows([0.5, 0.6], clients=5), run_rows([0.5, 0.6], clients=10))
    counted = rows[rows["metric"] == "train_seconds"].assign(
        metric="rounds_run", value=lambda own: 10.0 * own["clients"]
    )
    axes = draw(study_of(pd.concat([rows, counted])), figure_spec("accuracy_by_clients", metric="rounds_run")).axes[0]
    assert axes.containers[0].lines[0].get_ydata().tolist() == [50.0, 100.0]
    assert axes.get_ylabel() == "Rounds until all clients have left"


def test_the_global_test_is_named_on_the_axis(study):
    shown = replace(study, runs=study.runs.replace({"split": {"test": "global_test"}}))
    axes = draw(shown, figure_spec("accuracy_by_clients", split="global_test")).axes[0]
    assert axes.get_ylabel() == "Global test accuracy (%)" and axes.containers


def test_two_settings_of_a_method_at_one_fraction_are_refused():
    runs = participating(**{"FedAvg": (0.2, 0.8), "FedAvg slow": (0.2, 0.6)})
    with pytest.raises(ConfigError, match=r"'fedavg' has several labels at participation 0.2: FedAvg, FedAvg slow"):
        draw(study_of(frame(*runs), seeds=[0, 1]), figure_spec("accuracy_by_participation", where={}))


def test_heatmap_shows_the_first_seed(study):
    axes = draw(study, figure_spec("label_heatmap")).axes[0]
    image = axes.get_images()[0].get_array()
    rows = study.partitions
    first = rows[
        (rows["dataset"] == "cora") & (rows["scheme"] == "louvain") & (rows["clients"] == 5) & (rows["seed"] == 0)
    ]
    assert image.tolist() == [list(counts) for counts in first["classes"]]
    assert "seed 0" in axes.get_title()


def test_a_label_keeps_its_colour_in_every_figure(study):
    colours = set()
    for kind in ("accuracy_per_round", "accuracy_per_second"):
        for where in ({}, {"label": ["FedAvg"]}, {"dataset": ["citeseer"]}):
            colours.add(line(draw(study, figure_spec(kind, where=where)).axes[0], "FedAvg").get_color())
    assert colours == {COLOURS[2]}


def test_more_methods_than_colours_stay_apart():
    found = styles([str(number) for number in range(20)], ["gcn", "sgc"])
    assert len(set(found.values())) == 40
    assert len({to_rgb(colour) for colour in COLOURS}) == len(COLOURS)
    # Lines without markers, as curves are: two turns of the colours with four backbones.
    lines = styles([str(number) for number in range(16)], ["gcn", "sgc", "gat", "sage"])
    assert len({(style.colour, style.dash) for style in lines.values()}) == 64


def test_a_label_with_an_underscore_is_in_the_legend():
    study = study_of(frame(*(run_rows([0.8], label="_mine", clients=clients) for clients in (5, 10))), seeds=[0])
    axes = draw(study, figure_spec("accuracy_by_clients")).axes[0]
    assert axes.get_legend_handles_labels()[1] == [" _mine"]


def test_ranks_are_averaged_within_a_dataset_first(study):
    """cora: FedAvg is first in both partitions; citeseer: FedAvg first in one, second in the other."""
    scores = {
        ("cora", 5): {"Local": 0.7, "FedAvg": 0.9, "FedProx": 0.8},
        ("cora", 10): {"Local": 0.7, "FedAvg": 0.9, "FedProx": 0.8},
        ("citeseer", 5): {"Local": 0.7, "FedAvg": 0.8, "FedProx": 0.9},
    }
    parts = [
        run_rows([value, value], dataset=dataset, clients=clients, label=label)
        for (dataset, clients), row in scores.items()
        for label, value in row.items()
    ]
    figure = draw(study_of(frame(*parts), seeds=[0, 1]), figure_spec("average_ranks", where={}))
    written = texts(figure)
    assert "FedAvg  1.50" in written and "FedProx  1.50" in written and "Local  3.00" in written
    assert "over 2 datasets" in written
    # q_0.05 of Nemenyi for 3 methods is 2.343; 2.343 sqrt(3 * 4 / (6 * 2)).
    assert "critical difference 2.34" in written
    assert "left out" not in written
    diverged = {seed: {"outcome": "diverged", "outcome_round": 1.0, "reason": None} for seed in (0, 1)}
    lost = [run_rows(None, label="MOON", dataset=dataset, outcomes=diverged) for dataset in ("cora", "citeseer")]
    figure = draw(study_of(frame(*parts, *lost), seeds=[0, 1]), figure_spec("average_ranks", where={}))
    assert "left out, without a complete cell: MOON" in texts(figure)


def test_ranks_need_enough_methods_and_datasets(study):
    figure = draw(study, figure_spec("average_ranks", where={"dataset": ["cora"]}))
    assert "at least 3 methods and 2 datasets with complete cells; this figure has 3 and 1" in texts(figure)


def test_bars_join_the_longest_runs_within_the_difference():
    average = np.array([1.0, 1.8, 2.5, 4.0])
    assert cliques(average, 1.0) == [(0, 1), (1, 2)]
    assert cliques(average, 1.5) == [(0, 2), (2, 3)]
    assert cliques(average, 0.5) == []
    assert cliques(average, 9.0) == [(0, 3)]


def test_every_kind_that_a_study_may_ask_for_is_drawn_and_described():
    assert set(get_args(FigureKind)) == set(KINDS) == set(FIGURE_WORDS)


def test_the_stage_writes_exactly_the_promised_files_with_equal_bytes(tmp_path):
    study = full_study(datasets=("cora",), schemes=("louvain",))
    write_study(study, tmp_path / "study")
    make_figures(tmp_path / "study", tmp_path / "one")
    make_figures(tmp_path / "study", tmp_path / "two")
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted(figure_files(study.figures))
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


LONG = {
    "cora": "Computers (largest component)",
    "citeseer": "Physics (largest component)",
    "louvain": "Dirichlet (alpha 0.5)",
    "FedProx": "GCFL+ (relative_thresholds,standardised_by_the_norm_of_all_gradients)",
    "FedAvg": "FedAvg of all clients, trained parameters",
    "Local": "Local training without any exchange",
    "gcn": "gamlp with recursive attention",
}


@pytest.fixture(scope="module")
def long_study() -> StudyRecord:
    """Long names everywhere, and a second backbone, so that labels name it."""
    small = full_study(schemes=("louvain",), seeds=2)
    order = {field: [LONG.get(value, value) for value in values] for field, values in small.settings["order"].items()}

    def renamed(part: pd.DataFrame) -> pd.DataFrame:
        named = part.replace({field: LONG for field in ("dataset", "scheme", "label", "backbone") if field in part})
        other = {"backbone": "sage with drawn neighbours", "cell": "other"}
        return pd.concat([named, named.assign(**other)]) if "backbone" in part else named

    frames = {name: renamed(getattr(small, name)) for name in ("runs", "curves", "partitions", "mixing")}
    return replace(small, settings=small.settings | {"order": order}, **frames)


def settled(study: StudyRecord, kind: str, **changes) -> Figure:
    figure = draw(study, figure_spec(kind, **{"where": {}} | changes))
    with rc_context(LOOK):
        settle(figure)
        figure.draw_without_rendering()
    return figure


def overlapping(boxes: dict[str, Bbox]) -> list[tuple[str, str]]:
    """Pairs of names whose boxes share more than a pixel."""
    names = list(boxes)
    pairs = [(one, other) for place, one in enumerate(names) for other in names[place + 1 :]]
    return [pair for pair in pairs if Bbox.intersection(*(boxes[name].padded(-1) for name in pair))]


@pytest.mark.parametrize("kind", KINDS)
def test_long_names_neither_overlap_nor_leave_the_figure(long_study, kind):
    title = "Accuracy of all methods on the largest components of all graphs " * 3
    figure = settled(long_study, kind, title=title, where={"clients": [5]})
    renderer = figure.canvas.get_renderer()
    drawn, sheet = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert min(*drawn.min, *(sheet - drawn.max)) > -0.01, "something leaves the figure"
    boxes = {"title of all": figure._suptitle.get_window_extent(renderer)}
    boxes |= {f"legend {place}": legend.get_window_extent(renderer) for place, legend in enumerate(figure.legends)}
    for place, axes in enumerate(figure.axes):
        boxes[f"panel {place}"] = axes.get_window_extent(renderer)
        texts = {"title": axes.title, "name of x": axes.xaxis.label, "name of y": axes.yaxis.label}
        boxes |= {
            f"{what} {place}": text.get_window_extent(renderer) for what, text in texts.items() if text.get_text()
        }
    assert len(boxes) >= 3
    assert overlapping(boxes) == []
    assert min(axes.get_window_extent(renderer).height for axes in figure.axes) > 1.2 * figure.dpi, (
        "a panel is squeezed"
    )


def test_names_beside_bars_do_not_overlap(long_study):
    axes = settled(long_study, "seconds_by_method", where={"clients": [5]}).axes[0]
    names = {label.get_text(): label.get_window_extent() for label in axes.get_yticklabels()}
    assert len(names) == 8
    assert overlapping(names) == []
    assert axes.get_window_extent().width > 1.2 * axes.figure.dpi


def test_texts_are_broken_between_words_and_inside_those_that_are_too_long():
    assert wrapped("Computers (largest component), 5 clients", 2.0, FONT) == "Computers (largest\ncomponent), 5 clients"
    assert wrapped("one\ntwo", 2.0, FONT) == "one\ntwo"
    assert wrapped(" _mine", 2.0, FONT) == " _mine"
    assert wrapped("breast-cancer-wisconsin", 1.0, FONT) == "breast-\ncancer-\nwisconsin"
    assert "".join(wrapped("w" * 50, 1.0, FONT).split("\n")) == "w" * 50


def whole(axis) -> list[int]:
    """The labels of an axis inside its range; all of them must be whole numbers."""
    low, high = sorted(axis.get_view_interval())
    ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
    return [int(label.get_text()) for place, label in ticks if low <= place <= high]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_axes_of_rounds_clients_and_classes_show_whole_numbers_alone(size):
    study = full_study(datasets=("cora",), schemes=("louvain",), seeds=1)
    renamed = {
        name: getattr(study, name).replace({"clients": {5: size, 10: size + 1}})
        for name in ("runs", "curves", "partitions", "mixing")
    }
    study = replace(study, settings=study.settings | {"order": {}}, **renamed)
    partitions, mixing = (frame[frame["client"] < size] for frame in (study.partitions, study.mixing))
    study = replace(
        study,
        curves=study.curves[study.curves["round"] < size],
        partitions=partitions.assign(classes=[[1] * size] * len(partitions)),
        mixing=mixing.assign(weights=mixing["weights"].map(lambda row: row[:size])),
    )
    rounds = settled(study, "accuracy_per_round").axes[0].xaxis
    assert whole(rounds) == list(range(1, size + 1))
    (_, weights, *_) = settled(study, "aggregation_weights", where={"clients": [size]}).axes
    labels, curves, nodes = settled(study, "labels_and_convergence", where={"clients": [size]}).axes
    maps = [labels.xaxis, labels.yaxis, weights.xaxis, weights.yaxis]
    assert [whole(axis) for axis in maps] == [list(range(size))] * 4
    assert whole(curves.xaxis) == list(range(1, size + 1))
    assert whole(nodes.yaxis) == [0, 1]
    assert whole(settled(study, "accuracy_by_clients").axes[0].xaxis) == [size, size + 1]
