"""Named random streams: every draw of a cell comes from its seed and a name, never from global state.

At one (dataset, scheme, clients, seed) all methods meet the same partition, masks and initial weights, because those
streams are named without the method; only a method's own noise adds the method's name.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *axes: str | int) -> int:
    """A 63-bit seed for the stream named by `axes`, the same in every process and on every platform."""
    text = "\x1f".join([str(seed), *(f"{type(axis).__name__}:{axis}" for axis in axes)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def numpy_stream(seed: int, *axes: str | int) -> np.random.Generator:
    """A numpy generator for the stream named by `axes`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *axes)))


def torch_stream(seed: int, *axes: str | int) -> "torch.Generator":
    """A CPU torch generator for the stream named by `axes`."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *axes))
