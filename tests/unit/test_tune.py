"""Search of settings: on validation and its own seeds, killed and resumed, and back into a study."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import optuna
import pytest
import yaml

from fglbench.cli import main
from fglbench.config.expand import expand
from fglbench.config.load import load_study
from fglbench.config.schema import Config
from fglbench.config.searches import plan_searches
from fglbench.errors import ConfigError
from fglbench.storage import write_json
from fglbench.tuning import search as tuning
from fglbench.tuning.search import run_search, write_tuned
from fglbench.workflow.single import Single, run_single

STUDY = {
    "datasets": ["karate"],
    "partitions": ["random"],
    "clients": [3],
    "methods": ["fedavg", {"name": "fedprox", "label": "FedProx"}, {"name": "fedprox", "mu": 0.5, "label": "own"}],
    "seeds": 2,
    "training": {"rounds": 4, "local_epochs": 1, "hidden": 4},
    "tune": {
        "seeds": [100, 101],
        "partition": "random",
        "clients": 3,
        "trials": 4,
        "searches": [
            {"methods": ["fedprox"], "settings": {"mu": [0.001, 0.01, 0.1]}},
            {"methods": ["fedprox"], "training": {"lr": {"low": 0.001, "high": 0.1, "log": True}}},
        ],
    },
}
VALUES = {"device": "cpu"}


def write(folder, **changes):
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump({**STUDY, **changes}))
    return path


def test_a_search_for_every_method_that_leaves_something_open(tmp_path):
    searches = plan_searches(load_study(write(tmp_path)))
    assert [(search.coordinates["method"], sorted(search.space)) for search in searches] == [
        ("FedProx", ["settings.mu", "training.lr"]),
        ("own", ["training.lr"]),
    ]


def test_the_name_of_a_search_follows_what_decides_its_numbers(tmp_path):
    def name(**changes):
        return plan_searches(load_study(write(tmp_path, **changes)))[0].slug

    tune = STUDY["tune"]
    assert name() == name(seeds=3) == name(tune={**tune, "trials": 9})
    others = [name(tune={**tune, "seeds": [100]}), name(training={"rounds": 5}), name(tune={**tune, "searches": [
        {"methods": ["fedprox"], "settings": {"mu": [0.001, 0.01]}}]})]  # fmt: skip
    assert len({name(), *others}) == 4


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seeds": [1, 7]}, "tune.seeds: 1 is a seed of the study; search on other seeds."),
        ({"clients": 4}, "tune.clients: 4 is not among the study's clients: 3."),
        ({"partition": "metis"}, "tune.partition: 'metis' is not in this study."),
        (
            {"searches": [{"methods": ["fedprox"], "settings": {"mu": [0.1, -1.0]}}]},
            "tune.searches[0].settings.mu: -1.0",
        ),
        ({"searches": [{"settings": {"mu": [0.1]}}]}, "tune.searches[0].settings: name the methods"),
        (
            {"searches": [{"training": {"lr": {"low": 1.0, "high": 0.1}}}]},
            "tune.searches[0].training.lr: low 1.0 is above",
        ),
        (
            {"searches": [{"training": {"lr": {"low": 0.0, "high": 0.1, "log": True}}}]},
            "tune.searches[0].training.lr: low 0.0 has no logarithm",
        ),
    ],
)
def test_problems_of_a_search_are_said_before_any_trial(tmp_path, changes, expected):
    with pytest.raises(ConfigError) as caught:
        load_study(write(tmp_path, tune={**STUDY["tune"], **changes}))
    assert any(f"small.yaml: {expected}" in problem for problem in caught.value.problems), caught.value.problems


def test_a_search_needs_validation_nodes(tmp_path):
    without = {"split": {"train": 0.5, "val": 0.0, "test": 0.5}}
    with pytest.raises(ConfigError, match=r"tune: protocol\.split\.val is 0"):
        load_study(write(tmp_path, protocol=without))
    with pytest.raises(ConfigError, match=r"tune: datasets\[0\]\.protocol\.split\.val is 0"):
        load_study(write(tmp_path, datasets=[{"name": "karate", "protocol": without}]))
    own = {"name": "karate", "protocol": {"split": {"train": 0.4, "val": 0.2, "test": 0.4}}}
    load_study(write(tmp_path, protocol=without, datasets=[own]))


def test_a_search_is_on_a_scheme_that_its_grid_has(tmp_path):
    partitions = ["dirichlet", {"name": "dirichlet", "alpha": 5.0, "label": "even"}]
    tune = {**STUDY["tune"], "partition": "dirichlet"}
    study = load_study(write(tmp_path, partitions=partitions, grids=[{"partitions": ["even"]}], tune=tune))
    assert plan_searches(study) == []  # "dirichlet" is the label of the other entry
    both = [{**entry, "label": label} for entry, label in (({"name": "dirichlet"}, "rough"), (partitions[1], "even"))]
    study = load_study(write(tmp_path, partitions=both, grids=[{"partitions": ["even"]}], tune=tune))
    assert {search.trial_study.partitions[0].label for search in plan_searches(study)} == {"even"}


def test_widths_that_a_method_states_are_not_searched(tmp_path):
    methods = ["fedavg", {"name": "fedavg", "label": "narrow", "training": {"hidden": 2}}]
    searches = [{"backbones": ["gcn"], "backbone_settings": {"hidden": [4, 8]}}]
    study = load_study(write(tmp_path, methods=methods, tune={**STUDY["tune"], "searches": searches}))
    assert [search.coordinates["method"] for search in plan_searches(study)] == ["fedavg"]


def test_lists_are_tried_out_and_the_best_setting_is_the_one_validation_prefers(tmp_path):
    tune = {**STUDY["tune"], "searches": [{"methods": ["fedavg"], "training": {"lr": [0.1, 0.000001]}}]}
    training = {"rounds": 10, "hidden": 16}
    (search,) = plan_searches(load_study(write(tmp_path, datasets=["digits"], tune=tune, training=training)))
    record = run_search(search, 9, VALUES, tmp_path / "results", tmp_path / "tune")
    assert record["trials"] == {"complete": 2}
    assert record["best"] == {"training.lr": 0.1}
    assert record["seeds"] == [100, 101]
    assert not list((tmp_path / "results" / "train").rglob("run.json"))
    (tmp_path / "tuned").mkdir()
    assert write_tuned([search], tmp_path / "tune", tmp_path / "tuned" / "found.yaml") == 1
    study = load_study(write(tmp_path, datasets=["digits"], tuned="found"))
    (override,) = study.overrides
    assert (override.datasets, override.methods, override.training) == (["digits"], ["fedavg"], {"lr": 0.1})


def test_what_is_trained_for_a_study_is_not_a_searchs_to_remove(tmp_path):
    tune = {**STUDY["tune"], "searches": [{"methods": ["fedavg"], "training": {"lr": [0.1]}}]}
    (search,) = plan_searches(load_study(write(tmp_path, tune=tune)))
    config = Config.model_validate({**search.trial({"training.lr": 0.1}).model_dump(), **VALUES})
    singles = [Single(config, cell, tmp_path / "results") for cell in expand(config).cells]
    for single in singles:
        run_single(single)
    kept = [single.seed_folder(stage) for single in singles for stage in ("train", "evaluate")]
    assert run_search(search, 1, VALUES, tmp_path / "results", tmp_path / "tune")["trials"] == {"complete": 1}
    assert all(folder.is_dir() for folder in kept)
    assert not list((tmp_path / "tune").rglob("run.json"))


def test_a_trial_below_the_median_of_whole_ones_gets_no_more_seeds(tmp_path):
    values = [0.1, 0.09, 0.08, 0.07, 0.06, 1e-7, 1e-8]
    tune = {**STUDY["tune"], "searches": [{"methods": ["fedavg"], "training": {"lr": values}}]}
    (search,) = plan_searches(load_study(write(tmp_path, datasets=["digits"], tune=tune)))
    record = run_search(search, 9, VALUES, tmp_path / "results", tmp_path / "tune")
    assert record["trials"] == {"complete": 5, "pruned": 2}
    assert record["best"]["training.lr"] in values[:5]


def test_settings_whose_trials_fail_are_given_up_and_the_others_tried(tmp_path, monkeypatch):
    """A trial that was killed is found RUNNING by the next process; one that runs out of memory is FAIL at once."""
    tried = []

    def run(single, **_):
        lr = single.cell.method.spec["training"]["lr"]
        tried.append((lr, single.cell.seed))
        state = "oom" if lr == 0.1 else "ok"
        folder = single.seed_folder("evaluate")
        folder.mkdir(parents=True, exist_ok=True)
        readings = {"val": {"round": 0, "train": {}, "val": {"accuracy": {"pooled": lr}}, "test": {}}}
        metrics = {"outcome": {"state": state, "reason": "no memory"}, "readings": readings}
        (folder / "metrics.json").write_text(json.dumps(metrics))
        if tried.count((0.01, 100)) in (1, 2) and lr == 0.01:
            raise KeyboardInterrupt
        return {"kept": False}

    monkeypatch.setattr(tuning, "run_single", run)
    tune = {**STUDY["tune"], "searches": [{"methods": ["fedavg"], "training": {"lr": [0.1, 0.01, 0.001]}}]}
    (search,) = plan_searches(load_study(write(tmp_path, tune=tune)))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_search(search, 9, VALUES, tmp_path / "results", tmp_path / "tune")
    record = run_search(search, 9, VALUES, tmp_path / "results", tmp_path / "tune")
    assert [lr for lr, seed in tried if seed == 100] == [0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001]
    assert record["trials"] == {"complete": 2, "fail": 5}
    assert record["best"] == {"training.lr": 0.01}


def test_settings_given_up_for_an_error_are_an_error_and_tried_again_by_the_next_command(tmp_path, monkeypatch, capsys):
    tried = []
    broken = {0.1}

    def run(single, **_):
        lr = single.cell.method.spec["training"]["lr"]
        tried.append(lr)
        outcome = {"state": "failed", "reason": "a bug"} if lr in broken else {"state": "ok", "reason": None}
        readings = {"val": {"round": 0, "train": {}, "val": {"accuracy": {"pooled": lr}}, "test": {}}}
        write_json(single.seed_folder("evaluate") / "metrics.json", {"outcome": outcome, "readings": readings})

    def tune(*options):
        tried.clear()
        status = main(["tune", str(path), "--device", "cpu", "--results", str(tmp_path / "results"), *options])
        (record,) = yaml.safe_load((tmp_path / "results" / "tune" / "small.yaml").read_text())["searches"]
        assert "failed" not in record
        return status, tried.count(0.1), record["best"]

    monkeypatch.setattr(tuning, "run_single", run)
    searches = [{"methods": ["fedavg"], "training": {"lr": [0.1, 0.01]}}]
    path = write(tmp_path, tune={**STUDY["tune"], "searches": searches})
    assert tune() == (1, 3, {"training.lr": 0.01})
    assert "settings that failed with an error: 1; run the same command to try them again" in capsys.readouterr().err
    assert tune("--failures", "keep") == (0, 0, {"training.lr": 0.01})
    assert tune() == (1, 3, {"training.lr": 0.01})
    broken.clear()
    assert tune() == (0, 2, {"training.lr": 0.1})  # two seeds
    assert tune() == (0, 0, {"training.lr": 0.1})


def test_settings_that_wait_from_a_killed_process_are_not_asked_for_twice(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    tune = {**STUDY["tune"], "searches": [{"methods": ["fedavg"], "training": {"lr": [0.1, 0.01, 0.001]}}]}
    (search,) = plan_searches(load_study(write(tmp_path, tune=tune)))
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(optuna.Study, "ask", killed)
        run_search(search, 9, VALUES, tmp_path / "results", tmp_path / "tune")
    record = run_search(search, 9, VALUES, tmp_path / "results", tmp_path / "tune")
    assert record["trials"] == {"complete": 3}


def test_the_mean_so_far_decides_whether_a_trial_gets_more_seeds():
    def whole(*means):
        return SimpleNamespace(state=SimpleNamespace(name="COMPLETE"), intermediate_values=dict(enumerate(means, 1)))

    others = [whole(0.8, 0.8), whole(0.7, 0.7), whole(0.6, 0.9), whole(0.9, 0.6)]
    assert not tuning.below_median(SimpleNamespace(trials=others), [0.1])  # too few to judge by
    others.append(whole(0.8, 0.8))
    assert tuning.below_median(SimpleNamespace(trials=[*others, whole()]), [0.9, 0.1])
    assert not tuning.below_median(SimpleNamespace(trials=others), [0.7, 0.9])


def test_a_command_without_a_result_fails_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "run_search", lambda *_: {"best": None})
    assert main(["tune", str(write(tmp_path)), "--device", "cpu", "--results", str(tmp_path / "results")]) == 1
    assert "no search found settings" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["tune", str(write(tmp_path)), "--trials", "-1"])


def test_settings_that_were_found_do_not_make_another_search(tmp_path):
    def slugs(**changes):
        return [search.slug for search in plan_searches(load_study(write(tmp_path, **changes)))]

    found = {"overrides": [{"methods": ["FedProx"], "settings": {"mu": 0.1}, "training": {"lr": 0.02}}]}
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "found.yaml").write_text(yaml.safe_dump(found))
    assert slugs(tuned="found") == slugs()
    found["overrides"][0]["training"]["weight_decay"] = 0.1
    (tmp_path / "tuned" / "found.yaml").write_text(yaml.safe_dump(found))
    assert slugs(tuned="found") != slugs()


def test_a_search_whose_record_is_shipped_is_not_run_again(tmp_path, monkeypatch):
    path = write(tmp_path, methods=STUDY["methods"][1:])
    search, other = plan_searches(load_study(path))
    found = tmp_path / "tuned" / "found.yaml"
    record = {**search.coordinates, "search": search.slug, "trials": {"complete": 3, "pruned": 1, "fail": 2}}
    record |= {"best_validation_accuracy": 0.5, "best": {"settings.mu": 0.1}}
    write_json(tmp_path / "folder" / f"{search.slug}.json", record)
    write_tuned([search], tmp_path / "folder", found)
    write(tmp_path, methods=STUDY["methods"][1:], tuned="found")

    def tried(results, *options):
        slugs = []
        monkeypatch.setattr(tuning, "_value", lambda trial, search, *_: slugs.append(search.slug) or 0.25)
        assert main(["tune", str(path), "--device", "cpu", "--results", str(tmp_path / results), *options]) == 0
        written = yaml.safe_load((tmp_path / results / "tune" / "small.yaml").read_text())
        return set(slugs), [known["best_validation_accuracy"] for known in written["searches"]]

    assert tried("enough") == ({other.slug}, [0.5, 0.25])
    assert tried("enough") == (set(), [0.5, 0.25])
    assert tried("more", "--trials", "5") == ({search.slug, other.slug}, [0.25, 0.25])
    write(tmp_path, methods=STUDY["methods"][1:], tuned="found", clients=[3, 4], tune={**STUDY["tune"], "clients": 4})
    assert len(tried("changed")[0]) == 2


def test_a_killed_search_goes_on_and_finishes_its_trials(tmp_path):
    path = write(tmp_path, datasets=["digits"], methods=[STUDY["methods"][1]])
    command = [
        sys.executable,
        "-m",
        "fglbench",
        "tune",
        str(path),
        "--device",
        "cpu",
        "--results",
        str(tmp_path / "results"),
    ]
    folder = tmp_path / "results" / "tune" / "small"

    def finished():
        return sum(text.count('"state":1') for text in (file.read_text() for file in folder.glob("*.journal")))

    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and finished() < 2:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(folder.glob("*.json"))
    (journal,) = folder.glob("*.journal")
    before = [line for line in journal.read_text().splitlines() if '"state":1' in line]
    assert 2 <= len(before) < 4
    with journal.open("a") as stream:
        stream.write('{"op_code": 5, "half')
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = (json.loads(file.read_text()) for file in folder.glob("*.json"))
    assert record["trials"]["complete"] == 4
    assert all(line in journal.read_text() for line in before)
    found = yaml.safe_load((tmp_path / "results" / "tune" / "small.yaml").read_text())
    assert found["overrides"][0]["methods"] == ["FedProx"]
    assert found["searches"] == [record]
