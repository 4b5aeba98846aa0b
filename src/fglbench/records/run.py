"""The record of a trained seed: `run.json`, with the checksums of all files beside it; it is read without torch."""

from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from fglbench.errors import StorageError
from fglbench.federation.costs import PhaseCosts
from fglbench.records.base import Record
from fglbench.records.component_files import changes
from fglbench.records.specs import Specs
from fglbench.storage import hash_file

RUN = "run.json"
HISTORY, MIXING, PREDICTIONS = "history.npz", "mixing.npz", "predictions.npz"
CHECKPOINT = "checkpoint.safetensors"
"""The files beside the record; a run that did not end normally may lack them."""
RETRIED = ("failed", "oom", "timeout")
"""The outcomes that count as unfinished: a job that runs again retries them."""

NOT_RUN: Final = "not_run"
"""The state of a seed without results, because its data or its partition is missing, or it was not trained."""

UNFINISHED: Final = "not finished"
"""The reason of a seed that only `only_finished` keeps from training."""

State = Literal["ok", "diverged", "oom", "timeout", "failed", "not_applicable", "not_run"]


class Outcome(BaseModel):
    """How a seed ended.

    Attributes:
        state: "ok", or another value of `State`.
        round: the round in which training diverged, from 0.
        reason: explanation for the user; None if the state is ok.
    """

    model_config = ConfigDict(frozen=True)

    state: State
    round: int | None = None
    reason: str | None = None


class Device(BaseModel):
    """The device that a seed was trained on.

    Attributes:
        type: "cpu" or "cuda".
        name: of the processor or GPU.
        card: the value of `CUDA_VISIBLE_DEVICES`, such as the UUID of the claimed GPU; None on a CPU, or if it was not
            set.
    """

    model_config = ConfigDict(frozen=True)

    type: str
    name: str
    card: str | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.name}"


class Machine(BaseModel):
    """What is known about the device and software that a seed was trained with; unknown values are None.

    Attributes:
        device: the device.
        threads: see `stages.options.TrainingOptions`.
        mode: see `stages.options.TrainingOptions`.
        versions: the version of torch, because only the process that trains has imported torch.
        chunk_clients: number of clients trained at once.
        clients: number of clients of the federation; not part of the record.
        component_files: hashes of the user's component files.
    """

    model_config = ConfigDict(frozen=True)

    device: Device | None = None
    threads: int | None = None
    mode: str | None = None
    versions: dict[str, str] = {}
    chunk_clients: int | None = None
    clients: int | None = None
    component_files: dict[str, str] | None = None


class RunRecord(Record):
    """Content of `run.json`; keys that older records lack are None, empty or zero.

    Attributes:
        cell: the cell's id.
        seed: the cell's seed.
        settings: the specifications of the cell by part.
        outcome: how the seed ended.
        rounds_run: number of scored rounds.
        client_rounds: for each client the number of these rounds in which it trained.
        phases: rounds and costs of each phase.
        selected_round: the round of the reading "val", from 0.
        train_seconds: time of training, without evaluation.
        eval_seconds: time of evaluation.
        server_seconds: the server's part of the training time.
        total_seconds: time of everything.
        peak_memory_mb: largest resident memory, in MiB.
        bytes_up: bytes that all clients sent.
        bytes_down: bytes that all clients received.
        privacy_budget: epsilon of uploads under local differential privacy.
        host: name of the machine.
        cores: number of processor cores of the machine.
        device: the device of training.
        threads: see `stages.options.TrainingOptions`.
        mode: see `stages.options.TrainingOptions`.
        chunk_clients: number of clients trained at once.
        split: checksum of the split.
        component_files: hashes of the user's component files; None: the record does not contain them.
        versions: of all packages that can change a number.
        files: checksums of the files beside the record.
    """

    NAME = RUN

    cell: str
    seed: int
    settings: Annotated[Specs, SkipValidation]
    outcome: Outcome
    rounds_run: int = 0
    client_rounds: list[int] = Field(default_factory=list)
    phases: Annotated[list[PhaseCosts], SkipValidation] = Field(default_factory=list)
    selected_round: int | None = None
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    server_seconds: float = 0.0
    total_seconds: float = 0.0
    peak_memory_mb: float = 0.0
    bytes_up: int | None = None
    bytes_down: int | None = None
    privacy_budget: float | None = None
    host: str | None = None
    cores: int | None = None
    device: Device | None = None
    threads: int | None = None
    mode: str | None = None
    chunk_clients: int | None = None
    split: str | None = None
    component_files: dict[str, str] | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)

    def __str__(self) -> str:
        """Return the outcome in one line for the user; rounds count from 1."""
        outcome = self.outcome
        if outcome.state != "ok":
            when = "" if outcome.round is None else f" in round {outcome.round + 1}"
            return f"{outcome.state}{when}: {outcome.reason}"
        assert self.selected_round is not None
        return f"ok, round {self.selected_round + 1} selected, trained in {self.train_seconds:.2f} s"

    def differences(self, mode: str, files: Mapping[str, str]) -> list[str]:
        """List what changed since the record was made: mode, version of torch, the user's component files.

        Args:
            mode: the current mode, "deterministic" or "fast".
            files: current hashes of the user's component files.

        Returns:
            One line per difference.
        """
        current = (mode, version("torch"))
        recorded = (self.mode or mode, self.versions.get("torch", current[1]))
        template = "in mode {} with torch {}"
        lines = []
        if recorded != current:
            lines.append(f"trained {template.format(*recorded)}, now {template.format(*current)}")
        return lines + changes(self.component_files, files)


def is_complete(
    folder: Path,
    cell: str,
    split: str | None,
    files: Mapping[str, str] | None = None,
    retried: Collection[str] = RETRIED,
) -> bool:
    """Return whether a run folder contains the complete record of a cell, and all files of the record unaltered.

    A run that failed with an error, ran out of memory or reached its time limit counts as unfinished by default, so a
    job that runs again retries it. A job that retries only failed runs passes a smaller `retried`; the other two
    then count as finished.

    Args:
        folder: of the seed.
        cell: the cell's id.
        split: checksum of the split that the run must have used; None only matches a record without one.
        files: hashes of the user's component files that the run must have used; None: any.
        retried: the outcomes that count as unfinished.

    Returns:
        False if the seed must be trained.
    """
    try:
        record = RunRecord.read(folder)
        return (
            record.cell == cell
            and record.split == split
            and record.outcome.state not in retried
            and not changes(record.component_files, files or {})
            and all(hash_file(folder / name) == digest for name, digest in record.files.items())
        )
    except (StorageError, OSError):
        return False


def failed_seeds(folder: Path, seeds: Iterable[int]) -> dict[str, str]:
    """Find the seeds that failed with an error.

    Args:
        folder: with one folder `seed<k>` for each seed.
        seeds: to look at.

    Returns:
        The reason by "seed <k>".
    """
    outcomes = {f"seed {seed}": RunRecord.read(folder / f"seed{seed}").outcome for seed in seeds}
    return {seed: outcome.reason or "" for seed, outcome in outcomes.items() if outcome.state == "failed"}
