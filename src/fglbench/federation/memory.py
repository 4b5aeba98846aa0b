"""How the process treats memory that is freed and soon needed again."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_LARGEST_BLOCK = 32 * 2**20  # glibc takes no higher value
_KEPT = 512 * 2**20


def keep_freed_memory() -> bool:
    """Asks glibc to keep freed memory, up to 512 MiB, instead of returning it to the system at once.

    Every local epoch frees and takes gradients and activations of some megabytes; fetching their pages anew each time
    costs up to a fifth of the training time. It holds for the whole process, so it is for processes that train.

    Returns:
        whether the C library understood; others are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT))
