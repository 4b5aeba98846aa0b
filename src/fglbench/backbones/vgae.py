"""Variational graph autoencoder (Kipf and Welling, 2016; FedVGAE, eq. 3 to 8): an autoencoder whose embedding is drawn.

A second convolution gives the mean of each node's embedding, and a third one gives log sigma; both act on the same
first layer. In training z = mean + sigma e, with e from a standard normal; in evaluation z is the mean. The
Kullback-Leibler divergence from the standard normal is added to the local loss. The divergence of a node is 1/2 sum
(mean^2 + sigma^2 - log sigma^2 - 1). That of a client is the mean over the targets of a step (all nodes for links, the
training nodes for classes), times `kl`. With `kl_per: graph`, the default, it is divided by their number once more.

Deviations: log sigma is at most 10, as in PyG. Eq. 8 sums over all nodes, also for classes. The text of FedVGAE speaks
of three layers, its eq. 4 has two.

Defaults:
    hidden 64: differs; the paper has 32 and 16. FedGTA's for small graphs.
    dropout 0.0: the public code's.
    r 0.5: the paper's.
    kl 1.0: the paper's.
    kl_per graph: that of the public code and of PyG's example; node is eq. 7 of the FedVGAE paper, divided by n.
"""

from typing import Literal

import torch
from torch import Tensor

from fglbench.backbones import gae
from fglbench.backbones.base import Dropout
from fglbench.federation.operators import NoDropout
from fglbench.federation.propagation_batch import PropagationBatch
from fglbench.settings import ComponentSettings, Field, Propagation

VERSION = 1
LARGEST_LOG_SIGMA = 10.0


class Settings(ComponentSettings):
    hidden: int = Field(64, ge=1, description="Width of the convolutions and of the read-out.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Rate after the first convolution and in the read-out.")
    r: float = Field(0.5, ge=0, le=1, description="Kernel coefficient of the normalisation; 0.5 is symmetric.")
    kl: float = Field(1.0, ge=0, description="Weight of the Kullback-Leibler divergence.")
    kl_per: Literal["graph", "node"] = Field(
        "graph",
        description="The mean divergence of a node (node), or that divided by the number of nodes once more (graph).",
    )

    def propagation(self) -> Propagation:
        return Propagation(r=self.r, hops=1)


class Backbone(gae.Backbone):
    convolutions = ("mean", "log_sigma")

    def embed(self, convolved: list[Tensor], batch: PropagationBatch, dropout: Dropout) -> tuple[Tensor, Tensor | None]:
        mean, log_sigma = convolved
        if isinstance(dropout, NoDropout):
            return mean, None
        log_sigma = log_sigma.clamp(max=LARGEST_LOG_SIGMA)
        sigma = log_sigma.exp()
        each = 0.5 * (mean.square() + sigma.square() - 2 * log_sigma - 1).sum(1, keepdim=True)
        divergence = self.settings.kl * (batch.client_mean @ each).squeeze(1)
        if self.settings.kl_per == "graph":
            sizes = torch.tensor(batch.target_ptr, device=each.device).diff()
            divergence = divergence / sizes
        return mean + sigma * dropout.normal(mean.shape[1], batch.ptrs[1]), divergence
