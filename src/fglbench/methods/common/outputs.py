"""Outputs of the model on the clients' whole graphs, for methods that send predictions or embeddings."""

from collections.abc import Iterator

import numpy as np
import torch

from fglbench.backbones.base import Backbone
from fglbench.federation.batch import Batch
from fglbench.federation.federation import Federation
from fglbench.federation.operators import no_dropout
from fglbench.federation.parameters import Parameters, rows_of, take
from fglbench.federation.step import Output


@torch.no_grad()
def outputs_by_chunk(
    backbone: Backbone,
    federation: Federation,
    parameters: Parameters,
    clients: np.ndarray,
    chunk_clients: int,
    device: torch.device | str,
) -> Iterator[tuple[Output, Batch]]:
    """Run the model on all nodes of some clients, without dropout and gradients.

    Args:
        backbone: the model.
        federation: the clients' graphs.
        parameters: [C, ...] by name, of all clients.
        clients: [S] int64 ascending ids.
        chunk_clients: number of clients in a forward pass.
        device: device of the batches.

    Yields:
        Output and batch of each chunk of clients, in their order; the rows are all nodes of the clients.
    """
    for first in range(0, len(clients), chunk_clients):
        chunk = clients[first : first + chunk_clients]
        batch = backbone.batch(federation, chunk, device=device)
        yield backbone.forward(take(parameters, rows_of(chunk)), batch, no_dropout), batch
