"""What jobs ask of a scheduler, by the size of the dataset."""

from fglbench.datasets import catalogue
from fglbench.datasets.requirements import requirements_of

_LEAST_MB, _LEAST_MIN = 4000, 30


def download_mb(dataset: str) -> int:
    """Memory of a download job."""
    required = requirements_of(catalogue.get(dataset))
    return max(_LEAST_MB, round(required.memory / 1e6) if required else 0)


def download_min(dataset: str) -> int:
    """Minutes of a download job: 10 MB a second, and the rest of the work."""
    required = requirements_of(catalogue.get(dataset))
    return _LEAST_MIN + (round(required.temporary / 6e8) if required else 0)
