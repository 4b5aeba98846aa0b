"""What a training has in all its phases, and what they hand on to each other."""

from dataclasses import dataclass

import torch

from fglbench.backbones.base import Backbone
from fglbench.engine.batches import batches_of
from fglbench.engine.evaluation import Evaluator
from fglbench.engine.privacy import Noise
from fglbench.federation import parameters as stacked
from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters
from fglbench.federation.schedule import Schedule
from fglbench.methods.base import Method
from fglbench.seeding import derive, torch_stream
from fglbench.tasks.base import Task


@dataclass(frozen=True)
class Setup:
    """What is trained, and how: the same in every phase.

    Attributes:
        backbone, method, task, schedule, seed: of the cell.
        clients: number of clients C.
        chunk_clients: clients trained at once; None for all.
        device: where tensors live.
    """

    backbone: Backbone
    method: Method
    task: Task
    schedule: Schedule
    seed: int
    clients: int
    chunk_clients: int | None
    device: torch.device

    @property
    def at_once(self) -> int:
        return self.chunk_clients or self.clients

    def synchronise(self) -> None:
        """Waits for the device, so that a clock may be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class State:
    """What rounds change and phases hand on.

    Attributes:
        federation: the graphs of training.
        current: [C, ...] parameters and buffers of the clients.
        trained: those of `current` that gradients train, by name.
        batches: of local steps; their random streams go on from phase to phase.
        streams: of each client's dropout.
        noise: what protects uploads, if anything.
        scorer: predicts on the graphs that are scored.
        logits: computes what a method may see, of the graphs of training.
    """

    def __init__(self, setup: Setup, federation: Federation):
        self._setup = setup
        start = setup.method.initial(
            setup.backbone.initial(torch_stream(setup.seed, "initialisation")),
            torch_stream(setup.seed, "method initialisation"),
        )
        self.trained = list(start)
        self.current = self.stacked(start | setup.backbone.buffers(torch_stream(setup.seed, "buffers")))
        self.batches = batches_of(setup.backbone, setup.schedule.batch_size, setup.seed, setup.clients, setup.device)
        self.streams = [
            torch.Generator(setup.device).manual_seed(derive(setup.seed, "dropout", client))
            for client in range(setup.clients)
        ]
        protection = setup.schedule.ldp
        self.noise = Noise(protection, setup.clients, setup.seed, setup.device) if protection else None
        self.use(federation)

    def stacked(self, start: Parameters) -> Parameters:
        """Every client's start, on the device."""
        return {
            name: tensor.to(self._setup.device) for name, tensor in stacked.stack(start, self._setup.clients).items()
        }

    def use(self, federation: Federation) -> None:
        """Goes on with other graphs."""
        setup = self._setup
        self.federation = federation
        self.scorer = Evaluator(
            federation.scored, setup.backbone, setup.task, setup.seed, setup.device, setup.chunk_clients
        )
        self.logits = self.scorer
        if federation.evaluated is not None:
            self.logits = Evaluator(
                federation, setup.backbone, setup.task, setup.seed, setup.device, setup.chunk_clients
            )
