"""Deterministic and fast mode of training on a GPU; on a CPU both modes give the same bytes.

Deterministic mode computes float32 products in full precision. It selects algorithms that repeat their result bit by
bit on the same GPU and versions, where torch has them. For other operations torch writes a warning to the log. Products
with sparse matrices are an exception, for which torch gives no warning: cuSPARSE computes them, and NVIDIA guarantees
the same bits only for algorithms that torch does not use.

Fast mode computes products in TF32 (10 bits of mantissa) and selects the fastest algorithms. Aggregation stays in full
precision, because TF32 would round all parameters in every round, even those that a client keeps.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

MODES = ("deterministic", "fast")
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def before_torch(mode: str) -> None:
    """Set the environment variable of cuBLAS that must be set before torch first uses a GPU.

    In deterministic mode it requests workspaces that are never shared, unless the variable is set already.

    Args:
        mode: one of `MODES`; "fast" changes nothing.
    """
    if mode == "deterministic":
        os.environ.setdefault(_WORKSPACE, ":4096:8")


def set_mode(mode: str, device: str) -> None:
    """Set torch's precision and determinism switches of this process for training on a device.

    Args:
        mode: one of `MODES`.
        device: "cpu" changes nothing.
    """
    if device == "cpu":
        return
    import torch

    deterministic = mode == "deterministic"
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    # Filling uninitialised memory helps only debugging, and costs an extra write.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.fp32_precision = "ieee" if deterministic else "tf32"


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute products on the GPU in full precision inside the context, in any mode.

    Yields:
        None; the earlier precision is restored at the end.
    """
    import torch

    switch = torch.backends.cuda.matmul
    kept = switch.fp32_precision
    switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        switch.fp32_precision = kept
