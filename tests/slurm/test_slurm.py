"""profiles/slurm against a real Slurm: options, cards, cancelled jobs, and the numbers of a local run."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from .cluster import Cluster, cluster, processes, why_not

ROOT = Path(__file__).parents[2]
PROFILE = ROOT / "profiles" / "slurm" / "config.yaml"
# It takes minutes and starts daemons, so it runs when it is asked for.
MISSING = why_not() if os.environ.get("FGLBENCH_TEST_SLURM") == "1" else "asked for by `make test-slurm` alone"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

# FedAvg that writes down what its process sees, after the claim of a card. Number 0 sleeps at its first go under Slurm
# until somebody cancels it. Where there is a folder `meeting`, every job waits in there, with its card, for a second
# one to come: two jobs meet whatever the machine's load, or never, where jobs run one after another.
PROBE = '''
"""FedAvg with a witness."""

import json
import os
import time
from pathlib import Path

from pydantic import Field

from fglbench.methods import fedavg
from fglbench.settings import ComponentSettings

VERSION = 1


class Settings(ComponentSettings):
    number: int = Field(0, description="Tells probes apart.")


class Method(fedavg.Method):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        if "SLURM_JOB_ID" not in os.environ:
            return
        folder = Path(os.environ["PROBES"])
        job = os.environ["SLURM_JOB_ID"]
        witness = {
            "number": self.settings.number,
            "job": job,
            "card": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "began": time.monotonic(),  # one clock for all processes of a machine, which nobody sets
        }
        meeting = folder / "meeting"
        if meeting.is_dir():
            if not (meeting / job).exists():
                (meeting / job).write_text(json.dumps(witness))
            end = time.monotonic() + 240
            while len(list(meeting.iterdir())) < 2 and time.monotonic() < end:
                time.sleep(0.1)
        if self.settings.number == 0 and not (folder / "stuck").exists():
            (folder / "stuck").write_text(job)
            time.sleep(900)
        time.sleep(2)
        witness["ended"] = time.monotonic()
        part = folder / f"{job}-{time.time_ns()}.part"
        part.write_text(json.dumps(witness))
        part.rename(part.with_suffix(".json"))
'''

STUDY = {
    "datasets": ["karate"],
    "partitions": ["louvain"],
    "clients": [3],
    "methods": ["local", *({"name": "probe", "number": number, "label": f"probe {number}"} for number in range(4))],
    "seeds": 2,
    "training": {"rounds": 3, "local_epochs": 1, "hidden": 8},
    "components": ["mine"],
}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def prepare(folder: Path, **changes: object) -> Path:
    """A folder with the study and its probe."""
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "probe.py").write_text(PROBE)
    (folder / "my.yaml").write_text(yaml.safe_dump({**STUDY, **changes}))
    (folder / "probes").mkdir()
    return folder


def profile(folder: Path, **variables: object) -> Path:
    """A copy of the shipped profile with other variables, as users make one, that looks at jobs more often."""
    text = PROFILE.read_text()
    for name, value in variables.items():
        text, found = re.subn(rf"^  {name}: .*$", f"  {name}: {value}", text, flags=re.M)
        assert found == 1, name
    text = text.replace("slurm-init-seconds-before-status-checks: 20", "slurm-init-seconds-before-status-checks: 3")
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    return folder


def start(folder: Path, *arguments: object, **environment: str) -> subprocess.Popen[bytes]:
    """Starts `snakemake` in a folder; what it prints goes to snakemake.log there."""
    command = [
        sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder,
        "--workflow-profile", ROOT / "profiles" / "default", "--configfile", folder / "my.yaml", *arguments,
    ]  # fmt: skip
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("FGLBENCH_", "MLFLOW_"))}
    clean |= {"OMP_NUM_THREADS": "1", "PROBES": str(folder / "probes"), **environment}
    with (folder / "snakemake.log").open("ab") as log:
        return subprocess.Popen([str(part) for part in command], cwd=folder, env=clean, stdout=log, stderr=log)


def finish(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Waits for Snakemake to end well; returns what it printed."""
    try:
        status = process.wait(timeout=600)
    finally:
        process.kill()
    output = (folder / "snakemake.log").read_text()
    assert status == 0, output
    return output


def wait(true: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    """Waits for something that a running Snakemake brings about."""
    end = time.monotonic() + 300
    while not true():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            pytest.fail((folder / "snakemake.log").read_text())
        time.sleep(0.5)


def wait_until_stuck(process: subprocess.Popen[bytes], folder: Path) -> str:
    """Waits for the job of probe 0 to sleep; returns its id."""
    stuck = folder / "probes" / "stuck"
    wait(lambda: stuck.exists() and stuck.read_text() != "", process, folder)
    return stuck.read_text()


def witnesses(folder: Path) -> list[dict]:
    return [json.loads(path.read_text()) for path in (folder / "probes").glob("*.json")]


def gpu_options(call: str) -> list[str]:
    return re.findall(r"--(?:gpus|gres)\S*", call)


@pytest.fixture(scope="module")
def ran(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The study run through the profile with --gpus; two training jobs met, and one was cancelled while it ran."""
    folder = prepare(tmp_path_factory.mktemp("gpus") / "study")
    (folder / "probes" / "meeting").mkdir()
    chosen = profile(folder.parent / "profile", partition="plain", gpu_partition="cards")
    process = start(folder, "--profile", chosen, **slurm.environment)
    stuck = wait_until_stuck(process, folder)
    (folder / "probes" / "cancelled").write_text(str(time.monotonic()))
    slurm.ask("scancel", stuck)
    return folder, finish(process, folder)


def test_training_asks_for_one_gpu_and_the_others_for_none(slurm: Cluster, ran: tuple[Path, str]):
    calls = slurm.calls()
    training = [call for call in calls if "rule_train_cell" in call]
    others = [call for call in calls if "rule_train_cell" not in call]
    assert len(training) == 6, calls  # five cells, one of them twice
    assert len(others) == 1, calls  # split and preprocess in one job; all else ran here
    for call in training:
        assert gpu_options(call) == ["--gpus=1"], call
        assert "-p cards" in call and "--cpus-per-task=1" in call, call
    for call in others:
        assert gpu_options(call) == [], call
        assert "-p plain" in call and "--mem 4000" in call and "-t 120" in call, call
    asked = slurm.ask("scontrol", "show", "job", witnesses(ran[0])[0]["job"])
    assert re.search(r"TresPerJob=gres:gpu:1\b", asked) and "Partition=cards" in asked, asked


def test_a_cancelled_job_is_tried_again_with_more_memory_and_time(slurm: Cluster, ran: tuple[Path, str]):
    folder, output = ran
    cancelled = (folder / "probes" / "stuck").read_text()
    assert re.search(rf"SLURM-job '{cancelled}' failed, SLURM status is: 'CANCELLED'", output), output
    asked = sorted(re.findall(r"-t (\d+) --mem (\d+)", "\n".join(c for c in slurm.calls() if "rule_train_cell" in c)))
    assert asked == [("120", "4000")] * 5 + [("240", "8000")]
    again = {witness["job"] for witness in witnesses(folder) if witness["number"] == 0}
    assert len(again) == 1 and cancelled not in again


def test_jobs_run_at_once_on_both_cards_and_no_two_share_one(ran: tuple[Path, str]):
    probes = ran[0] / "probes"
    jobs: dict[str, dict] = {}
    for seen in witnesses(ran[0]):  # two seeds of a job: one after the other, with one card
        job = jobs.setdefault(seen["job"], seen)
        assert job["card"] == seen["card"]
        job["began"], job["ended"] = min(job["began"], seen["began"]), max(job["ended"], seen["ended"])
    cancelled = (probes / "stuck").read_text()
    until = float((probes / "cancelled").read_text())
    jobs[cancelled] = {**json.loads((probes / "meeting" / cancelled).read_text()), "ended": until}
    assert len(jobs) == 4 + 1
    together = [
        (a, b) for a, b in combinations(jobs.values(), 2) if a["began"] < b["ended"] and b["began"] < a["ended"]
    ]
    assert together, jobs
    assert all(a["card"] != b["card"] for a, b in together), together
    assert {job["card"] for job in jobs.values()} == {"0", "1"}


def test_the_numbers_are_those_of_a_local_run(ran: tuple[Path, str], tmp_path: Path):
    local = prepare(tmp_path / "local")
    finish(start(local, "--cores", 2, "--resources", "gpu=2"), local)
    files = sorted(path.relative_to(local) for path in (local / "results").rglob("metrics.json"))
    assert len(files) == 5 * 2
    for path in files:
        assert (ran[0] / path).read_bytes() == (local / path).read_bytes(), path
    for kind in ("tables/grid/accuracy.csv", "report/grid.html", "tracking/grid.json"):
        assert (ran[0] / "results" / kind).stat().st_size > 0


@pytest.mark.parametrize(
    "option, wanted, card",
    [("gres", ["--gres=gpu:1"], {"0", "1"}), ("none", [], {None})],
)
def test_the_other_ways_to_ask_for_a_gpu(
    slurm: Cluster, tmp_path: Path, option: str, wanted: list[str], card: set[str | None]
):
    probe = {"name": "probe", "number": 1}
    device = "cpu" if option == "none" else "auto"
    folder = prepare(tmp_path / "study", methods=[probe], seeds=1, device=device)
    chosen = profile(tmp_path / "profile", gpu_option=option, gpu_extra="--nice=7")
    before = len(slurm.calls())
    finish(start(folder, "--profile", chosen, "train", **slurm.environment), folder)
    training = [call for call in slurm.calls()[before:] if "rule_train_cell" in call]
    assert len(training) == 1
    assert gpu_options(training[0]) == wanted
    assert "--nice=7" in training[0]
    assert {seen["card"] or None for seen in witnesses(folder)} <= card
    asked = slurm.ask("scontrol", "show", "job", witnesses(folder)[0]["job"])
    assert ("=gres:gpu:1" in asked) == bool(wanted), asked


def test_after_a_kill_of_snakemake_the_documented_commands_go_on(slurm: Cluster, tmp_path: Path):
    folder = prepare(tmp_path / "study", methods=[{"name": "probe", "number": 0}])
    chosen = profile(tmp_path / "profile")
    process = start(folder, "--profile", chosen, "train", **slurm.environment)
    job = wait_until_stuck(process, folder)
    process.kill()
    process.wait()
    finish(start(folder, "--unlock"), folder)
    # The job of the killed run still holds the cell; the one of the next run waits for it.
    process = start(folder, "--profile", chosen, "train", **slurm.environment)
    (run,) = re.findall(r"SLURM run ID: (\S+)", (folder / "snakemake.log").read_text())
    assert job in slurm.ask("squeue", "--noheader", "--format=%i", "--name", run)
    before = len(slurm.calls())
    wait(lambda: len(slurm.calls()) > before, process, folder)
    slurm.ask("scancel", "--name", run)
    finish(process, folder)
    seen = witnesses(folder)
    assert len(seen) == STUDY["seeds"]
    assert job not in {witness["job"] for witness in seen}


def test_an_unknown_way_is_refused(slurm: Cluster, tmp_path: Path):
    folder = prepare(tmp_path / "study")
    chosen = profile(tmp_path / "profile", gpu_option="both")
    process = start(folder, "--profile", chosen, "-n", **slurm.environment)
    assert process.wait(timeout=300) != 0
    assert "none of gpus, gres, none" in (folder / "snakemake.log").read_text()


def test_everything_that_was_started_is_stopped():
    with pytest.raises(RuntimeError, match="in the middle"), cluster() as running:
        conf = running.environment["SLURM_CONF"]
        subprocess.run(
            ["sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 300"],
            env=os.environ | running.environment, cwd="/", check=True, capture_output=True,
        )  # fmt: skip
        end = time.monotonic() + 120
        while not any("slurmstepd" in process.name() for process in processes(conf)):
            assert time.monotonic() < end, running.ask("scontrol", "show", "jobs")
            time.sleep(0.2)
        assert len(processes(conf)) >= 5  # of the daemons, and of the job
        raise RuntimeError("in the middle")
    assert not processes(conf)
    assert not Path(conf).parent.exists()
