"""Partition files that a study names; the hash of a cell covers their content and not their path."""

from pathlib import Path

from fglbench.errors import PartitionError
from fglbench.storage import hash_file

FILE = "file"
"""Name of the scheme that reads a partition file, and of the kind of split that uses the roles in that file."""


def content_of(path: str) -> str:
    """Return the SHA-256 of a partition file.

    Args:
        path: of the file, absolute or relative to the working directory.

    Returns:
        64 hexadecimal digits.

    Raises:
        PartitionError: the path is empty, or the file cannot be read.
    """
    if not path:
        raise PartitionError("the scheme 'file' needs the 'path' of a partition file.")
    try:
        return hash_file(Path(path))
    except OSError as error:
        raise PartitionError(
            f"{path} cannot be read ({error.strerror}). Set 'path' of the scheme 'file' to a partition file, as an "
            "absolute path or relative to the working directory."
        ) from error
