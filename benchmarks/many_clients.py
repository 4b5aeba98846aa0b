"""Training seconds per round of FedAvg and FedGTA on SGC, from 50 to 500 clients.

Every client has a block model graph of its own, so its work does not depend on the number of clients; only FedGTA's
similarity matrix [C, C] may grow faster than that number. The two methods take turns, and the median over the turns is
kept; one torch thread, without evaluation. The output ends with the slopes of the least-squares line through (log
clients, log seconds), over all counts and over the two largest.

    python benchmarks/many_clients.py --clients 50 100 200 350 500
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from complexity import HOPS, SEED, make_case  # this import also adds the tests' folder to sys.path
from complexity_slopes import power_law
from complexity_terms import Sizes

from federations import TASK, Case, backbone_of, method_of, schedule_of  # isort: skip

from fglbench.engine.loop import train
from fglbench.runtime.memory import keep_freed_memory

METHODS = ["fedavg", "fedgta"]


def round_s(case: Case, method: str, rounds: int) -> float:
    """Return the seconds of a round as the training loop records them."""
    federation = case.federation("sgc", hops=HOPS)
    backbone = backbone_of(federation, "sgc", hops=HOPS)
    schedule = schedule_of(rounds=rounds, local_epochs=3)
    result = train(federation, method_of(federation, backbone, method), TASK, schedule, SEED)
    if result.state != "ok":
        raise SystemExit(f"{method}: the run ended as '{result.state}' in round {result.diverged_round}")
    return result.train_seconds / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 100, 200, 350, 500])
    parser.add_argument("--nodes", type=int, default=200, help="of a client")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    print(f"{'clients':10}" + "".join(f"{method + ' ms':>12}" for method in METHODS) + f"{'to fedavg':>12}")
    for clients in arguments.clients:
        with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
            case = make_case(Sizes(arguments.nodes, arguments.features, clients), Path(temporary))
            turns = [[round_s(case, method, arguments.rounds) for method in METHODS] for _ in range(arguments.repeats)]
        for method, seconds in zip(METHODS, zip(*turns, strict=True), strict=True):
            found[method].append(statistics.median(seconds))
        ratio = statistics.median(fedgta / fedavg for fedavg, fedgta in turns)
        times = "".join(f"{1000 * found[method][-1]:12.1f}" for method in METHODS)
        print(f"{clients:<10}{times}{ratio:12.2f}", flush=True)
    for name, last in [("slope", 0), ("largest", -2)]:
        laws = [power_law(arguments.clients[last:], found[method][last:]) for method in METHODS]
        print(f"{name:10}" + "".join(f"{law.slope:12.2f}" for law in laws))


if __name__ == "__main__":
    main()
