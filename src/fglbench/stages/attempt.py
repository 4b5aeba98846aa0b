"""One attempt to train one seed: from the files of preprocessing to the result of the training loop.

This module imports torch, so `stages.train` imports it only when a seed must be trained.
"""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch

from fglbench import registry
from fglbench.backbones.base import Backbone
from fglbench.engine.final import global_test, reading_logits
from fglbench.engine.loop import train
from fglbench.engine.record import Result
from fglbench.federation.chunks import clients_at_once
from fglbench.federation.federation import Federation
from fglbench.federation.schedule import LocalPrivacy, Schedule
from fglbench.methods.base import Method
from fglbench.records.run import Device, Machine, Outcome
from fglbench.records.specs import ResolvedMethod, Specs
from fglbench.runtime.devices import VARIABLE
from fglbench.runtime.memory import keep_freed_memory, memory_mb, parameters_mb
from fglbench.runtime.modes import set_mode
from fglbench.stages.options import Progress, TrainingOptions
from fglbench.stages.preprocess import load_federation, load_global_test
from fglbench.tasks import task_of
from fglbench.tasks.base import Task


@dataclass(frozen=True)
class ParameterSizes:
    """Sizes of the parameters of one client.

    Attributes:
        bytes: of all parameters together.
        widest: the largest last dimension of a parameter.
    """

    bytes: int
    widest: int

    @classmethod
    def of(cls, backbone: Backbone) -> Self:
        """Return the sizes of a backbone's parameters.

        Args:
            backbone: of the method.

        Returns:
            The sizes for one client.
        """
        initial = backbone.initial(torch.Generator()).values()
        return cls(
            sum(tensor.numel() * tensor.element_size() for tensor in initial),
            max((tensor.shape or (1,))[-1] for tensor in initial),
        )


def attempt(
    graph_folder: Path,
    preprocessed_folder: Path,
    specs: Specs,
    seed: int,
    options: TrainingOptions,
    progress: Progress | None,
    on_machine: Callable[[Machine], None],
) -> tuple[Result | None, Outcome]:
    """Train one seed.

    Args:
        graph_folder: result of download.
        preprocessed_folder: the seed's folder of preprocess.
        specs: the specifications of the cell.
        seed: the cell seed.
        options: how to train.
        progress: callback for the rounds; None: there is none.
        on_machine: called with new facts about the device and software, as soon as they are known.

    Returns:
        The result of the training loop, None if the loop did not start, and the outcome.
    """
    device = _device(options, on_machine)
    federation = load_federation(graph_folder, preprocessed_folder, specs["prepared"])
    spec, task = specs["method"], task_of(specs["method"])
    method = _method(spec, task, federation)
    if reason := _not_applicable(spec, task, method, federation):
        return None, Outcome(state="not_applicable", reason=reason)
    sizes = ParameterSizes.of(method.backbone)
    if specs["prepared"]["features"] == "identity" and (reason := _too_many_inputs(federation, sizes, device)):
        return None, Outcome(state="oom", reason=reason)
    chunk = options.chunk_clients or _clients_at_once(federation, task, method, sizes, options.memory_mb)
    on_machine(Machine(chunk_clients=chunk, clients=federation.num_clients))
    result = train(
        federation, method, task, _schedule(spec), seed, device=device, chunk_clients=chunk, on_round=progress
    )
    if result.state != "ok":
        reason = "a client's loss or logits are not finite, or the loss exploded"
        return result, Outcome(state="diverged", round=result.diverged_round, reason=reason)
    if spec.get("logits"):
        result.scores |= reading_logits(result, method.backbone, task, seed, device, chunk)
    if kind := spec.get("global_test"):
        whole = load_global_test(graph_folder, preprocessed_folder, specs["prepared"], kind)
        result.scores |= global_test(result, whole, method.backbone, task, seed, bool(spec.get("logits")), device)
    return result, Outcome(state="ok")


def _device(options: TrainingOptions, on_machine: Callable[[Machine], None]) -> torch.device:
    """Set threads, memory and mode of torch, report them, and return the device to train on."""
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    automatic = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(automatic if options.device == "auto" else options.device)
    set_mode(options.mode, device.type)
    on_cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if on_cuda else _processor()
    used = Device(type=device.type, name=name, card=os.environ.get(VARIABLE) if on_cuda else None)
    versions = {"torch": torch.__version__}
    on_machine(Machine(device=used, threads=options.threads, mode=options.mode, versions=versions))
    return device


def _method(spec: ResolvedMethod, task: Task, federation: Federation) -> Method:
    """Return the method of a cell, on its backbone."""
    name = spec["backbone"]["name"]
    settings = registry.declaration("backbone", name).settings(**spec["backbone"]["settings"])
    backbone = registry.module("backbone", name).Backbone(settings, federation.num_features, task.outputs(federation))
    settings = registry.declaration("method", spec["method"]).settings(**spec["settings"])
    method: Method = registry.module("method", spec["method"]).Method(settings, backbone, federation)
    return method


def _not_applicable(spec: ResolvedMethod, task: Task, method: Method, federation: Federation) -> str | None:
    """Return the reason why the method cannot be applied to this federation; None if it can."""
    if method.needs_classes and not task.predicts_classes:
        return f"{spec['method']} reads predictions as classes, which the task {spec['task']['name']} does not have"
    return task.not_applicable(federation) or method.not_applicable()


def _too_many_inputs(federation: Federation, sizes: ParameterSizes, device: torch.device) -> str | None:
    """Return the reason why parameters for one-hot ids do not fit into memory; None if they fit."""
    needed, available = parameters_mb(federation.num_clients, sizes.bytes), memory_mb(device)
    if needed <= available:
        return None
    return (
        f"features: identity has {federation.num_features} inputs, and parameters for them take {needed} MiB "
        f"of {available} MiB; take fewer clients or a smaller hidden width"
    )


def _schedule(spec: ResolvedMethod) -> Schedule:
    """Return the training schedule of a specification."""
    training = dict(spec["training"])
    if privacy := training.pop("ldp", None):
        training["ldp"] = LocalPrivacy(**privacy)
    return Schedule(**training, evaluate=spec["evaluate"], selection_mean=spec["mean"])


def _clients_at_once(
    federation: Federation, task: Task, method: Method, sizes: ParameterSizes, limit_mb: int | None
) -> int | None:
    """Return the number of clients to train at once; None: all of them."""
    backbone = method.backbone
    return clients_at_once(
        federation.scored,
        backbone.propagation,
        backbone.branches * sizes.widest,
        sizes.bytes,
        limit_mb,
        backbone.edge_values,
        method.added_rows,
        task.pair_bytes,
    )


def _processor() -> str:
    """Return the name of the processor, or its architecture if the system does not tell the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
