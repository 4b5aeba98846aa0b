"""Kills of running workflows, for tests and the soak benchmark: a job, Snakemake itself, or everything at once."""

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
    """One Snakemake on `my.yaml` in a folder; its processes are known by a variable in their environment."""

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
        """The process ids of everything that Snakemake started, also of what outlived it."""
        wanted = f"TOKEN_OF_TEST={self.token}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                # A process that ended but was not waited for has an empty environment.
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
        # Parents first: a training process that is killed before the job that looks after it looks out of memory.
        return sorted((pid for pid in found if pid != self.process.pid), key=_is_looked_after)

    def kill(self, what: str, choice: random.Random) -> bool:
        """`kill -9`; false where there was nothing of the kind."""
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
    """Whether a process only trains for a job, which records how it ends; killing it is an outcome, not a fault."""
    try:
        return b"_train_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
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
    """Gives one command again and again, killing at random moments, until it ends well.

    Args:
        folder: with `my.yaml`.
        choice: decides moments and victims.
        kills: at most; after them the command is left alone.
        pause_s: shortest and longest time between two kills.
        arguments: of Snakemake.
        after_each: called after every kill.

    Returns:
        The number of kills.

    Raises:
        RuntimeError: the command failed although nothing was killed while it ran.
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
