"""Stacked parameters: one tensor per name with a leading client axis, and what is done to them as a whole."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fglbench.runtime.modes import full_precision

Parameters: TypeAlias = dict[str, Tensor]
Rows: TypeAlias = slice | Tensor


def stack(single: Mapping[str, Tensor], clients: int) -> Parameters:
    """Every client starts from the same parameters: [..] -> [clients, ..], in memory of its own."""
    return {name: tensor.detach().unsqueeze(0).repeat(clients, *[1] * tensor.dim()) for name, tensor in single.items()}


def rows_of(clients: np.ndarray, device: torch.device | str = "cpu") -> Rows:
    """Index of ascending client ids: a slice, which makes views, where they are contiguous; else on the device."""
    if len(clients) and clients[-1] - clients[0] + 1 == len(clients):
        return slice(int(clients[0]), int(clients[-1]) + 1)
    return torch.from_numpy(clients).to(device)


def take(parameters: Mapping[str, Tensor], rows: Rows) -> Parameters:
    """The parameters of some clients; a view of the stack where `rows` is a slice, else a copy."""
    return {name: tensor[rows] for name, tensor in parameters.items()}


def put(parameters: Mapping[str, Tensor], rows: Rows, values: Mapping[str, Tensor]) -> None:
    """Writes back what `take` gave, in place; nothing to do where it gave views."""
    if isinstance(rows, slice):
        return
    for name, value in values.items():
        parameters[name][rows] = value


def by_client(values: Tensor, like: Tensor) -> Tensor:
    """One value for each client, [S], in the shape [S, 1, ...] that goes with its parameters [S, ...]."""
    return values.view(-1, *[1] * (like.dim() - 1))


def where(chosen: Tensor, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Parameters:
    """Of the clients chosen, [C] bool, the parameters `one`, of the rest the `other` ones, under the names of `one`."""
    return {name: torch.where(by_client(chosen, own), own, other[name]) for name, own in one.items()}


def clone(parameters: Mapping[str, Tensor]) -> Parameters:
    """Detached copies, each client's in memory of its own."""
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in parameters.items()}


def gradients(loss: Tensor, parameters: Mapping[str, Tensor]) -> Parameters:
    """Those of a scalar, one for each parameter; zero for what it does not depend on."""
    found = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    # The fused optimiser reads memory in the order of the parameters, whatever the strides of a gradient.
    return {name: gradient.contiguous() for name, gradient in zip(parameters, found, strict=True)}


def mix(parameters: Mapping[str, Tensor], names: Iterable[str], mixing: Tensor) -> Parameters:
    """Aggregation: params[c] <- sum_j M[c, j] params[j].

    Args:
        parameters: stacked, [C, ...] each.
        names: those to aggregate.
        mixing: [C, C] float32, or [C] for one row that all clients have in common.

    Returns:
        New tensors for these names; after a common row all clients share the memory of one. Not to be written to.
    """
    mixed = {}
    with full_precision():
        for name in names:
            own = parameters[name]
            product = mixing @ own.reshape(len(own), -1)
            mixed[name] = product.view(-1, *own.shape[1:]).expand_as(own)
    return mixed


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Sum over clients, in full precision as `mix`: [S] x [S, ...] -> [...]."""
    with full_precision():
        return torch.einsum("s,s...->...", weights, values)


def total_bytes(messages: Mapping[str, Tensor | Sequence[Tensor]]) -> int:
    """Bytes of tensors, or of lists of them, by name."""
    tensors = [tensor for sent in messages.values() for tensor in ([sent] if isinstance(sent, Tensor) else sent)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def bytes_of(parameters: Mapping[str, Tensor], names: Iterable[str]) -> int:
    """Bytes of one client's share of the named parameters."""
    return sum(parameters[name][0].numel() * parameters[name].element_size() for name in names)
