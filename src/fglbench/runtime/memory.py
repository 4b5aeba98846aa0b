"""Memory of a device, memory of stacked parameters, and the settings of the allocator."""

import ctypes
import os

import torch

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h of glibc
_KEPT = 512 * 2**20
_COPIES_OF_PARAMETERS = 5  # held, received, gradients, and two moments of the optimiser


def memory_mb(device: torch.device) -> int:
    """Return the total memory of a device.

    Args:
        device: for "cpu" the memory of the machine is meant.

    Returns:
        MiB.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory // 2**20
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def parameters_mb(clients: int, parameter_bytes: int) -> int:
    """Return the memory that the parameters of all clients take during training.

    It counts five copies: held, received, their gradients, and two moments of the optimiser.

    Args:
        clients: number of clients.
        parameter_bytes: bytes of the parameters of one client.

    Returns:
        MiB.
    """
    return clients * parameter_bytes * _COPIES_OF_PARAMETERS // 2**20


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed memory, up to 512 MiB, instead of returning it to the system at once.

    Every local epoch allocates and frees several megabytes of gradients and activations. To fetch their pages again
    each time takes up to a fifth of the training time, and half of it for FedSage+'s generator, whose tensors are
    larger. glibc maps large allocations separately (at the latest above 32 MiB by default), and this is switched off
    too. The setting applies to the whole process, so only processes that train should use it.

    Returns:
        Whether the C library accepted the settings; other libraries than glibc are left unchanged.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT))
