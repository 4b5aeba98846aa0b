"""Tracking: finished runs, read from the study's records, into MLflow. Training never talks to a tracking store."""

from fglbench.errors import FglbenchError


class TrackingError(FglbenchError):
    """The tracking store cannot be reached or written; the records are safe and can be imported later."""
