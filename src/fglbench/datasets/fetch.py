"""Downloads raw files over HTTP with a time limit; never asks anything."""

import io
import tarfile
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path, PurePosixPath

TIMEOUT_S = 20.0
"""Longest silence of a server; without a network the first file fails within this time."""


def fetch(url: str, paths: Iterable[str], root: Path) -> None:
    """Brings files from an address into `root`.

    Args:
        url: of a folder that holds the files by their base names, or of a `.tar.gz` with them.
        paths: where each file goes, relative to `root`.

    Raises:
        OSError: no answer, an error status, a broken transfer, or an archive without a file; the message names
            the address.
    """
    targets = {PurePosixPath(path).name: root / path for path in paths}
    for target in targets.values():
        target.parent.mkdir(parents=True, exist_ok=True)
    if url.endswith(".tar.gz"):
        archive = _get(url)
        for name, target in targets.items():
            target.write_bytes(_member(url, archive, name))
    else:
        for name, target in targets.items():
            target.write_bytes(_get(f"{url}/{name}"))


def _get(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.read()
    except (OSError, HTTPException) as error:
        raise OSError(f"{url}: {getattr(error, 'reason', None) or error}") from error


def _member(url: str, archive: bytes, name: str) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
            for member in files:
                if member.isfile() and PurePosixPath(member.name).name == name:
                    stream = files.extractfile(member)
                    if stream is not None:
                        return stream.read()
    except (tarfile.TarError, EOFError) as error:
        raise OSError(f"{url}: not a readable archive ({error})") from error
    raise OSError(f"{url}: the archive holds no {name}")
