"""The record of a trained seed: `run.json`, with the checksums of all files beside it. No torch is needed."""

from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from fglbench.errors import StorageError
from fglbench.records.base import Record
from fglbench.records.component_files import changes
from fglbench.storage import hash_file

RECORD = "run.json"
TRIED_AGAIN = ("failed", "oom", "timeout")
"""The outcomes that count as unfinished: a job that runs again tries them again."""

State = Literal["ok", "diverged", "oom", "timeout", "failed", "not_applicable", "not_run"]


class Outcome(BaseModel):
    """How a seed ended.

    Attributes:
        state: "ok", or what else became of it.
        round: the round in which it diverged, from 0.
        reason: for people; None where it is ok.
    """

    model_config = ConfigDict(frozen=True)

    state: State
    round: int | None = None
    reason: str | None = None


class Device(BaseModel):
    """What a seed was trained on.

    Attributes:
        type: "cpu" or "cuda".
        name: of the processor or card.
        card: the number of the card that the job claimed.
    """

    model_config = ConfigDict(frozen=True)

    type: str
    name: str
    card: str | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.name}"


class Machine(BaseModel):
    """What a seed was trained with, as far as it came.

    Attributes:
        device, threads, mode: see `stages.train.train`.
        versions: of torch, which only the process that trains has imported.
        chunk_clients: clients trained at once.
        clients: of the federation; not part of the record.
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
    """The content of `run.json`; keys that older records do not have are None, empty or zero.

    Attributes:
        cell, seed: the cell's id and the seed.
        settings: the specifications of the cell by part.
        outcome: how it ended.
        rounds_run, client_rounds: scored rounds, and in how many of them each client trained.
        phases: name, rounds and costs of each phase.
        selected_round: of the reading "val", from 0.
        train_seconds, eval_seconds: of training alone, and of evaluation.
        server_seconds: the server's part of training.
        total_seconds: of everything.
        peak_memory_mb: largest resident memory.
        bytes_up, bytes_down: sent by all clients, and to them.
        privacy_budget: epsilon of uploads under local differential privacy.
        host, cores, device, threads, mode, chunk_clients: where and how it was trained.
        split: checksum of the split.
        component_files: hashes of the user's component files; None where the record does not say.
        versions: of everything that can move a number.
        files: checksums of the files beside the record.
    """

    NAME = RECORD

    cell: str
    seed: int
    settings: dict[str, Any]
    outcome: Outcome
    rounds_run: int = 0
    client_rounds: list[int] = Field(default_factory=list)
    phases: list[dict[str, Any]] = Field(default_factory=list)
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
        """One line for people: rounds count from 1."""
        outcome = self.outcome
        if outcome.state != "ok":
            at = "" if outcome.round is None else f" in round {outcome.round + 1}"
            return f"{outcome.state}{at}: {outcome.reason}"
        assert self.selected_round is not None
        return f"ok, round {self.selected_round + 1} selected, trained in {self.train_seconds:.2f} s"

    def differences(self, mode: str, files: Mapping[str, str]) -> list[str]:
        """What is another now than when the record was made, one line each: mode, torch, the user's component files.

        Args:
            mode: "deterministic" or "fast", now.
            files: hashes of the user's component files, now.
        """
        now = (mode, version("torch"))
        then = (self.mode or mode, self.versions.get("torch", now[1]))
        words = "in mode {} with torch {}"
        other = [f"trained {words.format(*then)}, now {words.format(*now)}"] if then != now else []
        return other + changes(self.component_files, files)


def is_complete(
    folder: Path,
    cell: str,
    split: str | None,
    files: Mapping[str, str] | None = None,
    tried_again: Collection[str] = TRIED_AGAIN,
) -> bool:
    """Whether a run folder holds the finished record of this cell and every file that the record names, unaltered.

    A run that failed with an error, ran out of memory or reached its time limit counts as unfinished: it is tried
    again when its job runs again. Where the job runs only for what failed, the other two are finished.

    Args:
        folder: of the seed.
        cell: the cell's id.
        split: checksum of the split that it must have been trained on.
        files: hashes of the user's component files that it must have been trained with; None: any.
        tried_again: the outcomes that count as unfinished.
    """
    try:
        record = RunRecord.read(folder)
        return (
            record.cell == cell
            and record.split == split
            and record.outcome.state not in tried_again
            and not changes(record.component_files, files or {})
            and all(hash_file(folder / name) == digest for name, digest in record.files.items())
        )
    except (StorageError, OSError):
        return False


def failed_seeds(folder: Path, seeds: Iterable[int]) -> dict[str, str]:
    """The seeds that failed with an error, as "seed <k>", with the reason."""
    outcomes = {f"seed {seed}": RunRecord.read(folder / f"seed{seed}").outcome for seed in seeds}
    return {seed: outcome.reason or "" for seed, outcome in outcomes.items() if outcome.state == "failed"}
