"""Compare stored files with their checksums, and remove damaged files on request.

A graph is compared with the hash on its data card, a split with its card, and the files of a run with its record.
Cards, federations, records and metrics are compared with the lists `seeds-<range>.json` of the jobs that made them. A
file that no list names must be readable (`fglbench train` writes no lists). Collected records, tables, figures and
reports are compared with the lists `checksums/<stage>/<study>.json`.

Snakemake makes a missing file again only if another missing file needs it. A repair therefore also removes the lists of
the later stages and the summary of every affected study. The stages then keep all undamaged files.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from filelock import FileLock, Timeout

from fglbench.config.identity import seeds_of
from fglbench.errors import StorageError
from fglbench.records.checksums import CHECKSUMS
from fglbench.records.federation import FEDERATION, is_unharmed
from fglbench.records.graph import GRAPH_ARRAYS, GRAPH_CARD
from fglbench.records.metrics import METRICS
from fglbench.records.run import RUN
from fglbench.records.split import SPLIT_ARRAYS, SPLIT_CARD
from fglbench.stages.job import NOT_RUN
from fglbench.storage import exclusive, hash_file, hash_npz, read_json, read_npz

_STAGES = {"split": SPLIT_CARD, "preprocess": FEDERATION, "train": RUN, "evaluate": METRICS}
"""The stages with seeds, in their order, and the file that each stage writes last for a seed."""

_SEED = re.compile(r"seed\d+")

Hashes = Mapping[str, set[str]]


@dataclass(frozen=True)
class Damage:
    """A file that differs from what its stage wrote.

    Attributes:
        path: the file.
        reason: what is wrong with it.
        made: the files and folders that its stage makes together.
        folder: relative to the results folder: `download/<dataset>`, the folder of the seeds, or `checksums/<stage>`.
        seeds: the affected seeds; None: all seeds.
    """

    path: Path
    reason: str
    made: tuple[Path, ...]
    folder: Path
    seeds: frozenset[int] | None = None


def find_damage(results: Path) -> Iterator[Damage]:
    """Find every damaged file below a results folder. Read all files, and write nothing.

    Args:
        results: the results folder.

    Yields:
        The damaged files, stage by stage.
    """
    for folder in sorted(results.glob("download/*/")):
        yield from _graph_damage(results, folder)
    for stage in _STAGES:
        for folder in sorted(results.glob(f"{stage}/*/*/" if stage == "split" else f"{stage}/*/*/*/")):
            if not (stage == "split" and folder.name.startswith("seed")):
                yield from _stage_damage(results, stage, folder)
    for path in sorted(results.glob(f"{CHECKSUMS}/*/*.json")):
        yield from _study_damage(results, path)


def repair(results: Path, damage: Damage) -> None:
    """Remove a damaged file, and the files that keep Snakemake from making it again.

    Args:
        results: the results folder.
        damage: an item of `find_damage`.
    """
    if damage.folder.parts[0] == CHECKSUMS:  # no cell depends on it, and Snakemake notices that it is missing
        for path in damage.made:
            path.unlink(missing_ok=True)
        return
    stale = [*_lists(results, damage), *_summaries(results, damage)]
    for path in stale:
        path.unlink(missing_ok=True)
    for path in damage.made:
        with exclusive(path):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def leftovers(results: Path) -> list[Path]:
    """Return the incomplete files and folders that killed jobs left behind, under temporary names.

    Locks (`.lock`) are left out, and so are files whose lock a running process holds.

    Args:
        results: the results folder.

    Returns:
        The sorted paths.
    """
    paths = sorted(path for path in results.rglob(".*") if path.suffix != ".lock" and path.name.count(".") > 1)
    return [path for path in paths if not _in_the_making(path)]


def _in_the_making(path: Path) -> bool:
    """Return whether another process holds the lock of the final name, or of the folder that contains the path."""
    folder = path.name[1:].rpartition(".")[0]  # the temporary name of a file ends with its suffix a second time
    targets = (path.with_name(folder), path.with_name(folder.rpartition(".")[0] or folder), path.parent)
    for lock in (target.with_name(f".{target.name}.lock") for target in targets):
        if not lock.exists():
            continue
        try:
            with FileLock(lock, timeout=0):
                pass
        except Timeout:
            return True
    return False


def _graph_damage(results: Path, folder: Path) -> Iterator[Damage]:
    """Yield the damage to the graph of a dataset."""
    card, graph = folder / GRAPH_CARD, folder / GRAPH_ARRAYS
    if not (card.exists() or graph.exists()):
        return
    path = card
    try:
        stored = read_json(card)
        path = graph
        if stored.get("sha256", stored["content_hash"]) == (hash_file if "sha256" in stored else hash_npz)(graph):
            return
        reason = "does not match the hash on its data card"
    except (StorageError, OSError, KeyError, TypeError, AttributeError):
        reason = "cannot be read"
    yield Damage(path, reason, (card, graph), folder.relative_to(results))


def _stage_damage(results: Path, stage: str, folder: Path) -> Iterator[Damage]:
    """Yield the damage to the lists and seeds in a folder of a stage."""
    place = folder.relative_to(results)
    hashes: dict[str, set[str]] = {}
    for path in sorted(folder.glob("seeds-*.json")):
        try:
            listed = {name: digest for name, digest in read_json(path).items() if name != NOT_RUN}
        except (StorageError, AttributeError):
            yield Damage(path, "cannot be read", (path,), place, frozenset(_seeds(path)))
            continue
        for name, digest in listed.items():
            if not isinstance(digest, str) or not _SEED.fullmatch(name.partition("/")[0]):
                yield Damage(path, "lists a path that is not a file of a seed", (path,), place, frozenset(_seeds(path)))
                continue
            # An older list may have another hash, of a seed that failed and was retried.
            hashes.setdefault(name, set()).add(digest)
    seeds = {path.name for path in folder.glob("seed[0-9]*/") if _SEED.fullmatch(path.name)}
    seeds |= {name.partition("/")[0] for name in hashes}
    for seed in sorted(seeds):
        for path, reason in _seed_damage(stage, folder / seed, hashes):
            yield Damage(path, reason, (folder / seed,), place, frozenset({int(seed.removeprefix("seed"))}))


def _seed_damage(stage: str, folder: Path, hashes: Hashes) -> Iterator[tuple[Path, str]]:
    """Yield every damaged file of a seed with the reason."""
    last = folder / _STAGES[stage]
    if reason := _file_damage(last, hashes.get(f"{folder.name}/{last.name}")):
        yield last, reason
        return
    if stage == "preprocess" and not is_unharmed(folder):  # compares the file with the checksum inside it
        yield last, "does not match its checksum"
    if stage not in ("split", "train"):
        return
    try:
        record = read_json(last)
        files = {SPLIT_ARRAYS: record["sha256"]} if stage == "split" else dict(record["files"])
    except (KeyError, TypeError, ValueError):
        yield last, "names no checksums"
        return
    for name, digest in files.items():
        if reason := _file_damage(folder / name, {digest}):
            yield folder / name, reason


def _study_damage(results: Path, path: Path) -> Iterator[Damage]:
    """Yield the files of a study that do not match the list of their stage."""
    place = path.parent.relative_to(results)
    try:
        listed = {results / name: digest for name, digest in read_json(path).items()}
    except (StorageError, AttributeError):
        listed = {}
    # A repair removes the listed files, so a damaged list must not name files of other stages.
    inside = results / path.parent.name
    if not listed or not all(file.is_relative_to(inside) and ".." not in file.parts for file in listed):
        yield Damage(path, "cannot be read", (path,), place)
        return
    for file, digest in listed.items():
        if reason := _file_damage(file, {digest}):
            yield Damage(file, reason, (path, *listed), place)


def _file_damage(path: Path, known: set[str] | None) -> str | None:
    """Return what is wrong with a file; None if nothing is wrong.

    Without known hashes, the file must be readable; an .npz has checksums of its own.
    """
    if not path.exists():
        return "is missing"
    try:
        if known is not None:
            return None if hash_file(path) in known else "does not match its checksum"
        read_json(path) if path.suffix == ".json" else read_npz(path)
    except (StorageError, OSError):
        return "cannot be read"
    return None


def _seeds(path: Path) -> list[int]:
    """Return the seeds in the name of a list."""
    return seeds_of(path.stem.removeprefix("seeds-"))


def _concerned(results: Path, damage: Damage, stage: str) -> Iterator[Path]:
    """Yield the folders of a stage whose seeds depend on the damage; none for a stage before that of the damage."""
    damaged_stage, dataset, *rest = damage.folder.parts
    order = ["download", *_STAGES]
    if order.index(stage) < order.index(damaged_stage):
        return
    # The path of a method does not name its preprocessing, so all methods of the partition are affected.
    deepest = [*rest] if stage == damaged_stage or damaged_stage in ("train", "evaluate") else rest[:1]
    depth = 1 if stage == "split" else 2
    pattern = "/".join([*deepest, *["*"] * (depth - len(deepest))])
    yield from (results / stage / dataset).glob(f"{pattern}/")


def _lists(results: Path, damage: Damage) -> Iterator[Path]:
    """Yield the lists of all stages that contain an affected seed."""
    for stage in _STAGES:
        for folder in _concerned(results, damage, stage):
            for path in folder.glob("seeds-*.json"):
                if damage.seeds is None or damage.seeds & set(_seeds(path)):
                    yield path


def _summaries(results: Path, damage: Damage) -> Iterator[Path]:
    """Yield `study.json` and its list for every affected study.

    A study is affected if it has an affected cell. All studies are affected if the affected cells are unknown.
    """
    cells: set[str] = set()
    known = True
    train = damage.folder if damage.folder.parts[0] != "evaluate" else Path("train", *damage.folder.parts[1:])
    asked = Damage(damage.path, "", (), train, damage.seeds)
    for folder in _concerned(results, asked, "train"):
        for path in folder.glob(f"seed*/{RUN}"):
            if damage.seeds is None or int(path.parent.name.removeprefix("seed")) in damage.seeds:
                try:
                    cells.add(read_json(path)["cell"])
                except (StorageError, KeyError, TypeError):
                    known = False
    for study in results.glob("studies/*/study.json"):
        try:
            concerned = not (known and cells) or not cells.isdisjoint(
                pd.read_parquet(study.parent / "runs.parquet")["cell"]
            )
        except (OSError, ValueError, KeyError):
            concerned = True
        if concerned:
            yield from (study, results / CHECKSUMS / "studies" / f"{study.parent.name}.json")
