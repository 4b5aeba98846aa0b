"""The record of a trained seed: its folder's `run.json` with checksums of all files beside it. No torch is needed."""

import os
import platform
import resource
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fglbench import __version__
from fglbench.errors import StorageError
from fglbench.federation.schedule import LocalPrivacy
from fglbench.records.component_files import KEY, changes
from fglbench.storage import hash_file, read_json, replacing_directory, write_json, write_npz

if TYPE_CHECKING:
    from fglbench.engine.record import Result

RECORD = "run.json"
TRIED_AGAIN = ("failed", "oom", "timeout")
"""The outcomes that count as unfinished: a job that runs again tries them again."""

_RECORDED = ("numpy", "scipy", "torch-geometric", "ogb", "pymetis", "python-louvain", "igraph", "networkx", "snakemake")


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
        record = read_json(folder / RECORD)
        return (
            record["cell"] == cell
            and record["split"] == split
            and record["outcome"]["state"] not in tried_again
            and not changes(record, files or {})
            and all(hash_file(folder / name) == digest for name, digest in record["files"].items())
        )
    except (StorageError, OSError, KeyError, TypeError, AttributeError):
        return False


def failed_seeds(folder: Path, seeds: Iterable[int]) -> dict[str, str]:
    """The seeds that failed with an error, as "seed <k>", with the reason."""
    outcomes = {f"seed {seed}": read_json(folder / f"seed{seed}" / RECORD)["outcome"] for seed in seeds}
    return {seed: outcome["reason"] for seed, outcome in outcomes.items() if outcome["state"] == "failed"}


def describe(record: dict[str, Any]) -> str:
    """One line about a finished run, for people: its rounds count from 1."""
    outcome = record["outcome"]
    if outcome["state"] != "ok":
        at = "" if outcome["round"] is None else f" in round {outcome['round'] + 1}"
        return f"{outcome['state']}{at}: {outcome['reason']}"
    return f"ok, round {record['selected_round'] + 1} selected, trained in {record['train_seconds']:.2f} s"


def differences(record: Mapping[str, Any], mode: str, files: Mapping[str, str]) -> list[str]:
    """What is another now than when a kept record was made, one line each: mode, torch, the user's component files.

    Args:
        record: what `run.json` holds.
        mode: "deterministic" or "fast", now.
        files: hashes of the user's component files, now.
    """
    now = (mode, version("torch"))
    then = (record.get("mode") or mode, record.get("versions", {}).get("torch", now[1]))
    words = "in mode {} with torch {}"
    other = [f"trained {words.format(*then)}, now {words.format(*now)}"] if then != now else []
    return other + changes(record, files)


def write_record(
    folder: Path,
    specs: dict[str, Any],
    seed: int,
    cell: str,
    result: "Result | None",
    outcome: dict[str, Any],
    machine: dict[str, Any],
    began: float,
) -> dict[str, Any]:
    """Writes the folder of a seed, whatever its outcome.

    Args:
        folder: of the seed.
        specs: see `stages.train.train`.
        seed, cell: the seed and its cell's id.
        result: of the training loop; None where it did not end.
        outcome: `state`, `round` and `reason`.
        machine: `split` (checksum), and as far as known `device`, `threads`, `mode`, `chunk_clients` and
            `versions`, and `component_files`; `peak_memory_mb` where it is another process' than this one's.
        began: `time.perf_counter()` at the seed's start.

    Returns:
        What `run.json` holds.
    """
    with replacing_directory(folder) as temporary:
        if result is not None:
            write_npz(temporary / "history.npz", result.history)
        if result is not None and result.mixing:
            write_npz(temporary / "mixing.npz", result.mixing)
        if result is not None and result.predictions:
            import numpy as np

            rounds = {f"{reading}_round": np.asarray(number) for reading, number in result.rounds.items()}
            weights = {f"{reading}_weights": own for reading, own in result.weights.items()}
            write_npz(temporary / "predictions.npz", {**result.predictions, **rounds, **weights, **result.scores})
            _write_checkpoint(temporary / "checkpoint.safetensors", result)
        record = {
            "cell": cell,
            "seed": seed,
            "settings": specs,
            "outcome": outcome,
            "rounds_run": len(result.history["round"]) if result else 0,
            "client_rounds": _client_rounds(result),
            "phases": result.phases if result else [],
            "selected_round": result.rounds.get("val") if result else None,
            "train_seconds": result.train_seconds if result else 0.0,
            "eval_seconds": result.eval_seconds if result else 0.0,
            "server_seconds": result.server_seconds if result else 0.0,
            "total_seconds": time.perf_counter() - began,
            "peak_memory_mb": machine.get("peak_memory_mb") or _peak_memory_mb(),
            "bytes_up": _last(result, "bytes_up"),
            "bytes_down": _last(result, "bytes_down"),
            "privacy_budget": _privacy_budget(specs["method"]["training"], _last(result, "bytes_up")),
            "host": platform.node(),
            "cores": os.cpu_count(),
            "device": machine.get("device"),
            "threads": machine.get("threads"),
            "mode": machine.get("mode"),
            "chunk_clients": machine.get("chunk_clients"),
            "split": machine["split"],
            KEY: machine.get(KEY),
            "versions": {**_versions(), **machine.get("versions", {})},
            "files": {path.name: hash_file(path) for path in sorted(temporary.iterdir())},
        }
        write_json(temporary / RECORD, record)
    return record


def _write_checkpoint(path: Path, result: "Result") -> None:
    """`selected/<name>` and `last/<name>`, [C, ...] each, or [1, ...] where all clients hold the same; and
    `server/<name>`, [...], of what the server alone trained."""
    from safetensors.torch import save_file

    tensors = {}
    for kept, reading in (("selected", "val"), ("last", "last")):
        for name, tensor in result.parameters.get(reading, {}).items():
            common = bool((tensor == tensor[:1]).all())
            tensors[f"{kept}/{name}"] = (tensor[:1] if common else tensor).detach().cpu().clone().contiguous()
    tensors |= {f"server/{name}": tensor.detach().cpu().contiguous() for name, tensor in result.server.items()}
    save_file(tensors, path)


def _privacy_budget(training: dict[str, Any], bytes_up: int) -> float | None:
    """epsilon of uploaded parameters under local differential privacy; None without it, and where nothing was sent."""
    protection = training.get("ldp")
    return LocalPrivacy(**protection).budget if protection and bytes_up else None


def _client_rounds(result: "Result | None") -> list[int]:
    """How many of the scored rounds each client trained in."""
    return [] if result is None else (result.history["train_loss"] == result.history["train_loss"]).sum(0).tolist()


def _last(result: "Result | None", name: str) -> int:
    return int(result.history[name][-1]) if result is not None and len(result.history.get(name, ())) else 0


def _versions() -> dict[str, str]:
    """Of everything that can move a number, from download to evaluation."""
    known = {"fglbench": __version__, "python": platform.python_version()}
    for name in _RECORDED:
        with suppress(PackageNotFoundError):
            known[name] = version(name)
    return known


def _peak_memory_mb() -> float:
    """Largest resident memory of this process; of its start as well where the system tells only that (ru_maxrss)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
