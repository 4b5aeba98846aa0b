"""What failed in a job is noted beside its output, and the number of its next attempt follows from the note."""

from pathlib import Path

import pytest

from fglbench.records.run import Outcome, RunRecord, failed_seeds
from fglbench.stages.failures import FORCED, attempt_number, failed_in, failure_report, note, only_failed


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(FORCED, raising=False)
    return tmp_path / "fedavg" / "seeds-0-1.json"


def test_a_failure_makes_another_attempt_until_it_is_gone(output: Path):
    assert attempt_number(output, retry=True) == 0
    numbers = []
    for failed in ({"seed 1": "a bug"}, {"seed 1": "a bug"}, {}, {}):
        numbers.append(attempt_number(output, retry=True))
        note(output, numbers[-1], failed)
        assert failed_in(output) == failed
    # The last two are equal: Snakemake sees the params that it knows and has nothing to do.
    assert numbers == [0, 1, 2, 2]
    assert attempt_number(output, retry=True) == 2


def test_who_keeps_failures_has_the_attempt_that_is_known(output: Path):
    note(output, 3, {"seed 0": "a bug"})
    assert (attempt_number(output, retry=False), attempt_number(output, retry=True)) == (3, 4)


def test_a_job_without_failures_has_no_note(output: Path):
    note(output, 0, {"seed 0": "a bug"})
    note(output, 0, {})
    assert list(output.parent.iterdir()) == []


def test_a_damaged_note_is_none(output: Path):
    note(output, 3, {"seed 0": "a bug"})
    output.with_suffix(".failed").write_text("[]")
    assert (attempt_number(output, retry=True), failed_in(output)) == (0, {})


def test_a_job_that_runs_only_for_what_failed_knows_it_unless_it_is_forced(output: Path, monkeypatch):
    assert not only_failed(output, attempt_number(output, retry=True))
    note(output, 0, {"seed 0": "a bug"})
    assert only_failed(output, attempt_number(output, retry=True))
    assert not only_failed(output, attempt_number(output, retry=False))
    monkeypatch.setenv(FORCED, "1")
    assert not only_failed(output, attempt_number(output, retry=True))


def test_failures_are_told_with_their_reason_and_the_next_step(output: Path):
    assert failure_report([output]) is None
    note(output, 0, {f"seed {seed}": "a bug" for seed in range(7)})
    said = failure_report([output, output.with_name("seeds-7.json")])
    assert said.startswith(f"Failed with an error; all else is finished:\n  - {output.parent}, seed 0: a bug\n")
    assert "  - ... and 2 more\nThe same command tries them again." in said


def test_only_errors_are_failures_of_a_job(tmp_path: Path):
    for seed, state in enumerate(["ok", "failed", "oom", "timeout", "diverged", "not_applicable"]):
        outcome = Outcome(state=state, reason=f"it {state}")
        RunRecord(cell="", seed=seed, settings={}, outcome=outcome).write(tmp_path / f"seed{seed}")
    assert failed_seeds(tmp_path, range(6)) == {"seed 1": "it failed"}
