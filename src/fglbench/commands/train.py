"""`fglbench train`: run one cell without Snakemake."""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from fglbench.commands import components, overrides
from fglbench.evaluation.quantities import Quantity, quantity

TRAINING = {
    "rounds": (int, "communication rounds"),
    "local_epochs": (int, "passes over its training nodes that a client makes in a round"),
    "hidden": (int, "hidden width of the backbone"),
    "lr": (float, "learning rate"),
    "weight_decay": (float, "L2 penalty"),
    "dropout": (float, "dropout of the backbone"),
    "participation": (float, "fraction of clients drawn for a round"),
    "optimiser": (str, "adam or sgd"),
}
PROTOCOL = {
    "evaluate": "score parameters 'aggregated' (after the server's step) or 'trained' (before it)",
    "setting": "training sees whole client graphs ('transductive'), or these without their validation and test nodes "
    "('inductive')",
    "features": "'raw' as published, 'row': each row divided by its sum, or 'identity': one-hot ids of the nodes",
}
SCORES = ("test_{}_pooled", "test_{}_macro", "val_{}_pooled")
NODES = "test_{}_nodes"
JOBS = {"chunk_clients": "clients trained at once", "memory_mb": "memory for client chunks, in MiB"}


def positive(text: str) -> int:
    """Return an option's text as a number of at least 1.

    Args:
        text: the text of an integer.

    Returns:
        The integer.

    Raises:
        ValueError: the text is not an integer; argparse then names the option.
        argparse.ArgumentTypeError: the integer is below 1.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def add_partition(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a partition.

    Args:
        parser: the parser of a command.
    """
    parser.add_argument("--dataset", required=True, metavar="NAME")
    parser.add_argument("--scheme", default="louvain", metavar="NAME", help="partition scheme (louvain)")
    parser.add_argument("--clients", type=int, default=10, metavar="N", help="(10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(0)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="KEY=VALUE",
        help="any setting: mu=0.01, dataset.nodes=1000, scheme.alpha=0.1, protocol.split.train=0.6; may be repeated",
    )


def partition_values(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that select a partition as part of a configuration.

    Args:
        args: the parsed options.

    Returns:
        Values as in `config.yaml`, with one entry in each list.
    """
    return {
        "datasets": [{"name": args.dataset}],
        "partitions": [{"name": args.scheme}],
        "clients": [args.clients],
        "seeds": [args.seed],
        "data": {"mirror": args.mirror},
        "components": args.components,
    }


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command.

    Args:
        parser: the parser of the command.
    """
    add_partition(parser)
    parser.add_argument("--method", default="fedavg", metavar="NAME", help="(fedavg)")
    parser.add_argument("--backbone", default="gcn", metavar="NAME", help="(gcn)")
    for name, (kind, text) in TRAINING.items():
        parser.add_argument(_option(name), type=kind, metavar=kind.__name__.upper(), help=text)
    for name, text in PROTOCOL.items():
        parser.add_argument(_option(name), metavar="WORD", help=text)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="(auto)")
    parser.add_argument("--mode", choices=["deterministic", "fast"], default="deterministic", help="(deterministic)")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="threads of torch (1)")
    for name, text in JOBS.items():
        parser.add_argument(_option(name), type=int, metavar="N", help=text)
    parser.add_argument("--force", action="store_true", help="train again even if the cell is finished")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print as the last line a JSON object with the scores and costs; its rounds count from 0, as in run.json",
    )


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def values_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options as a configuration with one cell.

    Args:
        args: the parsed options.

    Returns:
        Values as in `config.yaml`, with one entry in each list.

    Raises:
        ConfigError: `--set` names an unknown setting.
        ComponentError, DataError: no such component.
    """
    components.use_folders(args.components)
    values: dict[str, Any] = {
        **partition_values(args),
        "methods": [{"name": args.method}],
        "backbones": [{"name": args.backbone}],
        "training": _given(args, TRAINING),
        "protocol": _given(args, PROTOCOL),
        "jobs": _given(args, JOBS),
        "device": args.device,
        "mode": args.mode,
    }
    overrides.apply(args.assignments, values)
    return values


def _given(args: argparse.Namespace, names: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def run(args: argparse.Namespace) -> int:
    """Run the cell and print its scores and costs.

    Args:
        args: the parsed options.

    Returns:
        Exit status: 0 if the outcome is "ok", else 1.

    Raises:
        ConfigError, ComponentError, DataError: see `values_of`.
        DeviceError: `--device cuda`, and there is no GPU.
        ConfigError, DataError, PartitionError, StorageError: see `workflow.single.run_cell`.
    """
    from fglbench.commands.progress import progress_bars
    from fglbench.config.schema import Training
    from fglbench.runtime.devices import claimed_device
    from fglbench.storage import check_writable
    from fglbench.workflow.single import run_cell

    check_writable(Path(args.results))
    values = values_of(args)
    rounds = values["training"].get("rounds", Training().rounds)
    with claimed_device(args.device):
        result = run_cell(
            values,
            Path(args.results),
            threads=args.threads,
            force=args.force,
            own_process=True,
            progress=progress_bars(rounds),
        )
    result["total_seconds"] = time.perf_counter() - args.began
    print(_text(result))
    if args.json:
        print(json.dumps(result), flush=True)
    return 0 if result["outcome"] == "ok" else 1


def _text(result: dict[str, Any]) -> str:
    where = f"{result['cell']} in {result['folder']}" + (", kept (--force trains again)" if result["kept"] else "")
    lines = {"cell": where} | ({"differences": "; ".join(result["differences"])} if result["differences"] else {})
    lines |= {"outcome": result["outcome"] + (f": {result['reason']}" if result["reason"] else "")}
    if result["outcome"] == "ok":
        metric, shown = result["metric"], quantity(result["metric"])
        test, macro, val = (_printed(result[name.format(metric)], shown) for name in SCORES)
        once = (
            f", {_printed(result[NODES.format(metric)], shown)} every node once"
            if NODES.format(metric) in result
            else ""
        )
        lines[f"test {shown.title}"] = f"{test} pooled, {macro} mean over clients{once}"
        lines["validation"] = f"{val} pooled, round {result['selected_round'] + 1} of {result['rounds_run']} selected"
    training, evaluating, whole = (result[f"{name}_seconds"] for name in ("train", "eval", "total"))
    lines["seconds"] = f"{training:.2f} training, {evaluating:.2f} evaluating, {whole:.2f} this command"
    lines["peak memory"] = f"{result['peak_memory_mb']:.0f} MiB"
    lines["sent"] = f"{result['bytes_up'] / 2**20:.2f} MiB up, {result['bytes_down'] / 2**20:.2f} MiB down"
    return "\n".join(f"{label:<13}  {text}" for label, text in lines.items())


def _printed(value: float | None, shown: Quantity) -> str:
    return "none" if value is None else f"{shown.shown(value):.2f} {shown.unit}".strip()
