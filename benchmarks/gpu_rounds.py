"""Seconds per round on one GPU: the stacked engine against the plain loop, which trains one client after another.

Hidden width 64, dropout 0.5, FedAvg on Louvain clients, 3 local epochs, without evaluation. The two loops take turns.
Aim: the engine is 20 times faster on Cora with 10 clients. Without a GPU the benchmark prints a message and exits with
status 1.

    python benchmarks/gpu_rounds.py --datasets cora pubmed physics --mirror DIR
"""

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from engine_vs_oracle import make_case, plain_loop, time_engine  # this import also adds the tests' folder to sys.path

import oracle  # isort: skip
from federations import Case  # isort: skip

from fglbench.runtime.modes import MODES, before_torch, set_mode


def time_oracle(loop: oracle.Loop, rounds: int, device: str) -> float:
    """Return the seconds of a round of the plain loop."""
    _synchronise(device)
    began = time.perf_counter()
    for number in range(rounds):
        loop.round(number)
    _synchronise(device)
    return (time.perf_counter() - began) / rounds


def _synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def compare(case: Case, name: str, rounds: int, repeats: int, device: str) -> tuple[float, float, float]:
    """Return the median seconds of one round of the engine and of the plain loop, and the median of their ratios."""
    clients = [
        dataclasses.replace(client, **{field: value.to(device) for field, value in vars(client).items()})
        for client in oracle.clients_of(case.graph, case.nodes, case.ptr, case.role)
    ]
    time_engine(case, 2, name, device)  # the first use loads libraries and chooses algorithms
    loop = plain_loop(case, clients, name, device)
    loop.round(0)
    pairs = [
        (time_engine(case, 5 * rounds, name, device) / (5 * rounds), time_oracle(loop, rounds, device))
        for _ in range(repeats)
    ]
    engine_s, plain_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    return engine_s, plain_s, statistics.median(plain / engine for engine, plain in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "pubmed", "physics"])
    parser.add_argument("--backbones", nargs="+", default=["gcn"])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20, help="of the plain loop; the engine runs five times as many")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mode", choices=MODES, default="deterministic")
    parser.add_argument("--mirror", type=Path, default=None, help="folder of raw datasets; downloaded without")
    # The hidden option tests the script on the CPU; its times say nothing about a GPU.
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    before_torch(arguments.mode)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            f"torch {torch.__version__} sees no GPU here (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES')!r}), so there is nothing to measure. Run this on a machine with "
            "a card and a CUDA build of torch; benchmarks/engine_vs_oracle.py compares both loops on a CPU."
        )
    set_mode(arguments.mode, arguments.device)
    torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"{where}, {arguments.mode} mode, {arguments.clients} clients; ms per round, medians of {arguments.repeats}")
    print(f"{'dataset':12} {'backbone':8} {'engine':>10} {'plain loop':>10} {'ratio':>7}")
    for dataset in arguments.datasets:
        with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
            case = make_case(dataset, arguments.clients, arguments.mirror, Path(temporary))
            for name in arguments.backbones:
                found = compare(case, name, arguments.rounds, arguments.repeats, arguments.device)
                engine_s, plain_s, ratio = found
                print(f"{dataset:12} {name:8} {engine_s * 1e3:10.2f} {plain_s * 1e3:10.2f} {ratio:7.1f}", flush=True)


if __name__ == "__main__":
    main()
