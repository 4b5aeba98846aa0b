"""Files on disk: plain arrays and JSON, written under a temporary name and renamed, with content hashes.

Nothing here reads or writes a pickle. A reader never sees half a file: a write either renames into place or leaves
what was there.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from fglbench.errors import DiskError, FglbenchError, StorageError

MAKE_AGAIN = (
    "'fglbench verify --repair' finds and removes what is missing or damaged; the next run of the workflow makes it "
    "again and keeps the rest."
)
"""The next step where a file of a stage is missing or damaged."""


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces; equal values give equal text. NaN and infinity are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def fingerprint(value: Any, digits: int = 8) -> str:
    """The first hexadecimal `digits` of the SHA-256 of the value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:digits]


def hash_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of the names: a hash of content, not of a file."""
    return _hash(arrays, arrays)


def _hash(arrays: Mapping[str, np.ndarray], names: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def hash_npz(path: Path, skipped: tuple[str, ...] = ()) -> str:
    """`hash_arrays` of what an .npz holds but `skipped`; one array is in memory at a time. Errors as `read_npz`."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return _hash(archive, [name for name in archive.files if name not in skipped])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} cannot be read as plain arrays ({error}). {MAKE_AGAIN}") from error


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)


def disk_trouble(error: BaseException, path: Path) -> DiskError | None:
    """The named error behind a failed write: a full disk or one that may not be written; None for anything else.

    Args:
        error: as raised; libraries wrap what the system says in errors of their own, whose causes and words are read.
        path: what could not be written.
    """
    found: BaseException | None = error
    while found is not None:
        number = found.errno if isinstance(found, OSError) else None
        elsewhere = _elsewhere(found, path)
        if number in _FULL or os.strerror(errno.ENOSPC) in str(found):
            path, reason = elsewhere or path, os.strerror(number or errno.ENOSPC)
            step = f"Make room there ('df -h {path.parent}' shows how much there is) and give the same command again."
        elif number in _DENIED and elsewhere:
            return DiskError(
                f"{elsewhere} cannot be read or written: {os.strerror(number)}. Change its permissions, and give the "
                "same command again. What was finished is untouched; nothing half-made was left."
            )
        elif number in _DENIED:
            reason = os.strerror(number)
            step = "Make the folder writable, or choose another one as 'results', and give the same command again."
        else:
            found = found.__cause__ or found.__context__
            continue
        return DiskError(
            f"{path} cannot be written: {reason}. {step} What was finished is untouched; nothing half-made was left."
        )
    return None


def _elsewhere(error: BaseException, path: Path) -> Path | None:
    """The file that the system named, where it is not beside or below `path`."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str):
        return None
    return None if Path(name).absolute().is_relative_to(Path(path).absolute().parent) else Path(name)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turns what the disk refuses into a DiskError that names `path`, also where a file within `path` was refused."""
    try:
        yield
    except Exception as error:
        known = isinstance(error, FglbenchError) and not isinstance(error, DiskError)
        if known or (trouble := disk_trouble(error, path)) is None:
            raise
        raise trouble from error


def check_writable(folder: Path) -> None:
    """Writes nothing, but makes sure that something could be written in a folder, or where it will be created.

    Raises:
        DiskError: it cannot.
    """
    folder = Path(folder).absolute()
    nearest = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not nearest.is_dir():
        reason = "a link to a folder that is not there" if nearest.is_symlink() else "not a folder"
        raise DiskError(f"{folder} cannot be written: {nearest} is {reason}.")
    try:
        with tempfile.TemporaryFile(dir=nearest) as stream:
            stream.write(b"0")
    except OSError as error:
        raise (disk_trouble(error, folder) or DiskError(f"{folder} cannot be written: {error}.")) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside `path`; on success it is flushed and renamed to `path`, on failure removed.

    The temporary name keeps the suffix of `path`, for writers that choose a format by it.
    """
    path = Path(path)
    with _named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `path`; on success it takes the place of `path`, on failure it is removed."""
    path = Path(path)
    with _named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            yield temporary
            temporary.chmod(0o777 & ~_umask())
            if path.exists():
                discarded = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
                path.replace(discarded / "old")
                temporary.replace(path)
                shutil.rmtree(discarded, ignore_errors=True)
            else:
                temporary.replace(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock named after `path`, beside it: two jobs that are to make the same thing do so one after the other.

    The lock is the process's own and ends with it, however it ends. What a killed holder left half-made is removed.
    """
    path = Path(path)
    lock = FileLock(path.parent / f".{path.name}.lock")
    with _named_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        remove_half_made(path)
        yield
    finally:
        lock.release()


def remove_half_made(path: Path) -> None:
    """Removes the temporary names of `path` that killed processes left; only for the holder of its lock."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}({re.escape(path.suffix)})?")
    for left in [found for found in path.parent.glob(".*") if name.fullmatch(found.name)]:
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text by renaming.

    Raises:
        DiskError: the disk is full or may not be written; what was there is untouched. So do all that write here.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON with sorted keys by renaming: equal values give equal bytes. NaN is refused."""
    write_text(path, json.dumps(value, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Reads JSON.

    Raises:
        StorageError: the file is missing or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path} is missing. {MAKE_AGAIN}") from error
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read as JSON ({error}). {MAKE_AGAIN}") from error


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays as an uncompressed .npz by renaming: equal arrays give equal bytes."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise StorageError(f"{path}: array '{name}' holds Python objects; only plain arrays are stored.")
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **{name: arrays[name] for name in sorted(arrays)})  # type: ignore[arg-type]


def read_npz(path: Path, names: list[str] | None = None, skipped: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Reads all arrays of an .npz but `skipped`, or only `names`; the others are not read from disk.

    Raises:
        StorageError: the file is missing, truncated, holds objects, or lacks a name.
    """
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            wanted = names if names is not None else [name for name in archive.files if name not in skipped]
            return {name: archive[name] for name in wanted}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} cannot be read as plain arrays ({error}). {MAKE_AGAIN}") from error
