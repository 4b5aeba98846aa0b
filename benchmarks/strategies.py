"""Training time of each method relative to FedAvg, and of the plain loop relative to the engine.

The plain loop over clients exists for some methods only. GCN, hidden width 64, dropout 0.5, Louvain clients, without
evaluation, one torch thread. All methods and plain loops take turns, so that temporary load slows them alike; ratios
are medians over the turns.

    python benchmarks/strategies.py --datasets cora pubmed --methods scaffold fedgta --mirror DIR
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from engine_vs_oracle import LOCAL_EPOCHS, SEED, make_case  # this import also adds the tests' folder to sys.path

import oracle  # isort: skip
import plain_strategies  # isort: skip
from federations import TASK, Case, backbone_of, method_of, schedule_of  # isort: skip

from fglbench import registry
from fglbench.engine.loop import train
from fglbench.runtime.memory import keep_freed_memory
from fglbench.seeding import torch_stream

SETTINGS = {"depth": 2, "hidden": 64, "dropout": 0.5}
CLUSTERS = {"eps1": 1.0, "eps2": 0.0, "first_round": 5}  # GCFL with splits, in the engine


def engine_seconds(case: Case, name: str, rounds: int) -> float:
    """Return the seconds of the training loop as it records them."""
    federation = case.federation("gcn", propagate=not registry.declaration("method", name).changes_graph, **SETTINGS)
    backbone = backbone_of(federation, "gcn", **SETTINGS)
    method = method_of(federation, backbone, name, **(CLUSTERS if name.startswith("gcfl") else {}))
    schedule = schedule_of(rounds=rounds, local_epochs=LOCAL_EPOCHS)
    result = train(federation, method, TASK, schedule, SEED)
    if result.state != "ok":
        raise SystemExit(f"{name}: the run ended as '{result.state}' in round {result.diverged_round}")
    return result.train_seconds


def plain_loops(
    plan: oracle.Plan, initial: dict[str, torch.Tensor]
) -> dict[str, Callable[[], plain_strategies.Strategy]]:
    """Return the plain strategies by method; the plain GCFL never splits because it would try all cuts."""
    never = plan.rounds
    return {
        "fedavg": plain_strategies.Strategy,
        "fedprox": lambda: plain_strategies.FedProx(0.01),
        "scaffold": lambda: plain_strategies.Scaffold(plan, weighted=True, quotient=False),
        "moon": lambda: plain_strategies.Moon(0.01, 0.5, initial),
        "feddc": lambda: plain_strategies.FedDC(plan, 0.01, quotient=True, openfgl=True),
        "gcfl": lambda: plain_strategies.GCFL(plan, 1.0, 0.0, never),
        "gcfl+": lambda: plain_strategies.GCFL(plan, 1.0, 0.0, never, window=5),
        "fedgta": plain_strategies.FedGTA,
    }


def measure(case: Case, methods: list[str], rounds: int, plain_rounds: int, repeats: int) -> None:
    """Print one line per method."""
    federation = case.federation("gcn", **SETTINGS)
    initial = backbone_of(federation, "gcn", **SETTINGS).initial(torch_stream(SEED, "initialisation"))
    plan = oracle.Plan("gcn", SETTINGS, rounds=plain_rounds, local_epochs=LOCAL_EPOCHS)
    clients = oracle.clients_of(case.graph, case.nodes, case.ptr, case.role)
    names = ["fedavg", *(name for name in methods if name != "fedavg")]
    plain = {name: loop for name, loop in plain_loops(plan, initial).items() if name in names}
    engine_seconds(case, "fedavg", 2)
    ours: dict[str, list[float]] = {name: [] for name in names}
    theirs: dict[str, list[float]] = {name: [] for name in plain}
    for _ in range(repeats):
        for name in names:
            ours[name].append(engine_seconds(case, name, rounds) / rounds)
            if name in plain:
                began = time.perf_counter()
                plain_strategies.run(clients, federation.classes, initial, plan, plain[name]())
                theirs[name].append((time.perf_counter() - began) / plain_rounds)
    for name in names:
        to_fedavg = statistics.median(own / fedavg for own, fedavg in zip(ours[name], ours["fedavg"], strict=True))
        to_plain = [slow / own for slow, own in zip(theirs.get(name, []), ours[name], strict=False)]
        faster = f"{statistics.median(to_plain):10.1f}" if to_plain else f"{'':10}"
        print(f"{name:10} {1000 * statistics.median(ours[name]):10.1f} {to_fedavg:10.2f} {faster}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "pubmed", "physics"])
    known = [name for name in registry.names("method") if name != "global"]
    parser.add_argument("--methods", nargs="+", default=known, choices=known, help="beside fedavg (all)")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--plain-rounds", type=int, default=4, help="rounds of the plain loops")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--mirror", type=Path, default=None, help="folder of raw datasets; downloaded without")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training jobs do; it helps both loops
    for dataset in arguments.datasets:
        print(f"{dataset:10} {'ms a round':>10} {'to fedavg':>10} {'faster x':>10}")
        with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
            case = make_case(dataset, arguments.clients, arguments.mirror, Path(temporary))
            measure(case, arguments.methods, arguments.rounds, arguments.plain_rounds, arguments.repeats)


if __name__ == "__main__":
    main()
