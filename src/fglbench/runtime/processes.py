"""Limits of the current process: end with the parent process, and a maximum of memory."""

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
    """Kill this process when its parent ends, also if the parent was killed by a signal that it cannot catch.

    On Linux the kernel sends the signal; on other systems a thread checks the parent once a second.

    Args:
        parent: process id of the parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # the parent ended before the call above
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)


def limit_memory(memory_limit_mb: int | None) -> None:
    """Limit the memory of this process; larger allocations fail.

    A lower hard limit of the process stays in force; its soft limit is replaced. The limit covers writable private
    memory, without mapped files. On Linux, the process also asks the system to kill it first if memory runs out.

    Args:
        memory_limit_mb: the limit in MiB; None sets no limit.
    """
    if memory_limit_mb is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = memory_limit_mb * 2**20
        resource.setrlimit(
            resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    with suppress(OSError):  # the system is to end this process first when its memory runs out
        Path("/proc/self/oom_score_adj").write_text("500")
