"""FedSage+ (Zhang et al., NeurIPS 2021, section 4 and algorithm 1): FedSage with a neighbour generator.

Every client hides a share of its nodes and learns from what is left how many hidden neighbours a node has (smooth L1)
and what they look like (noise and representation to `neighbours` vectors; squared distance to the closest hidden
neighbour), together with a classifier on the graph mended so. In the federated epochs vectors are also pulled to the
closest node of every other client, by gradients computed there. Then every node gets its predicted number of
neighbours, and GraphSAGE is trained and tested under `aggregation` on the mended graphs; generated nodes have no label
and are never predicted.

The global test has no generated neighbours: it scores on its graph as it is.

Under the inductive setting the generator learns from the graphs of training, and mends both these and the whole ones on
which models are scored; a client whose graph of training has no node has none, and its graph stays as it is.

Generated features are the hyperbolic tangent of a linear map, as in the public code: none is beyond -1 and 1,
whatever the features of the dataset are.

Deviations: while the generator learns, a node has as many vectors as hidden neighbours, not as predicted; distances to
other clients are averaged over them, not added, so that more clients do not weigh more. A client sends, through the
server, its noisy representations and feature head to all others, and receives the sum of their gradients.

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

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fglbench.federation.federation import Federation
from fglbench.methods import base, fedsage
from fglbench.methods._generator import Candidates, Generator, Hidden, others_mean
from fglbench.methods._mending import mend, some_clients
from fglbench.settings import AggregatedSettings, Field

VERSION = 4
_AT_ONCE = {"cpu": 2**24, "cuda": 2**30}  # values of vectors: few enough to stay in a cache, and many for a GPU


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
    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.added_rows = self.settings.neighbours

    def prepare(self, seed: int, device: torch.device | str, chunk_clients: int) -> base.Prepared:
        settings, federation, whole = self.settings, self.federation, self.federation.evaluated
        number = federation.num_clients
        several = np.count_nonzero(np.diff(federation.ptr)) > 1 and settings.cross_weight > 0
        everyone = Candidates(federation.features, np.unique(federation.ptr), device) if several else None
        found = [_Found(graphs) for graphs in (federation, whole) if graphs is not None]
        shown = 0
        largest = settings.neighbours * np.diff(federation.ptr).max() * federation.features.shape[1]
        at_once = min(chunk_clients, max(1, _AT_ONCE[torch.device(device).type] // max(1, int(largest))))
        for first in range(0, number, at_once):
            clients = np.arange(first, min(first + at_once, number))
            own = some_clients(federation, clients)
            hidden = Hidden(own, clients, settings.neighbours, settings.hidden_share, seed, device)
            generator = Generator(settings, federation.features.shape[1], federation.classes, clients, seed, device)
            whose = np.repeat(clients, np.diff(hidden.vector_ptr))
            generator.train(hidden, _pull(everyone, federation, whose) if everyone else None)
            for graphs in found:
                graphs.add(generator, clients, learned=np.diff(own.ptr) > 0)
            shown += generator.exchanged_bytes(hidden)
        mended, *of_whole = (graphs.mended(ahead=self.backbone.neighbours is None) for graphs in found)
        if of_whole:
            mended = replace(mended, evaluated=of_whole[0])
        # Shown to each of the others, and their gradients on the way back; to and from the server only once.
        exchanged = shown * number * settings.federated_epochs if several else 0
        return base.Prepared(mended, exchanged, exchanged)


class _Found:
    """The neighbours that generators find for the nodes of some graphs, client by client."""

    def __init__(self, graphs: Federation):
        self._graphs = graphs
        self._owners: list[np.ndarray] = []
        self._features: list[Callable[[], np.ndarray]] = []

    def add(self, generator: Generator, clients: np.ndarray, learned: np.ndarray) -> None:
        owners, features = generator.generate(some_clients(self._graphs, clients), learned)
        self._owners.append(owners + self._graphs.ptr[clients[0]])
        self._features.append(features)

    def mended(self, ahead: bool) -> Federation:
        owners = np.concatenate(self._owners)
        generated = np.empty((len(owners), self._graphs.features.shape[1]), dtype=np.float32)  # gigabytes: only once
        first = 0
        for own, features in zip(self._owners, self._features, strict=True):
            generated[first : first + len(own)] = features()
            first += len(own)
        return mend(self._graphs, owners, generated, ahead=ahead)[0]


def _pull(everyone: Candidates, federation: Federation, whose: np.ndarray) -> Callable[[Tensor], Tensor]:
    return lambda vectors: others_mean(everyone, federation, vectors, whose)
