"""Copy or download the files of a dataset, check them, and store the canonical graph.

With a mirror, nothing is downloaded. The stage copies every raw file to a temporary folder and compares its content
with the catalogue before a loader reads it. The graph must then have the counts and the content hash of the catalogue.
The catalogue has no hashes for announced datasets (`spec.Announced`): their files must be readable, and the graph must
have the announced counts. The stage refuses a dataset that is too large for this machine before it fetches anything.
It never asks for input.
"""

import importlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fglbench.datasets import catalogue, raw
from fglbench.datasets.availability import why_unavailable
from fglbench.datasets.base import Graph, content_hash
from fglbench.datasets.card import DataCard, data_card
from fglbench.datasets.fetch import ARCHIVES, fetch
from fglbench.datasets.requirements import check_requirements
from fglbench.datasets.spec import Counts, DatasetSpec
from fglbench.errors import DataError, StorageError
from fglbench.records.component_files import Trust, changes, own_file
from fglbench.records.graph import GRAPH_ARRAYS, GRAPH_CARD, load_graph, read_card, save_graph
from fglbench.settings import ComponentSettings
from fglbench.storage import exclusive, remove_half_made, replacing


def download(
    dataset: Mapping[str, Any],
    folder: Path,
    mirror: Path | None = None,
    forbidden: str | None = None,
    trust: Trust = "again",
) -> DataCard:
    """Write `graph.npz` and `graph.json` to `folder`, unless the current ones are there already.

    Args:
        dataset: the key `name` and, if the dataset has settings, the key `settings`.
        folder: of the dataset. Refused raw files are copied to `folder/refused`.
        mirror: a folder with the layout of torch_geometric's raw folders, which is only read; None: no mirror.
        forbidden: the setting that forbids downloads, such as "my.yaml: data.download: false"; None: downloads are
            allowed.
        trust: what to do if a user's component file changed and its VERSION did not: "again" makes the graph again,
            "warn" keeps it with a warning.

    Returns:
        The data card, as stored in `graph.json`.

    Raises:
        DataError: the dataset or its settings are unknown; files are missing, damaged, altered or must not be
            downloaded; or the graph has other counts or content than the catalogue says. `folder` then holds neither
            file.
        ResourceError: the dataset needs more disk or memory than this machine has.
    """
    folder = Path(folder)
    spec = catalogue.get(dataset["name"])
    settings = spec.read_settings(dataset.get("settings") or {})
    with exclusive(folder):
        return _finished(spec, settings, folder, trust) or _download(spec, settings, folder, mirror, forbidden)


def stored_card(dataset: Mapping[str, Any], folder: Path) -> DataCard | None:
    """Return the data card in `folder` if the stored graph is current.

    Args:
        dataset: the key `name` and, if the dataset has settings, the key `settings`.
        folder: of the dataset.

    Returns:
        The content of `graph.json`; None if the stage would make the graph again.

    Raises:
        DataError: the dataset or its settings are unknown.
    """
    spec = catalogue.get(dataset["name"])
    return _finished(spec, spec.read_settings(dataset.get("settings") or {}), folder, "again")


def _download(
    spec: DatasetSpec, settings: ComponentSettings, folder: Path, mirror: Path | None, forbidden: str | None
) -> DataCard:
    """Make the graph of a dataset, store it with its data card, and return the card."""
    _remove(folder)
    check_requirements(spec, folder, from_mirror=mirror is not None)
    with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
        root = Path(temporary)
        origin = _bring(spec, mirror, root, forbidden)
        for path in spec.raw_files:
            _check_raw(spec, path, root, folder, mirror)
        graph = _load(spec, settings, root)
    digest = _check_graph(spec, settings, graph)
    card: DataCard = {
        **data_card(graph),
        "name": spec.name,
        "title": spec.title,
        "about": spec.about,
        "settings": settings.model_dump(),
        "synthetic": spec.synthetic,
        "source": spec.source,
        "citation": spec.citation,
        "license": spec.license,
        "origin": origin,
        "version": spec.version,
        "content_hash": digest,
    }
    if files := own_file("dataset", spec.name):
        card["component_files"] = files
    _store(graph, folder, card)
    return read_card(folder)


def _load(spec: DatasetSpec, settings: ComponentSettings, root: Path) -> Graph:
    """Load the canonical graph from the raw files in `root`."""
    loader = importlib.import_module(f"fglbench.datasets.{spec.loader}")
    try:
        graph: Graph = loader.load(spec, settings, root)
    except DataError as error:
        remedy = (
            f"Correct {spec.component}, or its files,"
            if spec.component
            else f"Replace the file by the published one ({spec.source})"
        )
        raise DataError(f"dataset '{spec.name}': {error} {remedy} and run the stage again.") from error
    return graph


def _finished(spec: DatasetSpec, settings: ComponentSettings, folder: Path, trust: Trust) -> DataCard | None:
    """Return the stored data card if the card and the graph are current, else None."""
    if not (folder / GRAPH_CARD).exists():
        return None
    try:
        card = read_card(folder)
        wanted = {"name": spec.name, "version": spec.version, "settings": settings.model_dump()}
        if any(card.get(key) != value for key, value in wanted.items()):
            return None
        changed = changes(card.get("component_files"), own_file("dataset", spec.name))
        if changed and trust == "again":
            return None
        for line in changed:
            print(f"graph kept: {line}", flush=True)
        digest = content_hash(load_graph(folder))
    except StorageError:
        return None
    return card if digest == card.get("content_hash") and spec.content_hash in (None, digest) else None


def _bring(spec: DatasetSpec, mirror: Path | None, root: Path, forbidden: str | None) -> str:
    """Copy or download the raw files into `root`, and return their origin."""
    if spec.component is not None:
        absent = why_unavailable(spec, mirror, may_download=forbidden is None)
        if absent:
            raise DataError(f"dataset '{spec.name}': {absent}. Put it there, or correct FILES in {spec.component}.")
        return "own"
    if not spec.needs_files:
        return "generated" if spec.synthetic else "embedded"
    if mirror is None and forbidden is not None:
        raise DataError(
            f"{forbidden}, so dataset '{spec.name}' is not downloaded, and there is no mirror to take it from.\n"
            f"{_help(spec)}\nOr allow it: data.download: true."
        )
    if mirror is None:
        try:
            fetch(spec.url, spec.raw_files, root)
        except OSError as error:
            raise DataError(
                f"dataset '{spec.name}' could not be downloaded ({error}).\n{_help(spec)}\n{_WITHOUT}"
            ) from error
        return "download"
    mirror = Path(mirror)
    if not mirror.is_dir():
        raise DataError(f"dataset '{spec.name}': the mirror {mirror} is not a folder.\n{_help(spec)}")
    missing = [path for path in spec.raw_files if not (mirror / path).is_file()]
    if missing:
        raise DataError(f"dataset '{spec.name}': the mirror {mirror} lacks {', '.join(missing)}.\n{_help(spec)}")
    for path in spec.raw_files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(mirror / path, root / path)
        except OSError as error:
            raise DataError(f"dataset '{spec.name}': {mirror / path} cannot be read ({error}).") from error
    return "mirror"


_WITHOUT = (
    "To continue without it, set data.download: false: cells of datasets that need files are then shown as not run."
)


def _help(spec: DatasetSpec) -> str:
    """Return instructions to provide the files by hand, and the datasets that need no files."""
    files = "\n".join(f"  <mirror>/{path}" for path in spec.raw_files)
    if isinstance(spec.url, str):
        origin = spec.url if spec.url.endswith(ARCHIVES) else f"{spec.url}/<file name>"
    else:
        origin = ", ".join(spec.url.values())
    return (
        f"It needs these files, from {origin}:\n{files}\n"
        "Put them there and name the folder <mirror> as data.mirror in config.yaml or in FGLBENCH_MIRROR.\n"
        f"Datasets that need no files: {catalogue.free()}."
    )


def _check_raw(spec: DatasetSpec, path: str, root: Path, folder: Path, mirror: Path | None) -> None:
    """Refuse a raw file whose content differs from the catalogue, and keep a copy of it for inspection."""
    if spec.raw_files[path] is None:
        return
    try:
        content = raw.raw_content_hash(root / path)
        if content == spec.raw_files[path]:
            return
        problem = f"holds other data than the published file (content {content}, expected {spec.raw_files[path]})"
    except DataError as error:
        problem = f"is truncated, damaged or unsafe ({error})"
    aside = folder / "refused" / Path(path).name
    with replacing(aside) as temporary:
        shutil.copyfile(root / path, temporary)
    where = f"the mirror {mirror}" if mirror is not None else str(spec.url)
    untouched = " The mirror was left as it is." if mirror is not None else ""
    raise DataError(
        f"dataset '{spec.name}': {path} from {where} {problem}. A copy was set aside as {aside}.{untouched} "
        f"Replace the file by the published one ({spec.source}) and run the stage again."
    )


def _check_graph(spec: DatasetSpec, settings: ComponentSettings, graph: Graph) -> str:
    """Compare the graph with the catalogue, and return its content hash."""
    expected = spec.counts_for(settings.model_dump())
    present = len(set(graph.labels[graph.labels >= 0].tolist()))
    counts = Counts(graph.num_nodes, graph.num_edges, graph.num_features, present)
    digest = content_hash(graph)
    numbers = {key: (getattr(counts, key), getattr(expected, key)) for key in ("nodes", "edges", "features", "classes")}
    if spec.announced is not None:
        del numbers["edges"]
        numbers["stored edges"] = graph.cleaning["stored_entries"], spec.announced.entries
    problems = [f"{key} {one:,} instead of {other:,}" for key, (one, other) in numbers.items() if one != other]
    if spec.content_hash not in (None, digest):
        problems.append(f"content hash {digest} instead of {spec.content_hash}")
    if spec.component and spec.own_split != bool(graph.masks):
        problems.append(f"{'' if graph.masks else 'no '}masks, and SPLIT is {spec.own_split}")
    if problems:
        raise DataError(
            f"dataset '{spec.name}': the loader made another graph than {spec.component or 'the catalogue'} describes: "
            f"{'; '.join(problems)}. {_cause(spec)}"
        )
    return digest


def _cause(spec: DatasetSpec) -> str:
    """Return the likely reason why a graph differs from its description."""
    if spec.component is not None:
        return "Correct its constants, or its files, and run the stage again."
    if spec.announced is not None:
        return f"So its files are not the published ones ({spec.source})."
    return (
        "Its input was checked, so a library differs from the pinned one: compare 'fglbench doctor' with "
        "envs/constraints.txt."
    )


def _store(graph: Graph, folder: Path, card: DataCard) -> None:
    """Write both files or neither."""
    try:
        save_graph(graph, folder, card)
    except BaseException:
        _remove(folder)
        raise


def _remove(folder: Path) -> None:
    """Remove both files and their temporary files."""
    for path in (folder / GRAPH_CARD, folder / GRAPH_ARRAYS):
        path.unlink(missing_ok=True)
        remove_half_made(path)
