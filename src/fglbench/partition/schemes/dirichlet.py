"""Label skew: the nodes of each class are shared among clients in proportions drawn from a Dirichlet distribution.

Yurochkin et al.: Bayesian Nonparametric Federated Learning of Neural Networks, ICML 2019; Hsu, Qi, Brown: Measuring the
Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019.
"""

import numpy as np

from fglbench.datasets.base import Graph
from fglbench.errors import PartitionError
from fglbench.partition.base import Assignment, parts_of
from fglbench.settings import ComponentSettings, Field

VERSION = 1


class Settings(ComponentSettings):
    """Settings of the label skew."""

    alpha: float = Field(0.5, gt=0, description="Concentration: small = few classes a client, large = all alike.")
    min_nodes: int = Field(1, ge=1, description="A draw that leaves a client fewer nodes is thrown away.")
    tries: int = Field(100, ge=1, description="Draws before giving up.")


def assign(graph: Graph, clients: int, rng: np.random.Generator, settings: Settings) -> Assignment:
    """Draw repeatedly until every client has `min_nodes` nodes; nodes without a label are distributed evenly.

    Args:
        graph: a canonical graph.
        clients: number of clients.
        rng: draws the proportions and the nodes.
        settings: alpha, minimum and number of draws.

    Returns:
        The first accepted draw, with a note on the number of draws.

    Raises:
        PartitionError: no draw was accepted, with alpha and the best minimum reached; or the graph has too few nodes.
    """
    if settings.min_nodes * clients > graph.num_nodes:
        raise PartitionError(
            f"{settings.min_nodes} nodes per client are more than the {graph.num_nodes} nodes of the graph; lower "
            "min_nodes or the number of clients."
        )
    reached = 0
    for number in range(1, settings.tries + 1):
        membership = _draw(graph.labels, clients, settings.alpha, rng)
        smallest = int(np.bincount(membership, minlength=clients).min())
        reached = max(reached, smallest)
        if smallest >= settings.min_nodes:
            notes = [
                f"Dirichlet: draw {number} of at most {settings.tries} gave every client {smallest} nodes or more."
            ]
            return Assignment(parts_of(membership, clients), notes)
    raise PartitionError(
        f"with alpha {settings.alpha:g}, none of {settings.tries} draws gave every client {settings.min_nodes} nodes; "
        f"the smallest client had at most {reached}. Raise alpha or tries, or lower min_nodes or the number of "
        "clients."
    )


def _draw(labels: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Draw the client of each node once: [num_nodes] int64."""
    membership = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        nodes = rng.permutation(np.flatnonzero(labels == label))
        shares = np.full(clients, 1 / clients) if label < 0 else rng.dirichlet(np.full(clients, alpha))
        ends = np.rint(np.cumsum(shares)[:-1] * len(nodes)).astype(np.int64)
        membership[nodes] = np.searchsorted(ends, np.arange(len(nodes)), side="right")
    return membership
