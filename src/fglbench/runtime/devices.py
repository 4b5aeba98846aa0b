"""Which card a training job uses: one job a card, or a set number, by locks that die with their job.

A job claims its card before torch is loaded and sees that one alone (`CUDA_VISIBLE_DEVICES`), so code never names a
device number. Snakemake's `--resources gpu=N` says how many jobs run at once; the locks say which card each of them
has, also between two workflows on one machine. The card that a scheduler gave to the job is left as it is; where it
gave several, jobs claim among these.
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
# Whatever TMPDIR says: jobs with folders for temporary files of their own must find each other's locks.
_LOCKS = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())


class DeviceError(FglbenchError):
    """No card where one was asked for."""


def list_devices(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The cards that this process may use, as `CUDA_VISIBLE_DEVICES` names them; asks nvidia-smi, never torch.

    A value of `CUDA_VISIBLE_DEVICES` that is set already restricts them, as CUDA reads it: by index or by the beginning
    of a UUID, up to the first that is no card. Parts of cards (MIG) are taken as they are named.
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
    found: list[str] = []
    for name in (name.strip() for name in allowed.split(",")):
        uuids = [uuid for index, uuid in cards.items() if name and (name == index or uuid.startswith(name))]
        if name.startswith("MIG-"):
            found.append(name)
        elif len(uuids) == 1:
            found.append(uuids[0])
        else:
            break
    return found


def given_by_scheduler(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a scheduler chose this job's cards, one or more."""
    return VARIABLE in environment and any(name in environment for name in _SCHEDULERS)


@contextmanager
def claimed_device(device: str, jobs_per_card: int = 1, folder: Path | None = None) -> Iterator[str | None]:
    """Claims a card for this process and makes it the only visible one; waits while all are taken.

    Args:
        device: "auto" (a card where there is one), "cuda" (a card or an error) or "cpu" (none is visible).
        jobs_per_card: how many jobs may hold one card; all cards get a first job before one gets a second.
        folder: where the locks are; all jobs of one machine and user must name the same.

    Yields:
        The card, or None on CPU or where a scheduler has chosen one.

    Raises:
        DeviceError: "cuda" without a card.
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
                f"device: cuda, but no card is visible to this job ({VARIABLE}={os.environ.get(VARIABLE)!r}, and "
                "nvidia-smi lists none of them). Set device: auto or cpu, or see what nvidia-smi says."
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
            print(f"all {len({card for card, _ in slots})} cards are taken; waiting for one", flush=True)
            told = True
        time.sleep(_POLL_S)
