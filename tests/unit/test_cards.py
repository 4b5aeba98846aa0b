"""Cards are given to one job each, by locks that die with their job; tested with a nvidia-smi of the test's own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fglbench.runtime.devices import VARIABLE, DeviceError, claimed_device, given_by_scheduler, list_devices

JOB = """
import os, sys, time
from pathlib import Path
from fglbench.runtime.devices import claimed_device
with claimed_device("auto", int(sys.argv[2]), Path(sys.argv[1])) as card:
    assert "torch" not in sys.modules
    began = time.time()
    time.sleep(float(sys.argv[3]))
    print(card, os.environ["CUDA_VISIBLE_DEVICES"], began, time.time(), flush=True)
"""


@pytest.fixture
def two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the cards GPU-a and GPU-b; the folder of their locks."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '0, GPU-a'\necho '1, GPU-b'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    for name in (VARIABLE, "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID"):
        # Set first, so that what the code sets is undone after the test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path / "locks"


def start(locks: Path, per_card: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", JOB, str(locks), str(per_card), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_cards_are_listed_and_restricted(two_cards, monkeypatch):
    assert list_devices() == ["GPU-a", "GPU-b"]
    assert list_devices({VARIABLE: "1"}) == ["GPU-b"]
    assert list_devices({VARIABLE: "GPU-b,0"}) == ["GPU-b", "GPU-a"]
    assert list_devices({VARIABLE: ""}) == []
    assert list_devices({VARIABLE: "0,-1,1"}) == ["GPU-a"]  # CUDA stops there
    assert list_devices({VARIABLE: "GPU-"}) == []  # which of the two is not said
    assert list_devices({VARIABLE: "MIG-1,GPU-b"}) == ["MIG-1", "GPU-b"]
    program = two_cards.parent / "bin" / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'No devices were found'\necho '0, GPU-a'\n")
    assert list_devices() == ["GPU-a"]
    monkeypatch.setenv("PATH", "/nowhere")
    assert list_devices() == []


@pytest.mark.parametrize(("per_card", "jobs"), [(1, 5), (2, 7)])
def test_no_card_is_held_by_more_jobs_than_allowed_and_all_are_used(two_cards, per_card, jobs):
    running = [start(two_cards, per_card, 0.5) for _ in range(jobs)]
    spans = []
    for job in running:
        out, _ = job.communicate(timeout=120)
        assert job.returncode == 0
        card, seen, began, ended = out.splitlines()[-1].split()
        assert card == seen
        spans.append((card, float(began), float(ended)))
    assert {card for card, _, _ in spans} == {"GPU-a", "GPU-b"}
    for card, began, _ in spans:
        assert sum(other == card and b <= began < e for other, b, e in spans) <= per_card


def test_a_killed_job_frees_its_card(two_cards, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    first = start(two_cards, 1, 600)
    deadline = time.time() + 60
    while not list(two_cards.glob("*.lock")) and time.time() < deadline:
        time.sleep(0.05)
    second = start(two_cards, 1, 0)
    assert second.stdout is not None
    assert "waiting for one" in second.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.wait()
    out, _ = second.communicate(timeout=60)
    assert out.split()[0] == "GPU-a"


def test_a_schedulers_choice_is_left_alone(two_cards, monkeypatch):
    monkeypatch.setenv(VARIABLE, "7")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    assert given_by_scheduler()
    with claimed_device("cuda", folder=two_cards) as card:
        assert card is None
        assert os.environ[VARIABLE] == "7"
    assert not two_cards.exists()


def test_of_several_cards_from_a_scheduler_each_job_sees_one(two_cards, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0,1")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    running = [start(two_cards, 1, 2.0) for _ in range(2)]
    seen = {job.communicate(timeout=120)[0].split()[1] for job in running}
    assert seen == {"GPU-a", "GPU-b"}


def test_locks_are_where_all_jobs_of_a_machine_look(two_cards, monkeypatch):
    """Also those whose scheduler gives each a folder of its own for temporary files."""
    asked = "from fglbench.runtime.devices import _LOCKS; print(_LOCKS)"
    seen = set()
    for name in ("one", "two"):
        monkeypatch.setenv("TMPDIR", str(two_cards.parent / name))
        seen.add(subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout)
    assert len(seen) == 1


def test_cpu_sees_no_card(two_cards):
    with claimed_device("cpu", folder=two_cards) as card:
        assert card is None
        assert os.environ[VARIABLE] == ""


def test_without_a_card_auto_goes_on_and_cuda_says_what_to_do(two_cards, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with claimed_device("auto", folder=two_cards) as card:
        assert card is None
    with pytest.raises(DeviceError, match="Set device: auto or cpu"), claimed_device("cuda", folder=two_cards):
        pass
