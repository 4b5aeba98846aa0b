"""State of a training run: the constants of all phases, and the state that phases pass on."""

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
    """Components and settings of a training run, the same in every phase.

    Attributes:
        backbone: the model of the cell.
        method: the method of the cell.
        task: the task of the cell.
        schedule: rounds and local optimiser of the cell.
        seed: seed of the cell.
        clients: number of clients C.
        chunk_clients: number of clients trained at once; None for all.
        device: device of the tensors.
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
        """Number of clients trained at once."""
        return self.chunk_clients or self.clients

    def synchronise(self) -> None:
        """Wait for the device, so that a clock can be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class State:
    """State of a training run that rounds change and phases pass on.

    Args:
        setup: components and settings of the run.
        federation: the client graphs of the first phase.

    Attributes:
        federation: the client graphs to train on.
        current: [C, ...] parameters and buffers of the clients.
        trained: names of the entries of `current` that have gradients.
        batches: batches of local steps; their random streams continue from phase to phase.
        streams: random stream of each client's dropout.
        noise: protects uploads; None without local differential privacy.
        scorer: predicts on the graphs that are scored.
        logits: computes the logits that a method may see, on the graphs to train on.
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
        """Repeat the initial parameters of one client for all clients, on the device.

        Args:
            start: [...] by name.

        Returns:
            [C, ...] by name.
        """
        return {
            name: tensor.to(self._setup.device) for name, tensor in stacked.stack(start, self._setup.clients).items()
        }

    def use(self, federation: Federation) -> None:
        """Switch to other graphs.

        Args:
            federation: the client graphs to train on.
        """
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
