"""The plan of a workflow: what is wrong in the configuration and in all study files comes in one report."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fglbench.config.validation.reference import COLUMNS
from fglbench.errors import ConfigError
from fglbench.stages.failures import note
from fglbench.workflow.plan import Plan

VALUES: dict[str, Any] = {
    "datasets": ["karate"],
    "partitions": ["random"],
    "clients": [2],
    "methods": ["fedavg"],
    "seeds": 1,
}
CONTRADICTING = {"grids": [{}, {"training": {"lr": 0.5}}]}


@pytest.fixture
def studies(tmp_path: Path) -> Path:
    """A folder of study files, one of them sound, with printed numbers of one paper."""
    (tmp_path / "reference").mkdir()
    write_reference(tmp_path, {"table": "3", "value": "81.5"})
    write(tmp_path / "sound.yaml", reference="paper", tables=[table("3")])
    return tmp_path


def write_reference(studies: Path, row: dict[str, str]) -> None:
    with (studies / "reference" / "paper.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerow(row)


def write(path: Path, **changes: Any) -> None:
    path.write_text(yaml.safe_dump({**VALUES, **changes}))


def table(number: str) -> dict[str, Any]:
    return {"name": "t", "title": "T", "reference": {"table": number}}


def problems(studies: Path, **changes: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Plan({**VALUES, **changes}, "my.yaml", studies)
    return caught.value.problems


def test_problems_of_the_configuration_and_of_every_study_are_told_at_once(studies: Path) -> None:
    write(studies / "data.yaml")
    write(studies / "first.yaml", methods=["fedavgg"])
    write(studies / "second.yaml", **CONTRADICTING)
    write(studies / "third.yaml", reference="papr", clients=[0])
    (studies / "unreadable.yaml").write_text("a: [")
    found = problems(studies, datasets=["karatee"], reference="paper", tables=[table("4")])
    starts = [
        "my.yaml: datasets[0]: 'karatee' is not a dataset.",
        "my.yaml: tables[0].reference.table: '4' is not in paper.csv. Valid: 3.",
        f"{studies / 'data.yaml'}: 'data' cannot name a study",
        f"{studies / 'first.yaml'}: methods[0]: 'fedavgg' is not a method. Did you mean 'fedavg'?",
        f"{studies / 'second.yaml'}: grids: two grids train (karate, random, 2, fedavg, gcn, 0) with different",
        f"{studies / 'third.yaml'}: clients[0]: 0",
        f"{studies / 'third.yaml'}: reference: 'papr' is not a file of printed numbers. Did you mean 'paper'?",
        f"{studies / 'unreadable.yaml'}: cannot be read as YAML",
    ]
    assert len(found) == len(starts), found
    for problem, start in zip(found, starts, strict=True):
        assert problem.startswith(start)


def test_grids_of_the_configuration_that_contradict_each_other_are_said_to_be_there(studies: Path) -> None:
    (found,) = problems(studies, **CONTRADICTING)
    assert found.startswith("my.yaml: grids: two grids train")


def test_printed_numbers_of_other_nodes_are_told_before_anything_runs(studies: Path) -> None:
    write_reference(studies, {"table": "3", "metric": "accuracy", "eval": "client_avg", "value": "81.5"})
    (studies / "sound.yaml").unlink()
    (found,) = problems(studies, reference="paper", tables=[table("3")])
    assert "table '3' in paper.csv has no number for the split 'test'; its values of 'eval' are 'client_avg'." in found
    named = {**table("3"), "reference": {"table": "3", "where": {"eval": ["client_avg"]}}}
    assert Plan({**VALUES, "reference": "paper", "tables": [named]}, "my.yaml", studies)


def test_a_file_of_printed_numbers_in_another_form_is_told_before_anything_runs(studies: Path) -> None:
    (studies / "sound.yaml").unlink()
    path = studies / "reference" / "paper.csv"
    path.write_text(path.read_text().replace(",", ";"))
    (found,) = problems(studies, reference="paper", tables=[table("3")])
    assert f"reference: {path} lacks the column paper, table" in found and "separated by commas" in found
    path.write_bytes("table\né".encode("latin-1"))
    (found,) = problems(studies, reference="paper", tables=[table("3")])
    assert f"reference: {path} cannot be read as CSV" in found


def test_a_sound_plan_has_every_study(studies: Path) -> None:
    assert list(Plan(VALUES, "my.yaml", studies).studies) == ["grid", "sound"]


def test_what_the_command_line_gave_is_not_blamed_on_the_file(studies: Path) -> None:
    given = {"device": "gpu", "training": {"lr": -1.0}, "methods": ["fedavgg"]}
    values = {**VALUES, **given, "training": {"lr": -1.0, "rounds": 0}, "mode": "slow"}
    with pytest.raises(ConfigError) as caught:
        Plan(values, "my.yaml", studies, given=given)
    places = [": ".join(problem.split(": ")[:2]) for problem in caught.value.problems]
    assert sorted(places) == [
        "--config: device",
        "--config: methods[0]",
        "--config: training.lr",
        "my.yaml: mode",
        "my.yaml: training.rounds",
    ]


def test_what_forbids_downloads_is_named_as_well(studies: Path) -> None:
    values = {**VALUES, "data": {"download": False}}
    assert Plan(values, "my.yaml", studies).forbidden == "my.yaml: data.download: false"
    assert Plan(values, "my.yaml", studies, given=values).forbidden == "--config: data.download: false"


@pytest.mark.parametrize(
    ("changes", "number"),
    [({}, 3), ({"jobs": {"failures": "keep"}}, 2), ({"only_finished": True}, 2)],
)
def test_a_training_job_that_failed_has_another_attempt_unless_failures_are_kept(
    tmp_path: Path, studies: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], number: int
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan({**VALUES, **changes}, "my.yaml", studies)
    job = SimpleNamespace(dataset="karate", partition="p", method=plan.studies["grid"].cells[0].method.slug, seeds="0")
    output = Path(f"results/train/karate/p/{job.method}/seeds-0.json")
    note(output, 2, {"seed 0": "a bug"})
    plan.preprocessed_file(job)
    note(output, 8, {"seed 0": "a bug of this very run"})
    assert plan.attempt(job) == number
    assert plan.retried == (not changes)
