"""Kills of running workflows, for tests and the soak benchmark: one job, Snakemake, or all processes."""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("job", "snakemake", "machine")
_WEIGHTS = (6, 3, 2)


class Workflow:
    """One Snakemake process on `my.yaml` in a folder; a variable in the environment identifies its processes."""

    def __init__(self, folder: Path, *arguments: str):
        self.token = uuid.uuid4().hex
        command = [
            sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder),
            "--workflow-profile", str(ROOT / "profiles" / "default"), "--configfile", str(folder / "my.yaml"),
            *arguments,
        ]  # fmt: skip
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("FGLBENCH_", "MLFLOW_"))}
        self.log = folder / f"{self.token}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**kept, "OMP_NUM_THREADS": "1", "TOKEN_OF_TEST": self.token},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def jobs(self) -> list[int]:
        """Return the process ids of all jobs that Snakemake started, including jobs that outlived it."""
        wanted = f"TOKEN_OF_TEST={self.token}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                # A zombie process has an empty environment.
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        # Parents come first: a job that still runs would record its killed training process as out of memory.
        return sorted((pid for pid in found if pid != self.process.pid), key=_is_looked_after)

    def kill(self, what: str, choice: random.Random) -> bool:
        """Send SIGKILL to the chosen processes; return False if there was none."""
        jobs = self.jobs()
        if what == "job":
            own = [pid for pid in jobs if not _is_looked_after(pid)]
            victims = [choice.choice(own)] if own else []
        else:
            alive = [self.process.pid] if self.process.poll() is None else []
            victims = alive + (jobs if what == "machine" else [])
        killed = False
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
                killed = True
            except ProcessLookupError:
                continue
        if what != "job":
            self.process.wait()
        return killed

    def output(self) -> str:
        return self.log.read_text(errors="replace")


def _is_looked_after(pid: int) -> bool:
    """Return whether a job supervises this training process; killing such a process is an outcome, not a fault."""
    try:
        return b"train_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def run_with_kills(
    folder: Path,
    choice: random.Random,
    kills: int,
    pause_s: tuple[float, float],
    *arguments: str,
    after_each: Callable[[], None] = lambda: None,
) -> int:
    """Repeat one command, killed at random moments, until it succeeds.

    Args:
        folder: folder with `my.yaml`.
        choice: generator of moments and victims.
        kills: largest number of kills; afterwards the command runs undisturbed.
        pause_s: shortest and longest time between two kills, in seconds.
        arguments: arguments of Snakemake.
        after_each: called after every kill.

    Returns:
        The number of kills.

    Raises:
        RuntimeError: the command failed although no process was killed while it ran.
    """
    done = 0
    while True:
        workflow = Workflow(folder, *arguments)
        disturbed = False
        while workflow.process.poll() is None:
            deadline = time.monotonic() + choice.uniform(*pause_s)
            while workflow.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if done < kills and workflow.kill(choice.choices(TARGETS, _WEIGHTS)[0], choice):
                done += 1
                disturbed = True
                after_each()
        if workflow.process.returncode == 0:
            return done
        if not disturbed:
            raise RuntimeError(f"failed without a kill:\n{workflow.output()}")
