"""Batch normalisation of each client's rows, with stacked weights and running statistics."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fglbench.federation.operators import client_means
from fglbench.federation.parameters import Parameters

_MOMENTUM, _EPS = 0.1, 1e-5  # defaults of torch.nn.BatchNorm1d


def batch_norms(layers: int, width: int) -> "list[BatchNorm]":
    """Return the batch normalisations of the first layers of a model.

    Args:
        layers: number of layers with batch normalisation.
        width: columns of each layer's output.

    Returns:
        One for each layer, named `<layer>.norm`.
    """
    return [BatchNorm(f"{layer}.norm", width) for layer in range(layers)]


def starts(norms: "list[BatchNorm]") -> Parameters:
    """Return the initial parameters of several batch normalisations for one client.

    Args:
        norms: the batch normalisations.

    Returns:
        [width] float32 by name.
    """
    return {name: tensor for norm in norms for name, tensor in norm.initial().items()}


def statistics(norms: "list[BatchNorm]") -> Parameters:
    """Return the initial buffers of several batch normalisations for one client.

    Args:
        norms: the batch normalisations.

    Returns:
        [width] float32 by name.
    """
    return {name: tensor for norm in norms for name, tensor in norm.buffers().items()}


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalisation (Ioffe and Szegedy, ICML 2015, algorithm 1) of a layer's outputs, as torch.nn.BatchNorm1d.

    The statistics of a client are computed from its own rows only. Training passes normalise by the statistics of the
    pass and update the running statistics. Evaluation normalises by the running statistics.

    Attributes:
        name: prefix of the parameters `<name>.weight`, `<name>.bias` and of the buffers `<name>.mean`,
            `<name>.variance`.
        width: columns of the layer's output.
    """

    name: str
    width: int

    @property
    def names(self) -> list[str]:
        """Names of the parameters and buffers."""
        return [f"{self.name}.{part}" for part in ("weight", "bias", "mean", "variance")]

    def initial(self) -> Parameters:
        """Return the initial parameters of one client.

        Returns:
            [width] float32 by name: weights of one and biases of zero.
        """
        return {f"{self.name}.weight": torch.ones(self.width), f"{self.name}.bias": torch.zeros(self.width)}

    def buffers(self) -> Parameters:
        """Return the initial running statistics of one client.

        Returns:
            [width] float32 by name: means of zero and variances of one.
        """
        return {f"{self.name}.mean": torch.zeros(self.width), f"{self.name}.variance": torch.ones(self.width)}

    def __call__(self, x: Tensor, ptr: list[int], parameters: Parameters, training: bool) -> tuple[Tensor, Parameters]:
        """Normalise rows that are grouped by client.

        Args:
            x: [rows, width] float32.
            ptr: [S + 1] boundaries of the rows by client.
            parameters: [S, ...] parameters and buffers by name.
            training: whether the pass belongs to a training step.

        Returns:
            The normalised rows [rows, width] float32, and the new values of the buffers [S, width] by name, which are
            empty in evaluation.
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
        scale = (
            weight * (variance.clamp(min=0) + _EPS).rsqrt()
        )  # differential privacy adds noise to shared buffers, which may make a variance negative
        return centred * scale[client] + bias[client], moved
