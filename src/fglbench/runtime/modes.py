"""Deterministic and fast mode of training on a GPU. On a CPU both give the same bytes.

deterministic: float32 products in full precision; algorithms that repeat their result bit by bit on the same card and
    versions, where torch has them. For an operation that has none, torch warns in the log; but not for products with
    sparse matrices, which are cuSPARSE's: NVIDIA promises the same bits for other algorithms than torch takes.
fast: products in TF32 (10 bits of mantissa), and whichever algorithm is the fastest. Aggregation stays in full
    precision: it would round all parameters in every round, even those that a client keeps.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

MODES = ("deterministic", "fast")
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def before_torch(mode: str) -> None:
    """What must be in the environment before torch first uses a card: workspaces of cuBLAS that are never shared."""
    if mode == "deterministic":
        os.environ.setdefault(_WORKSPACE, ":4096:8")


def set_mode(mode: str, device: str) -> None:
    """Sets torch's switches of this process for training on a device.

    Args:
        mode: of `MODES`.
        device: "cpu" leaves all as it is.
    """
    if device == "cpu":
        return
    import torch

    deterministic = mode == "deterministic"
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    # A safeguard for debugging that costs a write.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.fp32_precision = "ieee" if deterministic else "tf32"


@contextmanager
def full_precision() -> Iterator[None]:
    """Products on a card inside are in full precision, in any mode."""
    import torch

    switch = torch.backends.cuda.matmul
    kept = switch.fp32_precision
    switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        switch.fp32_precision = kept
