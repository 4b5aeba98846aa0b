"""Rounds and costs of a phase of training."""

from typing_extensions import TypedDict  # pydantic needs this one in Python 3.11


class PhaseCosts(TypedDict):
    """Rounds and costs of one phase.

    Attributes:
        name: of the phase.
        rounds: number of rounds.
        train_seconds: seconds of training, without evaluation.
        bytes_up: bytes that all clients sent.
        bytes_down: bytes that all clients received.
    """

    name: str
    rounds: int
    train_seconds: float
    bytes_up: int
    bytes_down: int
