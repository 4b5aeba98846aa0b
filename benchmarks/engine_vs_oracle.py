"""Training time of the stacked engine against the plain loop, which trains one client after another.

Hidden width 64, dropout 0.5, FedAvg on Louvain clients, without evaluation, one torch thread. Repeats alternate between
the two loops, so that temporary load slows both alike. The output is seconds and their ratio.

    python benchmarks/engine_vs_oracle.py --datasets cora pubmed --backbones gcn gat --mirror DIR
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "engine"), str(ROOT / "tests")]

import oracle  # noqa: E402
from federations import TASK, Case, backbone_of, method_of, schedule_of  # noqa: E402

from fglbench import registry  # noqa: E402
from fglbench.engine.loop import train  # noqa: E402
from fglbench.records.graph import load_graph  # noqa: E402
from fglbench.records.split import load_split  # noqa: E402
from fglbench.runtime.memory import keep_freed_memory  # noqa: E402
from fglbench.seeding import torch_stream  # noqa: E402
from fglbench.stages.download import download  # noqa: E402
from fglbench.stages.split import split  # noqa: E402

LOCAL_EPOCHS, SEED = 3, 0
SETTINGS = {"hidden": 64, "dropout": 0.5}


def make_case(dataset: str, clients: int, mirror: Path | None, folder: Path) -> Case:
    """Download a dataset (or take it from the mirror) and split it."""
    download({"name": dataset}, folder / "download", mirror)
    ratios = {"kind": "ratios", "train": 0.2, "val": 0.4, "test": 0.4, "empty": "keep"}
    spec = {"dataset": dataset, "scheme": "louvain", "clients": clients, "settings": {}, "split": ratios}
    split(folder / "download", spec, [SEED], folder / "split")
    made = load_split(folder / "split" / f"seed{SEED}")
    return Case(load_graph(folder / "download"), made.nodes, made.ptr, made.role, folder / "case")


def settings_of(backbone: str) -> dict[str, Any]:
    """Return this benchmark's hidden width and dropout; models that are linear in the paper get a perceptron."""
    linear = registry.declaration("backbone", backbone).settings(**SETTINGS).model_dump()["depth"] == 1
    return {**SETTINGS, **({"depth": 2} if linear else {})}


def time_engine(case: Case, rounds: int, name: str = "gcn", device: str = "cpu") -> float:
    """Return the seconds of the engine's training loop as it records them, after waiting for the device."""
    settings = settings_of(name)
    federation = case.federation(name, **settings)
    backbone = backbone_of(federation, name, **settings)
    method = method_of(federation, backbone, "fedavg")
    schedule = schedule_of(rounds=rounds, local_epochs=LOCAL_EPOCHS)
    result = train(federation, method, TASK, schedule, SEED, device=device)
    if result.state != "ok":
        raise SystemExit(f"the engine's run ended as '{result.state}' in round {result.diverged_round}")
    return result.train_seconds


def plain_loop(case: Case, clients: list[oracle.Client], name: str, device: str = "cpu") -> oracle.Loop:
    """Return the plain loop on the clients' device, with cached values such as A^k X; this may take minutes."""
    backbone = backbone_of(case.federation(name, **settings_of(name)), name, **settings_of(name))
    plan = oracle.Plan(backbone=name, settings=backbone.settings.model_dump(), local_epochs=LOCAL_EPOCHS)
    initial = backbone.initial(torch_stream(SEED, "initialisation"))
    loop = oracle.Loop(clients, case.graph.classes, initial, plan, SEED)
    for model in loop.models:
        model.to(device)
    loop.logits()
    return loop


def time_oracle(loop: oracle.Loop, rounds: int) -> float:
    """Return the seconds of further rounds of the plain loop."""
    began = time.perf_counter()
    for number in range(rounds):
        loop.round(number)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "pubmed", "physics"])
    parser.add_argument("--backbones", nargs="+", default=["gcn"], help="'all' for every one that the plain loop has")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0, help="of the plain loop in one repeat, about")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mirror", type=Path, default=None, help="folder of raw datasets; downloaded without")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training jobs do; it helps both loops
    backbones = list(oracle.MODELS) if arguments.backbones == ["all"] else arguments.backbones
    print(f"{'dataset':12} {'backbone':8} {'engine ms':>10} {'oracle ms':>10} {'ratio':>7}  per round; medians")
    ratios = []
    for dataset in arguments.datasets:
        with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
            case = make_case(dataset, arguments.clients, arguments.mirror, Path(temporary))
            clients = oracle.clients_of(case.graph, case.nodes, case.ptr, case.role)
            for name in backbones:
                engine_s, plain_s, ratio = compare(case, clients, name, arguments.seconds, arguments.repeats)
                ratios.append(ratio)
                print(f"{dataset:12} {name:8} {engine_s * 1e3:10.2f} {plain_s * 1e3:10.2f} {ratio:7.1f}", flush=True)
    print(f"lowest ratio {min(ratios):.1f}, median {statistics.median(ratios):.1f}")


def compare(
    case: Case, clients: list[oracle.Client], name: str, seconds: float, repeats: int
) -> tuple[float, float, float]:
    """Return the median seconds of one round of the engine and of the plain loop, and the median of their ratios."""
    time_engine(case, 2, name)
    loop = plain_loop(case, clients, name)
    rounds = max(1, min(100, round(seconds / time_oracle(loop, 1))))
    engine_rounds = min(100, 5 * rounds)
    pairs = [
        (time_engine(case, engine_rounds, name) / engine_rounds, time_oracle(loop, rounds) / rounds)
        for _ in range(repeats)
    ]
    engine_s, plain_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return engine_s, plain_s, statistics.median(plain / engine for engine, plain in pairs)


if __name__ == "__main__":
    main()
