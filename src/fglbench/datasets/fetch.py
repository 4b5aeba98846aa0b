"""Download of raw files over HTTP, with a time limit and without prompts."""

import shutil
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO

TIMEOUT_S = 20.0
"""Longest time without data from the server, in seconds; without a network the first file fails within this time."""

ARCHIVES = (".tar.gz", ".zip")


def fetch(url: str | Mapping[str, str], paths: Iterable[str], root: Path) -> None:
    """Download files into `root`; they are streamed to disk, whatever their size.

    Args:
        url: address of a folder that holds the files by their base names, of a `.tar.gz` or `.zip` with them, or of
            each file by its base name.
        paths: destination of each file, relative to `root`.
        root: folder of the files; subfolders are created.

    Raises:
        OSError: no answer, an error status, an interrupted transfer, or an archive that lacks a file; the message names
            the address.
    """
    targets = {PurePosixPath(path).name: root / path for path in paths}
    for target in targets.values():
        target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(url, str) and url.endswith(ARCHIVES):
        archive = root / PurePosixPath(url).name
        _get(url, archive)
        _unpack(url, archive, targets)
        archive.unlink()
        return
    for name, target in targets.items():
        _get(f"{url}/{name}" if isinstance(url, str) else url[name], target)


def _get(url: str, target: Path) -> None:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer, target.open("wb") as stream:
            shutil.copyfileobj(answer, stream, 2**20)
            expected = answer.headers.get("Content-Length")
    except (OSError, HTTPException) as error:
        raise OSError(f"{url}: {getattr(error, 'reason', None) or error}") from error
    if expected is not None and target.stat().st_size != int(expected):
        raise OSError(f"{url}: the transfer stopped after {target.stat().st_size} of {expected} bytes")


def _unpack(url: str, archive: Path, targets: Mapping[str, Path]) -> None:
    missing = set(targets)
    try:
        for name, stream in _members(archive, targets):
            with stream, targets[name].open("wb") as target:
                shutil.copyfileobj(stream, target, 2**20)
            missing.discard(name)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise OSError(f"{url}: not a readable archive ({error})") from error
    if missing:
        raise OSError(f"{url}: the archive does not contain {', '.join(sorted(missing))}")


def _members(archive: Path, names: Iterable[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of those files of an archive that have one of these base names."""
    wanted = set(names)
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                if (name := PurePosixPath(entry.filename).name) in wanted and not entry.is_dir():
                    yield name, zipped.open(entry)
        return
    with tarfile.open(archive, mode="r:gz") as files:
        for member in files:
            name, stream = PurePosixPath(member.name).name, files.extractfile(member) if member.isfile() else None
            if name in wanted and stream is not None:
                yield name, stream
