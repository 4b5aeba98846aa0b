"""Stacked parameters: one tensor for each name, with a leading client dimension, and operations on whole stacks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fglbench.runtime.modes import full_precision

Parameters: TypeAlias = dict[str, Tensor]
Rows: TypeAlias = slice | Tensor


def stack(single: Mapping[str, Tensor], clients: int) -> Parameters:
    """Return stacked parameters in which every client starts from the same values.

    Args:
        single: [...] parameters of one client, by name.
        clients: number of clients C.

    Returns:
        [C, ...] by name, detached and without shared memory.
    """
    return {name: tensor.detach().unsqueeze(0).repeat(clients, *[1] * tensor.dim()) for name, tensor in single.items()}


def rows_of(clients: np.ndarray, device: torch.device | str = "cpu") -> Rows:
    """Return the index of some clients into stacked parameters.

    Args:
        clients: [S] int64 client ids, ascending.
        device: device of the index if it is a tensor.

    Returns:
        A slice, which gives views, if the ids are contiguous; otherwise a tensor [S] int64.
    """
    if len(clients) and clients[-1] - clients[0] + 1 == len(clients):
        return slice(int(clients[0]), int(clients[-1]) + 1)
    return torch.from_numpy(clients).to(device)


def take(parameters: Mapping[str, Tensor], rows: Rows) -> Parameters:
    """Select the parameters of some clients.

    Args:
        parameters: [C, ...] by name.
        rows: index of the clients, from `rows_of`.

    Returns:
        [S, ...] by name: views if `rows` is a slice, otherwise copies.
    """
    return {name: tensor[rows] for name, tensor in parameters.items()}


def put(parameters: Mapping[str, Tensor], rows: Rows, values: Mapping[str, Tensor]) -> None:
    """Write the result of `take` back in place; views need no write.

    Args:
        parameters: [C, ...] by name, updated in place.
        rows: index of the clients, from `rows_of`.
        values: [S, ...] by name, from `take`.
    """
    if isinstance(rows, slice):
        return
    for name, value in values.items():
        parameters[name][rows] = value


def by_client(values: Tensor, like: Tensor) -> Tensor:
    """Reshape one value per client to broadcast over stacked parameters.

    Args:
        values: [S].
        like: [S, ...] stacked parameters with the number of dimensions to match.

    Returns:
        [S, 1, ...], a view of `values`.
    """
    return values.view(-1, *[1] * (like.dim() - 1))


def where(chosen: Tensor, one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Parameters:
    """Choose the parameters of each client from one of two stacks.

    Args:
        chosen: [C] bool.
        one: [C, ...] by name, for the chosen clients.
        other: [C, ...] by name, for the other clients; has at least the names of `one`.

    Returns:
        [C, ...] under the names of `one`.
    """
    return {name: torch.where(by_client(chosen, tensor), tensor, other[name]) for name, tensor in one.items()}


def clone(parameters: Mapping[str, Tensor]) -> Parameters:
    """Return detached copies of parameters, each client in memory of its own.

    Args:
        parameters: [C, ...] by name.

    Returns:
        [C, ...] by name, contiguous.
    """
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in parameters.items()}


def gradients(loss: Tensor, parameters: Mapping[str, Tensor]) -> Parameters:
    """Compute the gradients of a scalar loss.

    Args:
        loss: a scalar.
        parameters: leaves under autograd, by name.

    Returns:
        Contiguous gradients by name, with the shapes of the parameters; zero for parameters that the loss does not
        depend on.
    """
    computed = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    # The fused optimiser ignores the strides of a gradient: it reads memory in the order of the parameters.
    return {name: gradient.contiguous() for name, gradient in zip(parameters, computed, strict=True)}


def mix(parameters: Mapping[str, Tensor], names: Iterable[str], mixing: Tensor) -> Parameters:
    """Aggregate the parameters of clients: params[c] <- sum_j M[c, j] params[j].

    Args:
        parameters: [C, ...] by name.
        names: names of the parameters to aggregate.
        mixing: [C, C] float32, or [C] for one row that all clients have in common.

    Returns:
        New tensors [C, ...] for these names. They must not be modified: with a common row all clients share the memory
        of one client.
    """
    mixed = {}
    with full_precision():
        for name in names:
            tensor = parameters[name]
            product = mixing @ tensor.reshape(len(tensor), -1)
            mixed[name] = product.view(-1, *tensor.shape[1:]).expand_as(tensor)
    return mixed


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Compute a weighted sum over clients, in full precision as in `mix`.

    Args:
        weights: [S] float32.
        values: [S, ...] float32.

    Returns:
        [...] float32.
    """
    with full_precision():
        return torch.einsum("s,s...->...", weights, values)


def total_bytes(messages: Mapping[str, Tensor | Sequence[Tensor]]) -> int:
    """Count the bytes of messages.

    Args:
        messages: a tensor or a sequence of tensors for each name.

    Returns:
        Bytes of all tensors together.
    """
    tensors = [tensor for sent in messages.values() for tensor in ([sent] if isinstance(sent, Tensor) else sent)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def bytes_of(parameters: Mapping[str, Tensor], names: Iterable[str]) -> int:
    """Count the bytes of the named parameters of one client.

    Args:
        parameters: [C, ...] by name.
        names: names of the parameters to count.

    Returns:
        Bytes of one row of each of these tensors.
    """
    return sum(parameters[name][0].numel() * parameters[name].element_size() for name in names)
