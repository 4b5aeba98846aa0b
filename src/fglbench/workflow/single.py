"""Run one cell without Snakemake, with the same stages, folders and caches as the workflow.

Existing results of preprocessing and training are kept. With `own_process`, download, split and preprocessing run in a
child process, so that the memory of their libraries does not count as memory of training.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fglbench.config.expand import expand
from fglbench.config.identity import Cell
from fglbench.config.load import load_config, mirror_of
from fglbench.config.schema import Config
from fglbench.errors import DataError, ResourceError, StorageError
from fglbench.evaluation.client_means import value_of
from fglbench.records.component_files import changes, own_file, own_files
from fglbench.records.federation import FEDERATION, is_current, split_of
from fglbench.records.graph import GRAPH_CARD, read_card
from fglbench.records.metrics import METRICS, Metrics
from fglbench.records.run import RUN, RunRecord, is_complete
from fglbench.records.split import SPLIT_CARD, read_split_card
from fglbench.runtime.child import run_in_child
from fglbench.stages.options import Progress
from fglbench.stages.supervise import train_here
from fglbench.storage import exclusive, hash_file, read_json, write_json
from fglbench.tasks import selecting_metric, task_name

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Single:
    """A validated configuration with one cell, and the folders of its stages.

    Attributes:
        config: the configuration.
        cell: its only cell.
        results: the results folder.
        trained: the folder for training and evaluation; None: the results folder.
    """

    config: Config
    cell: Cell
    results: Path
    trained: Path | None = None

    def folder(self, stage: str) -> Path:
        """Return the folder in which a stage stores all seeds of the cell's partition or method.

        Args:
            stage: "download" (which has no seeds), "split", "preprocess", "train" or "evaluate".

        Returns:
            The path, which may not exist.
        """
        if stage == "download":
            return self.results / "download" / self.cell.dataset.slug
        return self.seed_folder(stage).parent

    def seed_folder(self, stage: str) -> Path:
        """Return the folder of the cell's seed.

        Args:
            stage: "split", "preprocess", "train" or "evaluate".

        Returns:
            The path, which may not exist.
        """
        folder = self.trained if stage in ("train", "evaluate") else None
        return (folder or self.results) / self.cell.folder(stage)


def one_cell(values: dict[str, Any], results: Path, source: str = COMMAND_LINE) -> Single:
    """Validate a configuration that describes one cell.

    Args:
        values: as in `config.yaml`, with one entry per list.
        results: the results folder.
        source: the name of the configuration in error messages.

    Returns:
        The configuration with its cell.

    Raises:
        ConfigError: with every problem found.
    """
    config = load_config(values, source)
    (cell,) = expand(config).cells
    return Single(config, cell, Path(results))


def run_cell(
    values: dict[str, Any],
    results: Path,
    *,
    threads: int = 1,
    force: bool = False,
    own_process: bool = False,
    progress: Callable[[int], Progress | None] = lambda seed: None,
) -> dict[str, Any]:
    """Download, split, preprocess, train and evaluate one cell. Existing results are kept.

    Args:
        values: as in `config.yaml`, with one entry per list.
        results: the results folder.
        threads: number of torch threads.
        force: whether to train again if the cell is trained already.
        own_process: whether to download, split and preprocess in a child process.
        progress: function from a seed to the callback for its rounds, or to None.

    Returns:
        See `run_single`.

    Raises:
        ConfigError: the configuration has problems.
        DataError: the dataset is unavailable, or does not fit the settings.
        PartitionError: the dataset cannot be partitioned with these settings.
        StorageError: a stored file is damaged.
    """
    single = one_cell(values, results)
    return run_single(single, threads=threads, force=force, own_process=own_process, progress=progress)


def run_single(
    single: Single,
    *,
    threads: int = 1,
    force: bool = False,
    own_process: bool = False,
    progress: Callable[[int], Progress | None] = lambda seed: None,
) -> dict[str, Any]:
    """Run a cell whose configuration is validated; errors as `run_cell`.

    Args:
        single: the configuration with its cell.
        threads: number of torch threads.
        force: whether to train again if the cell is trained already.
        own_process: whether to download, split and preprocess in a child process.
        progress: function from a seed to the callback for its rounds, or to None.

    Returns:
        The result of `scores_and_costs`, with `kept` (whether a stored training was kept) and `differences` (one line
        for each difference between the stored training and a new one, in mode, torch or component files).
    """
    from fglbench.stages.evaluate import evaluate

    cell, config = single.cell, single.config
    preprocessed = single.seed_folder("preprocess")
    files, trust = own_files(cell.specs), config.components.trust
    wanted = files if trust == "again" else None
    kept = not force and is_complete(single.seed_folder("train"), cell.id, split_of(preprocessed), wanted)
    _prepare_where_missing(single, own_process)
    if not kept:
        if force:
            with exclusive(single.seed_folder("train")):
                shutil.rmtree(single.seed_folder("train"), ignore_errors=True)
        train_here(
            single.folder("download"),
            single.folder("preprocess"),
            cell.specs,
            {cell.seed: cell.id},
            single.folder("train"),
            device=config.device,
            mode=config.mode,
            threads=threads,
            chunk_clients=config.jobs.chunk_clients,
            memory_mb=config.jobs.memory_mb,
            trust=trust,
            progress=progress,
        )
        _update_lists(single, "train", RUN)
    # Evaluation always runs: stored scores may belong to another run or an older evaluation, and it is cheap.
    trained, parts, graph = (single.folder(stage) for stage in ("train", "split", "download"))
    evaluate(trained, parts, graph, [cell.seed], single.folder("evaluate"))
    _update_lists(single, "evaluate", METRICS)
    but = RunRecord.read(single.seed_folder("train")).differences(config.mode, files) if kept else []
    return {**scores_and_costs(single), "kept": kept, "differences": but}


def _update_lists(single: Single, stage: str, name: str) -> None:
    """Update the checksum of a stage's new file in the workflow's lists, so that Snakemake sees the change."""
    file = single.seed_folder(stage) / name
    key, digest = f"{file.parent.name}/{name}", hash_file(file)
    for path in single.folder(stage).glob("seeds-*.json"):
        with suppress(StorageError, AttributeError):  # the workflow reports a damaged list
            listed = read_json(path)
            if listed.get(key, digest) != digest:
                write_json(path, {**listed, key: digest})


def divide(single: Single) -> None:
    """Download and split; errors as `run_cell`.

    Args:
        single: the configuration with its cell.
    """
    from fglbench.stages.download import download
    from fglbench.stages.split import split

    cell = single.cell
    graph, parts = single.folder("download"), single.folder("split")
    forbidden = None if single.config.data.download else "data.download: false"
    trust = single.config.components.trust
    download(cell.dataset.spec, graph, mirror_of(single.config), forbidden, trust)
    split(graph, cell.partition.spec, [cell.seed], parts, file=cell.partition.file, trust=trust)
    _update_lists(single, "split", SPLIT_CARD)


def prepare(single: Single) -> None:
    """Download, split and preprocess; errors as `run_cell`.

    Args:
        single: the configuration with its cell.
    """
    from fglbench.stages.preprocess import preprocess

    divide(single)
    cell, graph, parts = single.cell, single.folder("download"), single.folder("split")
    preprocess(graph, parts, cell.specs["prepared"], [cell.seed], single.folder("preprocess"))
    _update_lists(single, "preprocess", FEDERATION)


def _prepare_in_child(values: dict[str, Any], results: str) -> None:
    """Download, split and preprocess in a child process, whose arguments are JSON."""
    prepare(one_cell(values, Path(results)))


def _prepare_where_missing(single: Single, own_process: bool) -> None:
    """Download, split and preprocess, unless current results of these stages exist."""
    # The paths of split and preprocess contain a hash of all their inputs, including the version of the dataset.
    graph, parts = single.folder("download"), single.seed_folder("split")
    dataset_file = own_file("dataset", single.cell.dataset.spec["name"])
    scheme_file = own_file("scheme", single.cell.partition.spec["scheme"])
    if (
        (graph / GRAPH_CARD).exists()
        and (parts / SPLIT_CARD).exists()
        and is_current(single.seed_folder("preprocess"), parts, graph)
        and not changes(read_card(graph).get("component_files"), dataset_file)
        and not changes(read_split_card(parts).get("component_files"), scheme_file)
    ):
        return
    if not own_process:
        prepare(single)
        return
    values = single.config.model_dump(mode="json")
    ended = run_in_child(_prepare_in_child, {"values": values, "results": str(single.results)})
    if ended.status == 0:
        return
    if error := ended.fglbench_error():
        raise error
    what = f"the process that prepared '{single.cell.dataset.slug}' {ended}"
    if ended.out_of_memory:
        raise ResourceError(
            f"{what}, probably because memory ran out. Use a machine with more memory, or a smaller dataset."
        )
    raise DataError(f"{what}. The output above has its traceback.")


def scores_and_costs(single: Single) -> dict[str, Any]:
    """Return the scores and costs of a run.

    Args:
        single: a cell that is trained and evaluated.

    Returns:
        The name of the selecting score (`metric`) and its values at the protocol's reading, such as
        `test_accuracy_pooled`; None for missing values. `test_<metric>_nodes` is there only if clients share nodes.
        `selected_round` is the round of that reading, counted from 0. The other keys are the rounds, times (s), peak
        memory (MiB), bytes, outcome and reason of the record, the cell id, and the training folder.
    """
    metric = selecting_metric(task_name(single.cell.method.spec))
    record = RunRecord.read(single.seed_folder("train"))
    scores = Metrics.read(single.seed_folder("evaluate")).readings.get(single.config.protocol.reading)
    by_split = dict(scores.splits()) if scores else {}

    def score(split: str, mean: str) -> float | None:
        return value_of(by_split[split][metric], mean) if split in by_split else None

    shared = "test" in by_split and "node_mean" in by_split["test"][metric]
    return {
        "metric": metric,
        f"test_{metric}_pooled": score("test", "pooled"),
        f"test_{metric}_macro": score("test", "macro"),
        **({f"test_{metric}_nodes": score("test", "nodes")} if shared else {}),
        f"val_{metric}_pooled": score("val", "pooled"),
        f"global_test_{metric}": score("global_test", "macro"),
        "selected_round": scores.round if scores else None,
        **{
            key: getattr(record, key)
            for key in (
                "rounds_run",
                "train_seconds",
                "eval_seconds",
                "peak_memory_mb",
                "bytes_up",
                "bytes_down",
            )
        },
        "outcome": record.outcome.state,
        "reason": record.outcome.reason,
        "cell": single.cell.id,
        "folder": str(single.seed_folder("train")),
    }
