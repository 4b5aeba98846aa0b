"""Stage train: one cell to its checkpoint, history, predictions and record; several seeds may share the process.

A seed whose record is complete and matches its checksums is kept, so that a job that was killed loses at most the seed
it was training. Torch is imported only when there is something to train.
"""

import os
import platform
import resource
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fglbench import __version__, registry
from fglbench.cards import VARIABLE
from fglbench.errors import StorageError
from fglbench.stages.preprocess import FILE, split_of
from fglbench.storage import exclusive, hash_file, read_json, replacing_directory, write_json, write_npz

if TYPE_CHECKING:
    from fglbench.federation.record import Result

Progress = Callable[[int, float, float], None]

RECORD = "run.json"
_RECORDED = ("numpy", "scipy", "torch-geometric", "ogb", "pymetis", "python-louvain", "igraph", "networkx", "snakemake")
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "defaultcpuallocator", "cublas_status_alloc_failed")


def is_complete(folder: Path, cell: str, split: str | None) -> bool:
    """Whether a run folder holds the finished record of this cell and every file that the record names, unaltered.

    A run that failed with an error or ran out of memory counts as unfinished: when its job runs again (`snakemake
    --forcerun train_cell`), it is tried again.

    Args:
        folder: of the seed.
        cell: the cell's id.
        split: checksum of the split that it must have been trained on.
    """
    try:
        record = read_json(folder / RECORD)
        return (
            record["cell"] == cell
            and record["split"] == split
            and record["outcome"]["state"] not in ("failed", "oom")
            and all(hash_file(folder / name) == digest for name, digest in record["files"].items())
        )
    except (StorageError, OSError, KeyError):
        return False


def train(
    graph_folder: Path,
    prepared_folder: Path,
    specs: dict[str, Any],
    cells: dict[int, str],
    folder: Path,
    *,
    device: str = "auto",
    threads: int = 1,
    chunk_clients: int | None = None,
    memory_mb: int | None = None,
    progress: Callable[[int], Progress | None] = lambda seed: None,
) -> None:
    """Trains the seeds of a cell that are not there yet, each into `folder/seed<k>`.

    Args:
        graph_folder, prepared_folder: results of download and preprocess.
        specs: the specifications `dataset`, `partition`, `prepared` and `method` (see `config.identity`).
        cells: the cell id of each seed.
        folder: where to write.
        device: "auto", "cpu" or "cuda".
        threads: of torch.
        chunk_clients, memory_mb: clients at once, or the memory that decides it; neither changes a number.
        progress: gives the callback of a seed's rounds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for seed, cell in cells.items():
        # Two studies may ask for the same cell at the same time; the second waits and finds it done.
        with exclusive(folder / f"seed{seed}"):
            if is_complete(folder / f"seed{seed}", cell, split_of(prepared_folder / f"seed{seed}" / FILE)):
                print(f"seed {seed}: done already, kept", flush=True)
                continue
            settings = {"device": device, "threads": threads, "chunk_clients": chunk_clients, "memory_mb": memory_mb}
            record = train_seed(
                graph_folder,
                prepared_folder / f"seed{seed}",
                specs,
                seed,
                cell,
                folder / f"seed{seed}",
                settings,
                progress(seed),
            )
            print(f"seed {seed}: {describe(record)}", flush=True)


def describe(record: dict[str, Any]) -> str:
    """One line about a finished run."""
    outcome = record["outcome"]
    if outcome["state"] != "ok":
        return f"{outcome['state']} (round {outcome['round']}): {outcome['reason']}"
    return f"ok, round {record['selected_round']} selected, trained in {record['train_seconds']:.2f} s"


def train_seed(
    graph_folder: Path,
    prepared_folder: Path,
    specs: dict[str, Any],
    seed: int,
    cell: str,
    folder: Path,
    settings: dict[str, Any],
    progress: Progress | None,
) -> dict[str, Any]:
    """Trains one seed and writes its folder whatever the outcome; returns the record."""
    began = time.perf_counter()
    result: Result | None = None
    outcome: dict[str, Any] = {"state": "ok", "round": None, "reason": None}
    machine: dict[str, Any] = {}
    try:
        result, outcome, machine = _run(graph_folder, prepared_folder, specs, seed, settings, progress)
    except Exception as error:  # every error is an outcome of this cell; the other cells go on
        traceback.print_exc()
        state = "oom" if _is_out_of_memory(error) else "failed"
        outcome |= {"state": state, "reason": f"{type(error).__name__}: {error}"[:500]}
    machine["split"] = split_of(prepared_folder / FILE)
    return _write(folder, specs, seed, cell, result, outcome, machine, began)


def _run(
    graph_folder: Path,
    prepared_folder: Path,
    specs: dict[str, Any],
    seed: int,
    settings: dict[str, Any],
    progress: Progress | None,
) -> "tuple[Result | None, dict[str, Any], dict[str, Any]]":
    import torch

    from fglbench.federation.chunks import clients_at_once
    from fglbench.federation.final import global_test, reading_logits
    from fglbench.federation.loop import train
    from fglbench.federation.memory import keep_freed_memory
    from fglbench.federation.schedule import Schedule
    from fglbench.stages.preprocess import load_federation, load_global_test

    torch.set_num_threads(settings["threads"])
    keep_freed_memory()
    device = torch.device(
        ("cuda" if torch.cuda.is_available() else "cpu") if settings["device"] == "auto" else settings["device"]
    )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    card = os.environ.get(VARIABLE) if device.type == "cuda" else None
    machine = {
        "device": {"type": device.type, "name": name, "card": card},
        "threads": settings["threads"],
        "versions": {"torch": torch.__version__},
    }
    federation = load_federation(graph_folder, prepared_folder, specs["prepared"])
    spec = specs["method"]
    backbone_module = registry.module("backbone", spec["backbone"]["name"])
    backbone_settings = registry.declaration("backbone", spec["backbone"]["name"]).settings
    backbone = backbone_module.Backbone(
        backbone_settings(**spec["backbone"]["settings"]), federation.features.shape[1], federation.classes
    )
    method_settings = registry.declaration("method", spec["method"]).settings(**spec["settings"])
    method = registry.module("method", spec["method"]).Method(method_settings, backbone, federation)
    if reason := method.not_applicable():
        return None, {"state": "not_applicable", "round": None, "reason": reason}, machine
    schedule = Schedule(**spec["training"], evaluate=spec["evaluate"], selection_mean=spec["mean"])
    initial = backbone.initial(torch.Generator())
    chunk = settings["chunk_clients"] or clients_at_once(
        federation,
        max(tensor.shape[-1] for tensor in initial.values()),
        sum(tensor.numel() * tensor.element_size() for tensor in initial.values()),
        settings["memory_mb"],
    )
    machine["chunk_clients"] = chunk
    result = train(federation, backbone, method, schedule, seed, device=device, chunk_clients=chunk, on_round=progress)
    if result.state == "ok":
        if spec.get("logits"):
            result.scores |= reading_logits(result, federation, backbone, device, chunk)
        if kind := spec.get("global_test"):
            tested = load_global_test(graph_folder, prepared_folder, specs["prepared"], kind)
            result.scores |= global_test(result, tested, backbone, bool(spec.get("logits")), device)
    reason = None if result.state == "ok" else "a client's loss or logits are not finite, or the loss exploded"
    return result, {"state": result.state, "round": result.diverged_round, "reason": reason}, machine


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in _OUT_OF_MEMORY)


def _write(
    folder: Path,
    specs: dict[str, Any],
    seed: int,
    cell: str,
    result: "Result | None",
    outcome: dict[str, Any],
    machine: dict[str, Any],
    began: float,
) -> dict[str, Any]:
    with replacing_directory(folder) as temporary:
        if result is not None:
            write_npz(temporary / "history.npz", result.history)
        if result is not None and result.mixing:
            write_npz(temporary / "mixing.npz", result.mixing)
        if result is not None and result.predictions:
            import numpy as np

            rounds = {f"{reading}_round": np.asarray(number) for reading, number in result.rounds.items()}
            write_npz(temporary / "predictions.npz", {**result.predictions, **rounds, **result.scores})
            _write_checkpoint(temporary / "checkpoint.safetensors", result)
        record = {
            "cell": cell,
            "seed": seed,
            "settings": specs,
            "outcome": outcome,
            "rounds_run": len(result.history["round"]) if result else 0,
            "selected_round": result.rounds.get("val") if result else None,
            "train_seconds": result.train_seconds if result else 0.0,
            "eval_seconds": result.eval_seconds if result else 0.0,
            "total_seconds": time.perf_counter() - began,
            "peak_memory_mb": _peak_memory_mb(),
            "bytes_up": _last(result, "bytes_up"),
            "bytes_down": _last(result, "bytes_down"),
            "host": platform.node(),
            "cores": os.cpu_count(),
            "device": machine.get("device"),
            "threads": machine.get("threads"),
            "chunk_clients": machine.get("chunk_clients"),
            "split": machine["split"],
            "versions": {**_versions(), **machine.get("versions", {})},
            "files": {path.name: hash_file(path) for path in sorted(temporary.iterdir())},
        }
        write_json(temporary / RECORD, record)
    return record


def _write_checkpoint(path: Path, result: "Result") -> None:
    """`selected/<name>` and `last/<name>`, [C, ...] each, or [1, ...] where all clients hold the same."""
    from safetensors.torch import save_file

    tensors = {}
    for kept, reading in (("selected", "val"), ("last", "last")):
        for name, tensor in result.parameters.get(reading, {}).items():
            common = bool((tensor == tensor[:1]).all())
            tensors[f"{kept}/{name}"] = (tensor[:1] if common else tensor).detach().cpu().clone().contiguous()
    save_file(tensors, path)


def _last(result: "Result | None", name: str) -> int:
    return int(result.history[name][-1]) if result is not None and len(result.history[name]) else 0


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


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
