"""Assignment of GPUs to training jobs: each job claims one GPU with a file lock that ends with the job.

A job claims its GPU before torch is loaded and sees only that one (`CUDA_VISIBLE_DEVICES`), so no code contains a
device number. By default a GPU serves one job; a larger number can be set. Snakemake's `--resources gpu=N` limits the
number of jobs at the same time; the locks decide which GPU each job uses, also between two workflows on one machine. If
a scheduler gave the job one GPU, the job uses it without a lock. If it gave several, jobs claim among these.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from fglbench.errors import FglbenchError

VARIABLE = "CUDA_VISIBLE_DEVICES"
_SCHEDULERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID")
_POLL_S = 0.2
# TMPDIR is ignored, because jobs with different temporary folders must find each other's locks.
_LOCKS = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())


class DeviceError(FglbenchError):
    """A GPU was requested, but none is available."""


def list_devices(environment: Mapping[str, str] = os.environ) -> list[str]:
    """List the GPUs that this process may use; it runs nvidia-smi and never loads torch.

    `CUDA_VISIBLE_DEVICES` restricts the list as it does for CUDA: entries are indices or the beginnings of UUIDs, and
    the first invalid entry ends the list. Entries that start with "MIG-" (parts of a GPU) are kept as they are.

    Args:
        environment: the environment variables.

    Returns:
        UUIDs of GPUs and names of MIG devices; empty if nvidia-smi is missing or fails.
    """
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout.splitlines()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    fields = [[field.strip() for field in line.split(",")] for line in listed]
    cards = {line[0]: line[1] for line in fields if len(line) == 2}
    allowed = environment.get(VARIABLE)
    if allowed is None:
        return list(cards.values())
    gpus: list[str] = []
    for name in (name.strip() for name in allowed.split(",")):
        uuids = [uuid for index, uuid in cards.items() if name and (name == index or uuid.startswith(name))]
        if name.startswith("MIG-"):
            gpus.append(name)
        elif len(uuids) == 1:
            gpus.append(uuids[0])
        else:
            break
    return gpus


def given_by_scheduler(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a scheduler, such as Slurm, chose the GPUs of this job.

    Args:
        environment: the environment variables.

    Returns:
        True if `CUDA_VISIBLE_DEVICES` and the job number of a scheduler are set.
    """
    return VARIABLE in environment and any(name in environment for name in _SCHEDULERS)


@contextmanager
def claimed_device(device: str, jobs_per_card: int = 1, folder: Path | None = None) -> Iterator[str | None]:
    """Claim a GPU for this process and make it the only visible one; wait while all are taken.

    Args:
        device: "auto" (a GPU if there is one), "cuda" (a GPU or an error) or "cpu" (no GPU is visible).
        jobs_per_card: how many jobs may share one GPU; every GPU gets its first job before any gets a second.
        folder: of the locks; all jobs of one user on a machine must use the same. None: a folder of the user in `/tmp`.

    Yields:
        The claimed GPU, as `list_devices` names it; None on the CPU, or if the scheduler chose the GPU.

    Raises:
        DeviceError: `device` is "cuda" and there is no GPU.
    """
    if device == "cpu":
        os.environ[VARIABLE] = ""
        yield None
        return
    given = given_by_scheduler()
    cards = [] if given and "," not in os.environ[VARIABLE] else list_devices()
    if given and len(cards) < 2:
        yield None
        return
    if not cards:
        if device == "cuda":
            raise DeviceError(
                f"device: cuda, but no GPU is visible to this job: {VARIABLE}={os.environ.get(VARIABLE)!r} selects "
                "none of those that nvidia-smi lists. Set device: auto or cpu, or run nvidia-smi to see the GPUs."
            )
        yield None
        return
    folder = folder or _LOCKS / f"fglbench-cards-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    slots = [(card, folder / f"{card}.{slot}.lock") for slot in range(jobs_per_card) for card in cards]
    lock, card = _first_free(slots)
    os.environ[VARIABLE] = card
    try:
        yield card
    finally:
        lock.release()


def _first_free(slots: list[tuple[str, Path]]) -> tuple[FileLock, str]:
    told = False
    while True:
        for card, path in slots:
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                continue
            return lock, card
        if not told:
            print(f"all {len({card for card, _ in slots})} GPUs are taken; waiting for one", flush=True)
            told = True
        time.sleep(_POLL_S)
