"""Training loop of the stacked engine against the plain loop, one client after another: seconds and their ratio.

GCN, hidden 64, dropout 0.5, FedAvg on Louvain clients, without evaluation, one torch thread. Repeats alternate between
the two loops, so that a machine that is busy now and then slows both.

    python benchmarks/engine_vs_oracle.py --datasets cora pubmed --mirror DIR
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "engine"), str(ROOT / "tests")]

import oracle  # noqa: E402
from federations import Case, backbone_of, method_of, schedule_of  # noqa: E402

from fglbench.datasets.base import load_graph  # noqa: E402
from fglbench.federation.loop import train  # noqa: E402
from fglbench.federation.memory import keep_freed_memory  # noqa: E402
from fglbench.seeding import torch_stream  # noqa: E402
from fglbench.stages.download import download  # noqa: E402
from fglbench.stages.split import load_split, split  # noqa: E402

HIDDEN, DROPOUT, LOCAL_EPOCHS, SEED = 64, 0.5, 3, 0


def make_case(dataset: str, clients: int, mirror: Path | None, folder: Path) -> Case:
    """Downloads (or takes from the mirror) and splits a dataset."""
    download({"name": dataset}, folder / "download", mirror)
    ratios = {"kind": "ratios", "train": 0.2, "val": 0.4, "test": 0.4, "empty": "keep"}
    spec = {"dataset": dataset, "scheme": "louvain", "clients": clients, "settings": {}, "split": ratios}
    split(folder / "download", spec, [SEED], folder / "split")
    made = load_split(folder / "split" / f"seed{SEED}")
    return Case(load_graph(folder / "download"), made.nodes, made.ptr, made.role, folder / "case")


def time_engine(case: Case, rounds: int, backbone_name: str = "gcn") -> float:
    """Seconds of the engine's training loop, as it records them itself."""
    settings = {"hidden": HIDDEN, "dropout": DROPOUT}
    federation = case.federation(backbone_name, **settings)
    backbone = backbone_of(federation, backbone_name, **settings)
    method = method_of(federation, backbone, "fedavg")
    schedule = schedule_of(rounds=rounds, local_epochs=LOCAL_EPOCHS)
    result = train(federation, backbone, method, schedule, SEED)
    if result.state != "ok":
        raise SystemExit(f"the engine's run ended as '{result.state}' in round {result.diverged_round}")
    return result.train_seconds


def time_oracle(case: Case, clients: list[oracle.Client], rounds: int) -> float:
    """Seconds of the plain loop."""
    federation = case.federation("gcn")
    initial = backbone_of(federation, "gcn", hidden=HIDDEN).initial(torch_stream(SEED, "initialisation"))
    plan = oracle.Plan(hidden=HIDDEN, dropout=DROPOUT, rounds=rounds, local_epochs=LOCAL_EPOCHS)
    loop = oracle.Loop(clients, federation.classes, initial, plan, SEED)
    began = time.perf_counter()
    for number in range(rounds):
        loop.round(number)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "pubmed", "physics"])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--slow-rounds", type=int, default=4, help="rounds of the plain loop on physics")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mirror", type=Path, default=None, help="folder of raw datasets; downloaded without")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training jobs do; it helps both loops
    print(f"{'dataset':12} {'engine s':>10} {'oracle s':>10} {'ratio':>7}  per {arguments.rounds} rounds; medians")
    for dataset in arguments.datasets:
        with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
            case = make_case(dataset, arguments.clients, arguments.mirror, Path(temporary))
            clients = oracle.clients_of(case.graph, case.nodes, case.ptr, case.role)
            slow = dataset == "physics"
            rounds = min(arguments.rounds, arguments.slow_rounds) if slow else arguments.rounds
            engine_rounds = min(arguments.rounds, 5 * rounds) if slow else rounds
            time_engine(case, 2)
            time_oracle(case, clients, 1)
            pairs = [
                (
                    time_engine(case, engine_rounds) * arguments.rounds / engine_rounds,
                    time_oracle(case, clients, rounds) * arguments.rounds / rounds,
                )
                for _ in range(arguments.repeats)
            ]
        engine, plain = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(slow_s / fast_s for fast_s, slow_s in pairs)
        print(f"{dataset:12} {engine:10.2f} {plain:10.2f} {ratio:7.1f}", flush=True)


if __name__ == "__main__":
    main()
