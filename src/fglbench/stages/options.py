"""Options of training that change no number on a CPU."""

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int, float, float], None]
"""Called after each round with its number from 0, the training loss and the validation score (NaN: there is none)."""


@dataclass(frozen=True)
class TrainingOptions:
    """How to train a seed.

    Attributes:
        device: "auto", "cpu" or "cuda".
        threads: number of torch threads.
        mode: "deterministic" or "fast", see `runtime.modes`.
        chunk_clients: number of clients trained at once; None: it follows from `memory_mb`.
        memory_mb: memory for the clients trained at once, in MiB; None: no limit.
    """

    device: str = "auto"
    threads: int = 1
    mode: str = "deterministic"
    chunk_clients: int | None = None
    memory_mb: int | None = None
