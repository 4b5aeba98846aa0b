"""Write the folder of a trained seed: history, predictions, checkpoint, mixing weights and `run.json`."""

import os
import platform
import resource
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fglbench import __version__
from fglbench.federation.schedule import LocalPrivacy
from fglbench.records.run import CHECKPOINT, HISTORY, MIXING, PREDICTIONS, Machine, Outcome, RunRecord
from fglbench.records.specs import Specs
from fglbench.storage import hash_file, replacing_directory, write_npz

if TYPE_CHECKING:
    from fglbench.engine.record import Result

_RECORDED = ("numpy", "scipy", "torch-geometric", "ogb", "pymetis", "python-louvain", "igraph", "networkx", "snakemake")


def write_run(
    folder: Path,
    specs: Specs,
    seed: int,
    cell: str,
    result: "Result | None",
    outcome: Outcome,
    machine: Machine,
    split: str | None,
    began: float,
    peak_memory_mb: float | None = None,
) -> RunRecord:
    """Write the folder of a seed, for any outcome.

    Args:
        folder: of the seed.
        specs: the specifications of the cell.
        seed: the cell seed.
        cell: the cell id.
        result: of the training loop; None if the loop did not end.
        outcome: how the seed ended.
        machine: what is known of the device, threads, mode and versions.
        split: checksum of the split; None if it is unknown.
        began: `time.perf_counter()` at the start of the seed.
        peak_memory_mb: largest resident memory in MiB, of another process; None: measure this process.

    Returns:
        The record, as stored in `run.json`.
    """
    with replacing_directory(folder) as temporary:
        if result is not None:
            write_npz(temporary / HISTORY, result.history)
        if result is not None and result.mixing:
            write_npz(temporary / MIXING, result.mixing)
        if result is not None and result.predictions:
            import numpy as np

            rounds = {f"{reading}_round": np.asarray(number) for reading, number in result.rounds.items()}
            weights = {f"{reading}_weights": weights for reading, weights in result.weights.items()}
            write_npz(temporary / PREDICTIONS, {**result.predictions, **rounds, **weights, **result.scores})
            _write_checkpoint(temporary / CHECKPOINT, result)
        record = RunRecord(
            cell=cell,
            seed=seed,
            settings=specs,
            outcome=outcome,
            rounds_run=len(result.history["round"]) if result else 0,
            client_rounds=_client_rounds(result),
            phases=result.phases if result else [],
            selected_round=result.rounds.get("val") if result else None,
            train_seconds=result.train_seconds if result else 0.0,
            eval_seconds=result.eval_seconds if result else 0.0,
            server_seconds=result.server_seconds if result else 0.0,
            total_seconds=time.perf_counter() - began,
            peak_memory_mb=peak_memory_mb or _peak_memory_mb(),
            bytes_up=_last(result, "bytes_up"),
            bytes_down=_last(result, "bytes_down"),
            privacy_budget=_privacy_budget(specs["method"]["training"], _last(result, "bytes_up")),
            host=platform.node(),
            cores=os.cpu_count(),
            device=machine.device,
            threads=machine.threads,
            mode=machine.mode,
            chunk_clients=machine.chunk_clients,
            split=split,
            component_files=machine.component_files,
            versions={**_versions(), **machine.versions},
            files={path.name: hash_file(path) for path in sorted(temporary.iterdir())},
        )
        record.write(temporary)
    return record


def _write_checkpoint(path: Path, result: "Result") -> None:
    """Write `selected/<name>` and `last/<name>`, [C, ...] each, and `server/<name>`, [...] each.

    If all clients have the same parameters, a tensor is [1, ...]. `server` holds the parameters that only the server
    trained.
    """
    from safetensors.torch import save_file

    tensors = {}
    for kept, reading in (("selected", "val"), ("last", "last")):
        for name, tensor in result.parameters.get(reading, {}).items():
            common = bool((tensor == tensor[:1]).all())
            tensors[f"{kept}/{name}"] = (tensor[:1] if common else tensor).detach().cpu().clone().contiguous()
    tensors |= {f"server/{name}": tensor.detach().cpu().contiguous() for name, tensor in result.server.items()}
    save_file(tensors, path)


def _privacy_budget(training: dict[str, Any], bytes_up: int) -> float | None:
    """Return epsilon of the uploaded parameters under local differential privacy.

    Return None if the training does not use it, or if no bytes were uploaded.
    """
    protection = training.get("ldp")
    return LocalPrivacy(**protection).budget if protection and bytes_up else None


def _client_rounds(result: "Result | None") -> list[int]:
    """Return, for each client, the number of scored rounds in which it trained."""
    return [] if result is None else (result.history["train_loss"] == result.history["train_loss"]).sum(0).tolist()


def _last(result: "Result | None", name: str) -> int:
    """Return the last value of a cumulative history array; 0 if there is none."""
    return int(result.history[name][-1]) if result is not None and len(result.history.get(name, ())) else 0


def _versions() -> dict[str, str]:
    """Return the versions of all software that can change a number, from download to evaluation."""
    known = {"fglbench": __version__, "python": platform.python_version()}
    for name in _RECORDED:
        with suppress(PackageNotFoundError):
            known[name] = version(name)
    return known


def _peak_memory_mb() -> float:
    """Return the largest resident memory of this process in MiB.

    Without /proc, the system's ru_maxrss is used, which includes the start of the process.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
