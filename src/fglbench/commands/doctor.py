"""`fglbench doctor`: check versions, device, memory, data and folders, and mark each OK or PROBLEM."""

import argparse
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from fglbench.datasets import catalogue
from fglbench.datasets.availability import mirror_folder
from fglbench.errors import StorageError
from fglbench.runtime.child import do_nothing, run_in_child
from fglbench.storage import check_writable

NOT_NEEDED = ("torch-scatter", "torch-sparse", "pyg-lib")
OLDEST = (3, 11)
Finding = tuple[str, str, str]
OK, PROBLEM, NOTE = "OK", "PROBLEM", "-"


def add(parser: argparse.ArgumentParser) -> None:
    """Add no options: the command has none of its own.

    Args:
        parser: the parser of the command.
    """


def run(args: argparse.Namespace) -> int:
    """Print all findings.

    Args:
        args: the parsed options.

    Returns:
        Exit status: 1 if a finding is a problem, else 0.
    """
    findings = [*_python(), *_packages(), *_machine(), *_mirror(mirror_folder(args.mirror))]
    findings += [_writable("results", Path(args.results)), *_temporary(), _child_process()]
    findings.append(_writable("cache", _snakemake_cache(), "; name another folder in XDG_CACHE_HOME"))
    width = max(len(subject) for _, subject, _ in findings)
    for mark, subject, text in findings:
        print(f"{mark:<7}  {subject:<{width}}  {text}")
    problems = [subject for mark, subject, _ in findings if mark == PROBLEM]
    print(f"\n{len(problems)} problems: {', '.join(problems)}" if problems else "\nno problems")
    return 1 if problems else 0


def _python() -> Iterator[Finding]:
    installed = platform.python_version()
    oldest = ".".join(map(str, OLDEST))
    too_old = f"{installed} is too old; install {oldest} or later"
    yield (OK, "python", installed) if sys.version_info >= OLDEST else (PROBLEM, "python", too_old)


def needed() -> list[str]:
    """Return the packages that fglbench requires, without those of its extras.

    Returns:
        Names of distributions, without versions.

    Raises:
        PackageNotFoundError: fglbench runs from source and is not installed.
    """
    return [re.split(r"[^\w.-]", text)[0] for text in requires("fglbench") or [] if "extra ==" not in text]


def _packages() -> Iterator[Finding]:
    try:
        names = needed()
    except PackageNotFoundError:
        yield PROBLEM, "fglbench", "is not installed, so its requirements are unknown; install it ('make setup')"
        names = []
    for name in names:
        installed = _version(name)
        absent = "absent; install the environment again ('make setup')"
        yield (OK, name, installed) if installed else (PROBLEM, name, absent)
    for name in NOT_NEEDED:
        installed = _version(name)
        yield NOTE, name, f"{installed} (not needed)" if installed else "absent (not needed)"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _machine() -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:
        yield PROBLEM, "device", f"torch cannot be imported: {error}"
    else:
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        yield OK, "device", ", ".join(gpus) if gpus else "CPU; torch finds no usable GPU"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield OK, "cores", f"{usable} usable of {os.cpu_count()}"
    if "SC_PHYS_PAGES" in os.sysconf_names:
        total, free = (os.sysconf(name) * os.sysconf("SC_PAGE_SIZE") for name in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
        yield OK, "memory", f"{total / 2**30:.1f} GiB, {free / 2**30:.1f} GiB unused"


def _mirror(mirror: Path | None) -> Iterator[Finding]:
    if mirror is None:
        free = catalogue.free()
        yield NOTE, "mirror", f"none (FGLBENCH_MIRROR); data are downloaded, except {free}, which need no files"
        return
    if not (mirror.is_dir() and os.access(mirror, os.R_OK | os.X_OK)):
        yield PROBLEM, "mirror", f"{mirror} is not a readable folder"
        return
    with_files = [spec for spec in catalogue.CATALOGUE.values() if spec.needs_files]
    missing = [spec.name for spec in with_files if not all((mirror / path).is_file() for path in spec.raw_files)]
    rest = f"; missing, but available for download: {', '.join(missing)}" if missing else ""
    yield OK, "mirror", f"{mirror} contains {len(with_files) - len(missing)} of {len(with_files)} datasets{rest}"


def _writable(subject: str, folder: Path, otherwise: str = "") -> Finding:
    try:
        check_writable(folder)
    except StorageError as error:
        return PROBLEM, subject, f"{error}{otherwise}"
    return OK, subject, f"{folder.resolve()} is writable"


def _temporary() -> Iterator[Finding]:
    """Check the folder for temporary files, which partitioning and downloads use."""
    try:
        yield _writable("temporary", Path(tempfile.gettempdir()), "; name another folder in TMPDIR")
    except FileNotFoundError as error:
        yield PROBLEM, "temporary", f"{error.strerror}; name one in TMPDIR"


def _child_process() -> Finding:
    """Check that a child process starts: partitioning, preprocessing and training run in one."""
    try:
        ended = run_in_child(do_nothing, {})
    except OSError as error:
        return PROBLEM, "child process", f"cannot be started: {error}"
    return (PROBLEM, "child process", str(ended)) if ended.status else (OK, "child process", "can be started")


def _snakemake_cache() -> Path:
    """Return the folder where Snakemake caches its sources; Snakemake cannot start without it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "snakemake")
