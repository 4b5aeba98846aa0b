"""Memory: what there is, what stacked parameters take, and how the process treats what is freed."""

import ctypes
import os

import torch

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h of glibc
_KEPT = 512 * 2**20
_COPIES_OF_PARAMETERS = 5  # held, received, their gradients, and two moments of the optimiser


def memory_mb(device: torch.device) -> int:
    """All memory of the device, or of the machine where that is its processor, in MiB."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory // 2**20
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def parameters_mb(clients: int, parameter_bytes: int) -> int:
    """MiB that the parameters of all clients take in training, from the bytes of one client's."""
    return clients * parameter_bytes * _COPIES_OF_PARAMETERS // 2**20


def keep_freed_memory() -> bool:
    """Asks glibc to keep freed memory, up to 512 MiB, instead of returning it to the system at once.

    Every local epoch frees and takes gradients and activations of some megabytes; fetching their pages anew each time
    costs up to a fifth of the training time, and half of that of FedSage+'s generator, whose tensors are larger. So
    none is mapped for itself, as glibc does by default with those above 32 MiB at the latest. It holds for the whole
    process, so it is for processes that train.

    Returns:
        whether the C library understood; others are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT))
