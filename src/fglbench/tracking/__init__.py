"""Tracking: import of finished runs into MLflow, from the records of a study. Training never uses a tracking store."""

from fglbench.errors import FglbenchError


class TrackingError(FglbenchError):
    """The tracking store cannot be reached or written. The records are safe and can be imported later."""
