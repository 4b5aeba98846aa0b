"""Checks of stored files against the checksums in records, made when a file is read.

The checksum of a graph is in its data card, that of a split in its partition card, and those of a run's files in its
record. Jobs that make several seeds write lists `seeds-<range>.json` beside the folders of the seeds. The files of
whole studies are listed in `checksums/<stage>/<study>.json`.
"""

from collections.abc import Callable
from pathlib import Path

from fglbench.errors import StorageError
from fglbench.storage import MAKE_AGAIN, hash_file, read_json

CHECKSUMS = "checksums"
"""The folder with the checksums of files of whole studies, `<stage>/<study>.json`."""

_digests: dict[tuple[object, ...], str] = {}
_lists: dict[tuple[object, ...], dict[str, str]] = {}


def check_file(path: Path, expected: str | set[str], record: Path, digest: Callable[[Path], str] = hash_file) -> None:
    """Compare a file with its checksum in a record.

    A process reads each file only once, as long as the file does not change.

    Args:
        path: of the file.
        expected: the checksum; several if older lists still contain an earlier one.
        record: the file that contains the checksum, for the message.
        digest: computes the checksum of a file.

    Raises:
        StorageError: the file is missing or unreadable, or its checksum differs.
    """
    try:
        state = (digest, *_state(path))
        if state not in _digests:
            _digests[state] = digest(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror or error}). {MAKE_AGAIN}") from error
    valid = {expected} if isinstance(expected, str) else expected
    if _digests[state] not in valid:
        raise StorageError(
            f"{path} does not match its checksum in {record} (expected {' or '.join(sorted(valid))}, found "
            f"{_digests[state]}): it was altered or only partly copied. {MAKE_AGAIN}"
        )


def check_listed(path: Path) -> None:
    """Compare a file of a seed with the lists of the jobs that made the seed.

    `fglbench train` writes no list, so a file that is in no list passes the check.

    Args:
        path: `.../seed<k>/<name>`.

    Raises:
        StorageError: as `check_file`, or a list is unreadable.
    """
    lists = sorted(path.parents[1].glob("seeds-*.json"))
    name = f"{path.parent.name}/{path.name}"
    by_digest = {digests[name]: record for record in lists if name in (digests := _listed(record))}
    if by_digest:
        check_file(path, set(by_digest), next(iter(by_digest.values())))


def check_made(path: Path) -> None:
    """Compare a file of a study with the list of its stage, if there is one.

    Args:
        path: `<results>/<stage>/<study>/<name>`.

    Raises:
        StorageError: as `check_file`, or the list is unreadable.
    """
    path = path.absolute()
    results, stage, study = path.parents[2], path.parents[1].name, path.parent.name
    record = results / CHECKSUMS / stage / f"{study}.json"
    expected = _listed(record).get(f"{stage}/{study}/{path.name}") if record.exists() else None
    if expected is not None:
        check_file(path, expected, record)


def _listed(path: Path) -> dict[str, str]:
    """Read the checksums in a list, by file name."""
    state = _state(path)
    if state not in _lists:
        stored = read_json(path)
        entries = stored.items() if isinstance(stored, dict) else ()
        _lists[state] = {name: digest for name, digest in entries if isinstance(digest, str)}
    return _lists[state]


def _state(path: Path) -> tuple[object, ...]:
    """Return values that change when a file is written again."""
    status = path.stat()
    return (str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
