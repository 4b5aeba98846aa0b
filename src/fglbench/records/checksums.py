"""Stored files against the checksums that records name, compared where a file is read.

A graph is named by its data card, a split by its own card, the files of a run by its record, what a job made of several
seeds by the lists `seeds-<range>.json` beside their folders, and what is made of a whole study by
`checksums/<stage>/<study>.json`.
"""

from collections.abc import Callable
from pathlib import Path

from fglbench.errors import StorageError
from fglbench.storage import MAKE_AGAIN, hash_file, read_json

CHECKSUMS = "checksums"
"""The folder of what the stages made of whole studies, `<stage>/<study>.json`."""

_digests: dict[tuple[object, ...], str] = {}
_lists: dict[tuple[object, ...], dict[str, str]] = {}


def check_file(path: Path, expected: str | set[str], record: Path, digest: Callable[[Path], str] = hash_file) -> None:
    """Compares a file with what a record says of it; the file is read once per process while it stays as it is.

    Args:
        path: the file.
        expected: its checksum, or several where older lists still name an earlier one.
        record: the file that names the checksum, for the message.
        digest: how the checksum is made.

    Raises:
        StorageError: the file is missing, or is not what the record says.
    """
    try:
        state = (digest, *_state(path))
        if state not in _digests:
            _digests[state] = digest(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror or error}). {MAKE_AGAIN}") from error
    known = {expected} if isinstance(expected, str) else expected
    if _digests[state] not in known:
        raise StorageError(
            f"{path} does not match its checksum in {record} (expected {' or '.join(sorted(known))}, found "
            f"{_digests[state]}): it was altered or only partly copied. {MAKE_AGAIN}"
        )


def check_listed(path: Path) -> None:
    """Compares a file of a seed, `.../seed<k>/<name>`, with the lists of the jobs that made that seed.

    `fglbench train` writes no list, so a file that none names is taken as it is. Errors as `check_file`.
    """
    lists = sorted(path.parents[1].glob("seeds-*.json"))
    name = f"{path.parent.name}/{path.name}"
    named = {listed[name]: each for each in lists if name in (listed := _listed(each))}
    if named:
        check_file(path, set(named), next(iter(named.values())))


def check_made(path: Path) -> None:
    """Compares a file of a study, `<results>/<stage>/<study>/<name>`, with the list of its stage, where there is one.

    Errors as `check_file`.
    """
    path = path.absolute()
    results, stage, study = path.parents[2], path.parents[1].name, path.parent.name
    record = results / CHECKSUMS / stage / f"{study}.json"
    expected = _listed(record).get(f"{stage}/{study}/{path.name}") if record.exists() else None
    if expected is not None:
        check_file(path, expected, record)


def _listed(path: Path) -> dict[str, str]:
    """The files that a list names, with their checksums."""
    state = _state(path)
    if state not in _lists:
        found = read_json(path)
        named = found.items() if isinstance(found, dict) else ()
        _lists[state] = {name: digest for name, digest in named if isinstance(digest, str)}
    return _lists[state]


def _state(path: Path) -> tuple[object, ...]:
    """What changes where a file is written anew."""
    found = path.stat()
    return (str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
