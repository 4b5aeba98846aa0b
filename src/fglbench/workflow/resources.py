"""Resource requirements that jobs request from a scheduler, by the size of the dataset."""

from fglbench.datasets import catalogue
from fglbench.datasets.requirements import requirements_of

_LEAST_MB, _LEAST_MIN = 4000, 30


def download_mb(dataset: str) -> int:
    """Return the memory of a download job.

    Args:
        dataset: the name of the dataset.

    Returns:
        MB, at least 4000.
    """
    required = requirements_of(catalogue.get(dataset))
    return max(_LEAST_MB, round(required.memory / 1e6) if required else 0)


def download_min(dataset: str) -> int:
    """Return the run time of a download job: 30 minutes, and the raw files and their archive at 10 MB per second.

    Args:
        dataset: the name of the dataset.

    Returns:
        Minutes.
    """
    required = requirements_of(catalogue.get(dataset))
    return _LEAST_MIN + (round(required.temporary / 6e8) if required else 0)
