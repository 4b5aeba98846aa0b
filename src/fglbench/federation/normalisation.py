"""Batch normalisation of every client's rows by themselves, with stacked weights and running statistics."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fglbench.federation.operators import client_means
from fglbench.federation.parameters import Parameters

_MOMENTUM, _EPS = 0.1, 1e-5  # torch.nn.BatchNorm1d's


def batch_norms(layers: int, width: int) -> "list[BatchNorm]":
    """Those of the first so many layers, each of that width."""
    return [BatchNorm(f"{layer}.norm", width) for layer in range(layers)]


def starts(norms: "list[BatchNorm]") -> Parameters:
    """The parameters of all of them, of one client."""
    return {name: own for norm in norms for name, own in norm.initial().items()}


def statistics(norms: "list[BatchNorm]") -> Parameters:
    """The buffers of all of them, of one client."""
    return {name: own for norm in norms for name, own in norm.buffers().items()}


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation (Ioffe and Szegedy, ICML 2015, algorithm 1) of a layer's outputs, as torch.nn.BatchNorm1d.

    A client's row counts in its own statistics alone. Training passes normalise by those of the pass and move the
    running ones; evaluation takes the running ones.

    Attributes:
        name: prefix of `<name>.weight`, `<name>.bias` and of the buffers `<name>.mean`, `<name>.variance`.
        width: columns.
    """

    name: str
    width: int

    @property
    def names(self) -> list[str]:
        """Of its parameters and buffers."""
        return [f"{self.name}.{part}" for part in ("weight", "bias", "mean", "variance")]

    def initial(self) -> Parameters:
        """Parameters of one client."""
        return {f"{self.name}.weight": torch.ones(self.width), f"{self.name}.bias": torch.zeros(self.width)}

    def buffers(self) -> Parameters:
        """Running statistics of one client."""
        return {f"{self.name}.mean": torch.zeros(self.width), f"{self.name}.variance": torch.ones(self.width)}

    def __call__(self, x: Tensor, ptr: list[int], parameters: Parameters, training: bool) -> tuple[Tensor, Parameters]:
        """Normalises [rows, width] grouped by client.

        Args:
            x: the rows.
            ptr: [S + 1] their boundaries by client.
            parameters: of S clients, [S, ...], buffers among them.
            training: whether the pass belongs to a training step.

        Returns:
            [rows, width], and of a training step the buffers' new values [S, width].
        """
        weight, bias, mean, variance = (parameters[name] for name in self.names)
        sizes = torch.tensor(ptr, device=x.device).diff()
        client = torch.repeat_interleave(torch.arange(len(sizes), device=x.device), sizes)
        moved: Parameters = {}
        if training:
            average, running = client_means(ptr, x.device), (mean, variance)
            mean = average @ x
            centred = x - mean[client]
            variance = average @ centred.square()
            unbiased = variance.detach() * (sizes / (sizes - 1).clamp(min=1)).unsqueeze(1)
            now = (mean.detach(), unbiased)
            moved = {
                name: torch.lerp(old, new, _MOMENTUM)
                for name, old, new in zip(self.names[2:], running, now, strict=True)
            }
        else:
            centred = x - mean[client]
        scale = weight * (variance.clamp(min=0) + _EPS).rsqrt()  # noise on what is shared may have left it below
        return centred * scale[client] + bias[client], moved
