"""Named random streams: every random draw of a cell uses a stream derived from its seed and a name, never global state.

For the same dataset, scheme, number of clients and seed, all methods get the same partition, masks and initial weights,
because the names of these streams do not contain the method. Only streams for a method's own draws do.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *axes: str | int) -> int:
    """Derive the seed of a named stream; it is the same in every process and on every platform.

    Args:
        seed: the cell's seed.
        *axes: the parts of the stream's name.

    Returns:
        An integer of 63 bits.
    """
    text = "\x1f".join([str(seed), *(f"{type(axis).__name__}:{axis}" for axis in axes)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def numpy_stream(seed: int, *axes: str | int) -> np.random.Generator:
    """Return the NumPy generator of a named stream.

    Args:
        seed: the cell's seed.
        *axes: the parts of the stream's name.

    Returns:
        A new generator (PCG64).
    """
    return np.random.Generator(np.random.PCG64(derive(seed, *axes)))


def torch_stream(seed: int, *axes: str | int) -> "torch.Generator":
    """Return the torch generator of a named stream.

    Args:
        seed: the cell's seed.
        *axes: the parts of the stream's name.

    Returns:
        A new generator on the CPU.
    """
    import torch

    return torch.Generator().manual_seed(derive(seed, *axes))
