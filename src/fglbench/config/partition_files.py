"""Files of partitions that a study names: they count by their content."""

from pathlib import Path

from fglbench.errors import PartitionError
from fglbench.storage import hash_file

FILE = "file"
"""The scheme that reads a file, and the kind of split that takes its roles."""


def content_of(path: str) -> str:
    """SHA-256 of a partition file.

    Raises:
        PartitionError: there is none at that path.
    """
    if not path:
        raise PartitionError("the scheme 'file' needs the 'path' of a partition file.")
    try:
        return hash_file(Path(path))
    except OSError as error:
        raise PartitionError(
            f"{path} cannot be read ({error.strerror}). Give the scheme 'file' the 'path' of a partition file, from "
            "the working directory or from the root."
        ) from error
