"""FedGTA (Li et al., VLDB 2023, algorithms 1 and 2): personalised means over clients with similar label propagation.

After local training every client propagates its soft labels (eq. 3). It sends the moments of the propagated labels (eq.
5) and its smoothing confidence (eq. 4). Client i receives the mean over the clients whose moments have a cosine
similarity of at least epsilon with its own (eq. 6), weighted by confidence (eq. 7, with each client's own H). Eq. 5
shows central moments as an example. As in the paper the adjacency matrix has self-loops: a node is among its neighbours
in eq. 3, and D in eq. 4 counts it. Entries of Y^l may exceed 1 at hubs, nodes with many neighbours of low degree. Hubs
then dominate moments of high order. The public variant bounds the entries.

`variant: public` follows the authors' code. Training nodes start with their true labels, which are added again in every
step and replace the result at these nodes. Other rows pass a softmax, with temperature 20 for the confidence. Moments
are computed from the last step only; central moments are about the mean over nodes instead of classes. D has no
self-loops. The similarity must exceed epsilon. In the authors' code alpha is 0.5 and weights the propagated labels;
here alpha weights the soft labels themselves in both variants. The settings of the authors' code (moments, order,
epsilon) are: cora hybrid, 6, 0.5; citeseer hybrid, 20, 0.6; pubmed raw, 13, 0.65.

Clients that do not train in a round keep their parameters. A client that has not trained so far receives the mean over
all clients that count in the round. If all clients in the mean of a client have confidence 0 (public variant, no
edges), this client keeps its own parameters.

Defaults:
    k 5: the paper's.
    alpha 0.5: the paper's.
    order 6: the public code's for Cora; the paper searches 2 to 20.
    moments hybrid: the public code's for Cora.
    epsilon 0.5: the public code's for Cora; the paper searches 0 to 1.
    variant paper: the paper's.
    no_moments false: the paper's.
    no_confidence false: the paper's.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, client_means
from fglbench.federation.parameters import rows_of
from fglbench.methods import base
from fglbench.partition.ratios import TRAIN
from fglbench.runtime.modes import full_precision
from fglbench.settings import ComponentSettings, Field

VERSION = 1
TEMPERATURE = 20.0  # of the softmax for the public variant's confidence


class Settings(ComponentSettings):
    k: int = Field(5, ge=1, le=50, description="Steps of label propagation.")
    alpha: float = Field(0.5, ge=0, le=1, description="Weight of the soft labels themselves in every step.")
    order: int = Field(6, ge=1, le=50, description="Highest order K of the moments.")
    moments: Literal["raw", "central", "hybrid"] = Field("hybrid", description="Kind of moments; hybrid: both.")
    epsilon: float = Field(0.5, ge=-1, le=1, description="Least similarity of clients that are averaged.")
    variant: Literal["paper", "public"] = Field("paper", description="The paper's equations, or the authors' code.")
    no_moments: bool = Field(False, description="Ablation: every client receives the mean over all.")
    no_confidence: bool = Field(False, description="Ablation: clients weigh by training nodes.")


class Smoothed(NamedTuple):
    """Propagated labels of all rows.

    Attributes:
        steps: [N, k, classes] float32 whose moments are sent; k is 1 in the public variant.
        certain: [N, classes] float32 whose confidence is sent.
        centre: the mean that central moments are about, in a shape that broadcasts to `steps`.
        degrees: [N, 1] float32 weights of the rows in the confidence.
    """

    steps: Tensor
    certain: Tensor
    centre: Tensor
    degrees: Tensor


class Method(base.Method):
    needs_classes = True
    strictly_above = False  # whether similar clients have a cosine above epsilon, not only at least epsilon

    def __new__(cls, settings: Settings, *arguments: Any) -> "Method":
        return super().__new__(PublicVariant if settings.variant == "public" else cls)

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._ever = torch.zeros(self.federation.num_clients, dtype=torch.bool)
        self._graph: GraphTensors | None = None

    def upload(self, round: base.ClientRound) -> dict[str, Tensor]:
        """Return the moments and the smoothing confidence of the clients that trained.

        Args:
            round: the round after local training.

        Returns:
            `moments` [S, k * K * classes] float32, twice as many columns if hybrid and a k-th of them in the public
            variant, and `confidence` [S] float32. An ablated message is missing.
        """
        settings = self.settings
        if settings.no_moments and settings.no_confidence:
            return {}
        graph = self._graph = self._graph or GraphTensors(self.federation, round.weights.device)
        labels = round.logits().T.softmax(0).T.contiguous()  # seven times faster on CPU than softmax(1) of few classes
        steps, certain, centre, degrees = self.smoothed(labels, graph)
        rows, sent = rows_of(round.clients), {}
        if not settings.no_moments:
            bases = [] if settings.moments == "central" else [steps]
            if settings.moments != "raw":
                bases.append(steps - centre)
            sent["moments"] = moments(bases, graph, settings.order)[rows]
        if not settings.no_confidence:
            sent["confidence"] = confidence(certain, degrees, graph)[rows]
        return sent

    def smoothed(self, labels: Tensor, graph: "GraphTensors") -> Smoothed:
        """Propagate the soft labels of all rows (eq. 3).

        Args:
            labels: [N, classes] float32 soft labels.
            graph: of all clients.

        Returns:
            What the moments and the confidence are computed from.
        """
        steps = propagate(labels, graph.operator, self.settings.k, self.settings.alpha)
        return Smoothed(steps, steps[:, -1], steps.mean(2, keepdim=True), graph.degrees + 1)

    def aggregate(self, round: base.Round) -> dict[str, Tensor]:
        weights, device = round.weights, round.weights.device
        active = torch.from_numpy(round.clients).to(device)
        alike = torch.ones(len(active), len(active), dtype=torch.bool, device=device)
        if "moments" in round.uploads:
            alike = similar(round.uploads["moments"], self.settings.epsilon, self.strictly_above)
        if "confidence" in round.uploads:
            weights = weights.index_copy(0, active, round.uploads["confidence"])
        self._ever = self._ever.to(device).index_fill(0, active, True)
        if len(active) < len(weights):
            among_active, alike = alike, torch.eye(len(weights), dtype=torch.bool, device=device)
            alike[active.unsqueeze(1), active] = among_active
            alike |= ~self._ever.unsqueeze(1)
        shares = alike * weights
        total = shares.sum(1, keepdim=True)
        return {base.SHARED: torch.where(total > 0, shares / total, torch.eye(len(weights), device=device))}


class PublicVariant(Method):
    """The authors' code: true labels at training nodes, and softmax of the last step elsewhere."""

    strictly_above = True

    def smoothed(self, labels: Tensor, graph: "GraphTensors") -> Smoothed:
        labels = torch.where(graph.training, graph.train_labels, labels)
        last = propagate(labels, graph.operator, self.settings.k, self.settings.alpha, again=graph.train_labels)[:, -1]
        step, certain = (
            torch.where(graph.training, graph.train_labels, (last / temperature).softmax(1))
            for temperature in (1.0, TEMPERATURE)
        )
        centre = (graph.client_mean @ step)[graph.client_of].unsqueeze(1)
        return Smoothed(step.unsqueeze(1), certain, centre, graph.degrees)


class GraphTensors:
    """Constants of the client graphs, on the device.

    Args:
        federation: the clients' graphs.
        device: of the tensors.

    Attributes:
        operator: [N, N] symmetric D^(-1/2) (A + I) D^(-1/2), whatever the backbone's operator is.
        degrees: [N, 1] float32 number of neighbours, without the node itself.
        client_mean: [C, N] operator that averages the rows of each client.
        sizes: [C] float32 number of nodes of each client.
        client_of: [N] int64 client of each row.
        training: [N, 1] bool, True for training nodes.
        train_labels: [N, classes] float32 one-hot labels of the training nodes; zero in other rows.
    """

    def __init__(self, federation: Federation, device: torch.device):
        adjacency = federation.adjacency
        degrees = np.diff(adjacency.indptr)
        scale = sp.diags(((degrees + 1.0) ** -0.5).astype(np.float32))
        self.operator = SparseOperator((scale @ (adjacency + sp.identity(len(degrees))) @ scale).tocsr(), device)
        self.client_mean = client_means(federation.ptr, device)
        self.degrees = torch.from_numpy(degrees).float().unsqueeze(1).to(device)
        self.sizes = torch.from_numpy(np.diff(federation.ptr)).float().to(device)
        self.client_of = torch.from_numpy(federation.client_of).to(device)
        self.training = torch.from_numpy(federation.role == TRAIN).unsqueeze(1).to(device)
        labels = torch.from_numpy(federation.labels).clamp(min=0)
        self.train_labels = one_hot(labels, federation.classes).float().to(device) * self.training

    def exact_client_mean(self, rows: Tensor) -> Tensor:
        """Return the means of `client_mean` in double precision.

        Args:
            rows: [N, columns] float64.

        Returns:
            [C, columns] float64.
        """
        return rows.new_zeros(len(self.sizes), rows.shape[1]).index_add_(0, self.client_of, rows) / self.sizes[:, None]


def propagate(labels: Tensor, operator: SparseOperator, k: int, alpha: float, again: Tensor | None = None) -> Tensor:
    """Propagate labels (eq. 3): Y^l = alpha Y^0 + (1 - alpha) A Y^(l - 1) (+ again), for l from 1 to k.

    Args:
        labels: [N, classes] float32, Y^0.
        operator: [N, N], A.
        k: number of steps.
        alpha: weight of the initial labels.
        again: [N, classes] float32, added in every step; None adds nothing.

    Returns:
        [N, k, classes] float32, Y^1 to Y^k.
    """
    fixed = alpha * labels if again is None else alpha * labels + again
    steps = [labels]
    for _ in range(k):
        steps.append(torch.add(fixed, operator.product(steps[-1]), alpha=1 - alpha))
    return torch.stack(steps[1:], dim=1)


def confidence(labels: Tensor, degrees: Tensor, graph: GraphTensors) -> Tensor:
    """Compute the smoothing confidence (eq. 4): H = sum over nodes i and classes j of D_ii (1 / e + Y_ij log Y_ij).

    Args:
        labels: [N, classes] float32, Y.
        degrees: [N, 1] float32, the diagonal of D.
        graph: of all clients.

    Returns:
        [C] float32, at least 0.
    """
    certainty = (math.exp(-1) - torch.special.entr(labels)).sum(1, keepdim=True)
    return graph.client_mean.product(degrees * certainty).squeeze(1) * graph.sizes


def moments(bases: list[Tensor], graph: GraphTensors, order: int) -> Tensor:
    """Compute the moments (eq. 5): means of Y, Y^2, ..., Y^order over a client's nodes, for every Y of `bases`.

    High powers of entries above 1 may overflow. The moments of such a client are divided by a power of two, which
    leaves every cosine (eq. 6) unchanged.

    Args:
        bases: tensors [N, k, classes] float32, the propagated labels, raw or central.
        graph: of all clients.
        order: highest power.

    Returns:
        [C, len(bases) * order * k * classes] float32.
    """
    moments = _means_of_powers(bases, order, graph.client_mean.product)
    if not moments.sum().isfinite():
        exact = _means_of_powers([steps.double() for steps in bases], order, graph.exact_client_mean)
        moments = torch.where(moments.isfinite().all(1, keepdim=True), moments, _scaled(exact).float())
    return moments


def _means_of_powers(bases: list[Tensor], order: int, client_mean: Callable[[Tensor], Tensor]) -> Tensor:
    means = []
    for steps in bases:  # one base at a time: it and its power fit a core's cache
        flat = steps.flatten(1)
        means.append(client_mean(flat))
        power, memory = flat, torch.empty_like(flat)
        for _ in range(1, order):
            power = torch.mul(power, flat, out=memory)
            means.append(client_mean(power))
    return torch.cat(means, dim=1)


def _scaled(rows: Tensor) -> Tensor:
    """Return rows divided exactly by powers of two, so that the largest entry of each is near 1 and no square
    overflows.
    """
    _, exponent = rows.abs().amax(1, keepdim=True).frexp()
    return rows.ldexp(-exponent.clamp(-100, 1000))


def similar(moments: Tensor, epsilon: float, strictly: bool) -> Tensor:
    """Return which clients have similar moments (eq. 6).

    Args:
        moments: [S, columns] float32.
        epsilon: the threshold of the cosine.
        strictly: whether the cosine must be above epsilon, not only at least epsilon.

    Returns:
        [S, S] bool; every client is similar to itself.
    """
    unit = normalize(_scaled(moments), dim=1)
    with full_precision():
        cosine = (unit @ unit.T).clamp(-1, 1)
    return (cosine > epsilon if strictly else cosine >= epsilon).fill_diagonal_(True)
