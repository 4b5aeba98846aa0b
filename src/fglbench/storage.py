"""Files on disk: NumPy arrays and JSON, written to a temporary file and renamed, with content hashes.

No function here reads or writes a pickle. A write either renames a complete file into place or leaves the old one
unchanged, so readers never see a partial file.
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
    "'fglbench verify --repair' finds and removes damaged files; the next run of the workflow makes them and missing "
    "files again, and keeps the rest."
)
"""The next step in messages about a missing or damaged file of a stage."""


def canonical_json(value: Any) -> str:
    """Encode a value as JSON with sorted keys and no spaces, so that equal values give equal text.

    Args:
        value: of types that JSON has; NaN and infinity raise ValueError.

    Returns:
        The JSON text, not escaped to ASCII.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def fingerprint(value: Any, digits: int = 8) -> str:
    """Compute a short hash of a value.

    Args:
        value: as for `canonical_json`.
        digits: length of the hash, at most 64.

    Returns:
        The first `digits` hexadecimal digits of the SHA-256 of the value's canonical JSON.
    """
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:digits]


def hash_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Compute the SHA-256 of the content of arrays, independent of the file format.

    Args:
        arrays: by name.

    Returns:
        64 hexadecimal digits, over name, dtype, shape and bytes of each array, in the order of the names.
    """
    return _hash(arrays, arrays)


def _hash(arrays: Mapping[str, np.ndarray], names: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(names):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def hash_npz(path: Path, skipped: tuple[str, ...] = ()) -> str:
    """Compute `hash_arrays` of an .npz file, with one array in memory at a time.

    Args:
        path: of the .npz file.
        skipped: names of arrays that do not enter the hash.

    Returns:
        64 hexadecimal digits (SHA-256).

    Raises:
        StorageError: the file is missing, truncated, or holds Python objects.
    """
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return _hash(archive, [name for name in archive.files if name not in skipped])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} cannot be read as plain arrays ({error}). {MAKE_AGAIN}") from error


def hash_file(path: Path) -> str:
    """Compute the SHA-256 of a file's bytes.

    Args:
        path: of the file.

    Returns:
        64 hexadecimal digits.
    """
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)
_INTACT = "Finished files are unchanged, and no partial file remains."


def disk_trouble(error: BaseException, path: Path) -> DiskError | None:
    """Find the disk problem that caused an error: a full disk or missing permissions.

    Args:
        error: as raised. Libraries wrap errors of the system in their own, so its causes and messages are searched too.
        path: the file or folder that was being written.

    Returns:
        The error to raise instead; None if the disk is not the cause.
    """
    cause: BaseException | None = error
    while cause is not None:
        number = cause.errno if isinstance(cause, OSError) else None
        elsewhere = _elsewhere(cause, path)
        if number in _FULL or os.strerror(errno.ENOSPC) in str(cause):
            path, reason = elsewhere or path, os.strerror(number or errno.ENOSPC)
            step = f"Free space there ('df -h {path.parent}' shows the free space), and run the same command again."
        elif number in _DENIED and elsewhere:
            return DiskError(
                f"{elsewhere} cannot be read or written: {os.strerror(number)}. Change its permissions, and run the "
                f"same command again. {_INTACT}"
            )
        elif number in _DENIED:
            reason = os.strerror(number)
            step = "Make the folder writable, or choose another one as 'results', and run the same command again."
        else:
            cause = cause.__cause__ or cause.__context__
            continue
        return DiskError(f"{path} cannot be written: {reason}. {step} {_INTACT}")
    return None


def _elsewhere(error: BaseException, path: Path) -> Path | None:
    """Return the file that the system's error names, if it is outside the parent folder of `path`."""
    name = getattr(error, "filename", None)
    if not isinstance(name, str):
        return None
    return None if Path(name).absolute().is_relative_to(Path(path).absolute().parent) else Path(name)


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Convert errors of the disk into a DiskError that names `path`, also for files inside `path`."""
    try:
        yield
    except Exception as error:
        has_message = isinstance(error, FglbenchError) and not isinstance(error, DiskError)
        if has_message or (trouble := disk_trouble(error, path)) is None:
            raise
        raise trouble from error


def check_writable(folder: Path) -> None:
    """Check that files can be written in a folder, or in the folder where it will be created.

    A temporary file is written and removed.

    Args:
        folder: it may not exist yet.

    Raises:
        DiskError: the folder is not writable.
    """
    folder = Path(folder).absolute()
    nearest = next(path for path in (folder, *folder.parents) if path.exists() or path.is_symlink())
    if not nearest.is_dir():
        reason = "a link to a missing folder" if nearest.is_symlink() else "not a folder"
        raise DiskError(f"{folder} cannot be written: {nearest} is {reason}. Remove it, or name another folder.")
    try:
        with tempfile.TemporaryFile(dir=nearest) as stream:
            stream.write(b"0")
    except OSError as error:
        raise (disk_trouble(error, folder) or DiskError(f"{folder} cannot be written: {error}.")) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file under a temporary name, and rename it on success.

    Args:
        path: of the file to write; missing folders are created.

    Yields:
        A temporary path beside `path`, with the same suffix, because some writers choose the format by the suffix. On
        success it is flushed to disk and renamed to `path`; on failure it is removed.
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
    """Write a folder under a temporary name, and rename it on success.

    Args:
        path: of the folder to write; missing parent folders are created.

    Yields:
        A temporary folder beside `path`. On success it replaces `path`; on failure it is removed.
    """
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
    """Hold a lock, so that two jobs that write the same path run one after the other.

    The lock ends with the process, also after a crash. Temporary files of an earlier holder that was killed are
    removed.

    Args:
        path: that the holder writes; the lock is the file `.<name>.lock` beside it.

    Yields:
        None, while the lock is held.

    Raises:
        DiskError: the lock cannot be created, because the disk is full or not writable.
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
    """Remove the temporary files and folders of `path` that killed processes left.

    Only the holder of the lock of `path` may call it.

    Args:
        path: as given to `replacing` or `replacing_directory`.
    """
    name = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}({re.escape(path.suffix)})?")
    for partial in [file for file in path.parent.glob(".*") if name.fullmatch(file.name)]:
        shutil.rmtree(partial, ignore_errors=True) if partial.is_dir() else partial.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8 to a temporary file and rename it.

    Args:
        path: of the file.
        text: its content.

    Raises:
        DiskError: the disk is full or not writable; the old file is unchanged. All write functions here raise it.
    """
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON with sorted keys, so that equal values give equal bytes.

    Args:
        path: of the file.
        value: of types that JSON has; NaN and infinity raise ValueError.
    """
    write_text(path, json.dumps(value, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Args:
        path: of the file.

    Returns:
        The value in the file.

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
    """Write arrays as an uncompressed .npz file, so that equal arrays give equal bytes.

    Args:
        path: of the file.
        arrays: by name.

    Raises:
        StorageError: an array holds Python objects.
    """
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise StorageError(f"{path}: array '{name}' contains Python objects; only plain arrays can be stored.")
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **{name: arrays[name] for name in sorted(arrays)})  # type: ignore[arg-type]


def read_npz(path: Path, names: list[str] | None = None, skipped: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Read arrays of an .npz file; only the requested arrays are read from disk.

    Args:
        path: of the file.
        names: of the arrays to read; None: all of them.
        skipped: names of arrays to leave out if `names` is None.

    Returns:
        The arrays by name.

    Raises:
        StorageError: the file is missing or truncated, holds Python objects, or lacks one of `names`.
    """
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            wanted = names if names is not None else [name for name in archive.files if name not in skipped]
            return {name: archive[name] for name in wanted}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} cannot be read as plain arrays ({error}). {MAKE_AGAIN}") from error
