"""What a process asks of the system for itself: to end with its parent, and to get no more memory than it may."""

import ctypes
import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's sys/prctl.h
_POLL_S = 1.0


def die_with(parent: int) -> None:
    """Has this process killed when its parent, of that process id, ends; also where the parent cannot catch why."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)


def limit_memory(memory_limit_mb: int | None) -> None:
    """Lets allocations beyond the limit fail, or beyond a lower one that the process came with.

    It counts what this process may write to, not files that it maps.
    """
    if memory_limit_mb is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = memory_limit_mb * 2**20
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    with suppress(OSError):  # where the system itself runs out, this process is the one to end
        Path("/proc/self/oom_score_adj").write_text("500")
