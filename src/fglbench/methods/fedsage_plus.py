"""FedSage+ (Zhang et al., NeurIPS 2021, section 4 and algorithm 1): FedSage with a neighbour generator.

Every client hides a share of its nodes. From the remaining graph a generator learns how many hidden neighbours a node
has (smooth L1) and what they look like: it maps noise and the node's representation to `neighbours` vectors, whose loss
is the squared distance to the closest hidden neighbour. A classifier is trained together with it, on the graph that the
vectors mend. In the federated epochs vectors are also pulled towards the closest node of every other client, by
gradients that the other clients compute. Then every node gets its predicted number of neighbours, at most `neighbours`.
GraphSAGE is trained and tested under `aggregation` on the mended graphs. Generated nodes have no label and are never
predicted.

The global test has no generated neighbours: it scores on its unchanged graph.

In the inductive setting the generator learns from the training graphs. It mends both these and the whole graphs, on
which models are scored. A client whose training graph has no node has no generator, and its graph stays unchanged.

Generated features are the hyperbolic tangent of a linear map, as in the public code. They lie between -1 and 1,
whatever the features of the dataset are.

Deviations: while the generator learns, a node has as many vectors as hidden neighbours, not as many as predicted.
Distances to other clients are averaged over these clients, not summed, so that their weight does not grow with the
number of clients. A client sends its noisy representations and its feature head through the server to all others, and
receives the sum of their gradients.

Defaults:
    hidden_share 0.5: the public code's.
    neighbours 5: the public code's.
    width 64: differs; the public code has 32 and a representation of 128. The width of the backbones here.
    epochs 20: the public code's.
    federated_epochs 20: the public code's.
    lr 0.01: differs; the public code has 0.001. The rate of local training here.
    degree_weight 1.0: the public code's.
    feature_weight 1.0: the public code's.
    class_weight 1.0: the public code's.
    cross_weight 1.0: the public code's.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fglbench.federation.federation import Federation
from fglbench.federation.parameters import Parameters, rows_of, take
from fglbench.federation.schedule import Schedule
from fglbench.methods import base, fedsage
from fglbench.methods.common.generator import Generator
from fglbench.methods.common.mending import mend, some_clients
from fglbench.methods.common.phases import Phase
from fglbench.methods.common.recovery import Exchange, Recovery
from fglbench.settings import AggregatedSettings, Field

VERSION = 4
_AT_ONCE = {"cpu": 2**24, "cuda": 2**30}  # values of vectors: they fit a cache, or fill a GPU


class Settings(AggregatedSettings):
    hidden_share: float = Field(0.5, ge=0, lt=1, description="Share of its nodes that a client hides.")
    neighbours: int = Field(5, ge=1, le=50, description="Most neighbours generated for a node.")
    width: int = Field(64, ge=1, description="Width of the generator's layers.")
    epochs: int = Field(20, ge=0, description="Local epochs of the generator.")
    federated_epochs: int = Field(20, ge=0, description="Its epochs with the other clients' gradients.")
    lr: float = Field(0.01, gt=0, description="Its learning rate (Adam).")
    degree_weight: float = Field(1.0, ge=0, description="Weight of the degree loss.")
    feature_weight: float = Field(1.0, ge=0, description="Weight of the distance to hidden neighbours.")
    class_weight: float = Field(1.0, ge=0, description="Weight of the classification loss.")
    cross_weight: float = Field(1.0, ge=0, description="Weight of the distance to other clients' nodes.")


class Method(fedsage.Method):
    needs_classes = True

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.added_rows = self.settings.neighbours

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> base.Prepared:
        largest = self.settings.neighbours * np.diff(self.federation.ptr).max() * self.federation.num_features
        self._at_once = min(chunk_clients, max(1, _AT_ONCE[torch.device(device).type] // max(1, int(largest))))
        self._generator = Generator(self.settings, self.federation, seed, device)
        return super().prepare(seed, device, chunk_clients)

    def phases(self, schedule: Schedule) -> Iterable[Phase]:
        learning = replace(
            schedule,
            local_epochs=1,
            lr=self.settings.lr,
            weight_decay=0.0,
            optimiser="adam",
            optimiser_state="kept",
            participation=1.0,
            batch_size=None,
        )
        generator = Phase(
            "generator",
            self.settings.epochs + self.settings.federated_epochs,
            objective=partial(Recovery, self.settings, self._generator),
            schedule=learning,
            chunk_clients=self._at_once,
            backbone=self._generator,
            method=Exchange(self.settings, self._generator, self.federation),
            initialisation="fedsage+ initialisation",
        )
        return [generator, *super().phases(schedule)]

    def finish(self, phase: Phase, parameters: Parameters) -> base.Prepared | None:
        if phase.name != "generator":
            return super().finish(phase, parameters)
        mended, *of_whole = (
            self._mended(graphs, parameters)
            for graphs in (self.federation, self.federation.evaluated)
            if graphs is not None
        )
        return base.Prepared(replace(mended, evaluated=of_whole[0]) if of_whole else mended)

    def _mended(self, graphs: Federation, parameters: Parameters) -> Federation:
        """Return client graphs with the neighbours that the generator predicts for their nodes."""
        owners: list[np.ndarray] = []
        features: list[Callable[[], np.ndarray]] = []
        for first in range(0, graphs.num_clients, self._at_once):
            clients = np.arange(first, min(first + self._at_once, graphs.num_clients))
            learned = np.diff(self.federation.ptr)[clients] > 0
            rows, generate = self._generator.generate(
                take(parameters, rows_of(clients)), some_clients(graphs, clients), clients, learned
            )
            owners.append(rows + graphs.ptr[first])
            features.append(generate)
        generated = np.empty((sum(map(len, owners)), graphs.num_features), dtype=np.float32)  # may take gigabytes
        first = 0
        for rows, generate in zip(owners, features, strict=True):
            generated[first : first + len(rows)] = generate()
            first += len(rows)
        return mend(graphs, np.concatenate(owners), generated, ahead=self.backbone.neighbours is None)[0]
