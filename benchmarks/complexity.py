"""Growth of each method's cost with nodes, features and clients, beside the terms of table 1 of FedGTA.

Every client has a block model graph of its own, so its nodes and edges do not depend on the number of clients. One of
the three sizes varies at a time. Strategies train SGC, and the FGL models train their own backbone, with all training
nodes of a client in one step. Clients of FGL models have fewer nodes (`--smaller`) because these models compare pairs
of nodes. Each training runs in a process of its own with one thread; times are CPU seconds, so other processes on the
machine have little effect. All trainings are repeated, and the minimum is kept.

    python benchmarks/complexity.py --out results/complexity
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from complexity_figure import draw  # noqa: E402
from complexity_slopes import FACTORS, slopes, table  # noqa: E402
from complexity_terms import GENERATED, HOPS, LAYERS, ORDER, TABLE, WINDOW, Sizes  # noqa: E402
from federations import TASK, Case, backbone_of, case_of, method_of, schedule_of  # noqa: E402

from fglbench import registry  # noqa: E402
from fglbench.datasets.base import Graph  # noqa: E402
from fglbench.datasets.sbm import generate  # noqa: E402
from fglbench.datasets.spec import SbmSettings  # noqa: E402
from fglbench.engine.evaluation import Evaluator  # noqa: E402
from fglbench.engine.loop import train  # noqa: E402
from fglbench.methods.base import Method  # noqa: E402
from fglbench.partition.ratios import TEST, TRAIN, VAL  # noqa: E402
from fglbench.runtime.memory import keep_freed_memory  # noqa: E402
from fglbench.stages.preprocess import load_federation  # noqa: E402

LOCAL_EPOCHS, SEED = 3, 0
PRELOADED = [  # modules that a training imports (optimisers import torch._dynamo), loaded before the forks that measure
    "networkx",
    "pandas",
    "torch._dynamo",
    "fglbench.config.schema",
    "fglbench.engine.loop",
    "fglbench.stages.preprocess",
    "fglbench.stages.split",
]
WARM_UP = Sizes(nodes=40, features=4, clients=3, degree=2.0)
STRATEGY = ("sgc", {"hops": HOPS})
BACKBONES = {
    "fedgl": ("gcn", {"depth": LAYERS, "dropout": 0.0}),
    "fedsage+": ("sage", {"depth": LAYERS, "dropout": 0.0}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "gcfl+": {"eps1": 1e6, "eps2": 0.0, "first_round": 0, "window": WINDOW},  # splits at every opportunity
    "fedsage+": {"neighbours": GENERATED, "epochs": 1, "federated_epochs": 1},
    "fedgta": {"k": HOPS, "order": ORDER},
}


def make_case(sizes: Sizes, folder: Path) -> Case:
    """Return a federation with one block model graph per client; of five nodes, one trains and two validate."""
    graphs = [
        generate(
            SbmSettings(
                nodes=sizes.nodes,
                features=sizes.features,
                classes=sizes.classes,
                average_degree=sizes.degree,
                seed=client,
            )
        )
        for client in range(sizes.clients)
    ]
    edges = np.concatenate([graph.edges + client * sizes.nodes for client, graph in enumerate(graphs)], axis=1)
    whole = Graph(
        edges,
        np.concatenate([graph.features for graph in graphs]),
        np.concatenate([graph.labels for graph in graphs]),
        sizes.classes,
        cleaning={},
    )
    parts = np.split(np.arange(whole.num_nodes), sizes.clients)
    return case_of(whole, parts, np.resize([TRAIN, VAL, VAL, TEST, TEST], whole.num_nodes), folder)


def prepared(case: Case, method: str) -> tuple[Path, Path, dict[str, Any]]:
    """Return the arguments of `load_federation` for a method and its backbone."""
    name, settings = BACKBONES.get(method, STRATEGY)
    resolved: Any = registry.declaration("backbone", name).settings(**settings)
    spec = {**resolved.propagation().spec(), "features": "raw"}
    if registry.declaration("method", method).changes_graph:
        spec["propagate"] = False
    return case.graph_folder, case.preprocessed_folder(spec), spec


class Clock:
    """Records the CPU seconds at the start and end of a method's hooks, round by round."""

    def __init__(self, method: Method):
        self._calls: dict[str, list[tuple[float, float]]] = {}
        self._inside = False  # whether a hook is running, which may call another one
        for name in ("prepare", "phases", "download", "aggregate", "server_update", "rebuild", "finish"):
            setattr(method, name, self._noting(getattr(method, name), self._calls.setdefault(name, [])))

    def _noting(self, hook: Callable[..., Any], calls: list[tuple[float, float]]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            if self._inside:
                return hook(*arguments)
            self._inside, began = True, process_time()
            found = hook(*arguments)
            self._inside = False
            calls.append((began, process_time()))
            return found

        return noted

    @property
    def prepare_s(self) -> float:
        """Seconds before the first scored round: `prepare`, and all phases but the last one."""
        ((_, listed),) = self._calls["phases"]
        *earlier, _ = self._calls["finish"]
        phases_s = earlier[-1][1] - listed if earlier else 0.0
        return phases_s + sum(ended - began for began, ended in self._calls["prepare"])

    @property
    def server_s(self) -> list[float]:
        """Seconds of each round from the uploads to the end of `server_update`, as in the training loop."""
        return [ended - began for (began, _), (_, ended) in zip(*self._of("aggregate", "server_update"), strict=True)]

    @property
    def client_s(self) -> list[float]:
        """Seconds of each round for all clients together, without server and evaluation."""
        rounds = zip(*self._of("download", "aggregate", "server_update", "rebuild"), strict=True)
        return [
            uploaded - began + rebuilt - answered for (began, _), (uploaded, _), (_, answered), (_, rebuilt) in rounds
        ]

    def _of(self, *names: str) -> Iterator[list[tuple[float, float]]]:
        return (self._calls[name] for name in names)


def measure(name: str, folders: tuple[Path, Path, dict[str, Any]], rounds: int) -> dict[str, float]:
    """Measure the cost of one training in this process; it should be the first training of the process.

    The first round is left out because it includes one-time work. Seconds of a client are the median over rounds;
    seconds of the server are the mean because the server of GCFL+ works hard in some rounds only.

    Args:
        name: name of the method.
        folders: result of `prepared`.
        rounds: at least two.

    Returns:
        `client_s` and `inference_s` of the mean client, `server_s`, `prepare_s` (all clients, before the first round),
        `peak_mb` above the process memory before it read the graph, and `bytes` of the last round, up and down.
    """
    import torch

    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
        _train(name, prepared(make_case(WARM_UP, Path(temporary)), name), 2)
    before_mb = _reset_peak()
    clock, result, federation, backbone = _train(name, folders, rounds)
    peak_mb = _status_mb("VmHWM") - before_mb
    evaluator = Evaluator(result.graphs["last"], backbone, TASK, SEED, "cpu")
    seconds = []
    for _ in range(rounds):
        began = process_time()
        evaluator.stacked_logits(result.parameters["last"])
        seconds.append(process_time() - began)
    sent = [np.diff(result.history[way])[-1] for way in ("bytes_up", "bytes_down")]
    return {
        "client_s": statistics.median(clock.client_s[1:]) / federation.num_clients,
        "server_s": statistics.mean(clock.server_s[1:]),
        "peak_mb": peak_mb,
        "bytes": float(sum(sent)),
        "inference_s": statistics.median(seconds[1:]) / federation.num_clients,
        "prepare_s": clock.prepare_s,
    }


def _train(name: str, folders: tuple[Path, Path, dict[str, Any]], rounds: int) -> tuple[Any, ...]:
    federation = load_federation(*folders)
    backbone_name, settings = BACKBONES.get(name, STRATEGY)
    backbone = backbone_of(federation, backbone_name, **settings)
    method = method_of(federation, backbone, name, **SETTINGS.get(name, {}))
    clock = Clock(method)
    result = train(federation, method, TASK, schedule_of(rounds=rounds, local_epochs=LOCAL_EPOCHS), SEED)
    if result.state != "ok":
        raise RuntimeError(f"{name}: the run ended as '{result.state}' in round {result.diverged_round}")
    return clock, result, federation, backbone


def _status_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(field))) / 1024


def _reset_peak() -> float:
    """Reset the peak of resident memory to the current value and return it in MiB (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status_mb("VmRSS")


def sweep(
    methods: Sequence[str], base: Sizes, varied: dict[str, list[int]], smaller: int, rounds: int, repeats: int
) -> pd.DataFrame:
    """Return one row per method, factor and size, with the minimum of each quantity of `measure` over the repeats.

    Each row has the factor, that is the varied size, and all three sizes.

    Args:
        methods: methods of table 1.
        base: the base sizes, of which one varies at a time.
        varied: ascending sizes by factor.
        smaller: divisor of the number of nodes of FGL models' clients.
        rounds: rounds of each training.
        repeats: repetitions of all trainings.
    """
    points = [
        (method, factor, _sizes(base.at(factor, size), method, smaller))
        for method in methods
        for factor in FACTORS
        for size in varied[factor]
    ]
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    found: dict[tuple[str, Sizes], list[dict[str, float]]] = {(method, sizes): [] for method, _, sizes in points}
    with (
        tempfile.TemporaryDirectory(prefix="fglbench-") as temporary,
        ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool,
    ):
        cases: dict[Sizes, Case] = {}
        for _ in range(repeats):  # the outer loop, so that a busy period does not affect all repeats of one size
            for (method, sizes), known in found.items():
                if sizes not in cases:
                    cases[sizes] = make_case(sizes, Path(temporary) / str(len(cases)))
                known.append(pool.submit(measure, method, prepared(cases[sizes], method), rounds).result())
    return pd.DataFrame(
        {
            "method": method,
            "factor": factor,
            "nodes": sizes.nodes,
            "features": sizes.features,
            "clients": sizes.clients,
            **{name: min(own[name] for own in found[method, sizes]) for name in found[method, sizes][0]},
        }
        for method, factor, sizes in points
    )


def _sizes(sizes: Sizes, method: str, smaller: int) -> Sizes:
    return sizes.at("nodes", sizes.nodes // smaller) if method in BACKBONES else sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=TABLE, default=list(TABLE))
    parser.add_argument("--nodes", nargs="+", type=int, default=[1000, 2000, 4000, 8000, 16000], help="of a client")
    parser.add_argument("--features", nargs="+", type=int, default=[64, 128, 256, 512, 1024])
    parser.add_argument("--clients", nargs="+", type=int, default=[4, 8, 16, 32, 64])
    parser.add_argument("--base", nargs=3, type=int, default=[2000, 64, 8], metavar=("NODES", "FEATURES", "CLIENTS"))
    parser.add_argument("--smaller", type=int, default=8, help="what the nodes of FGL models' clients are divided by")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/complexity"), help="folder of the CSV and figure")
    arguments = parser.parse_args()
    varied = {factor: sorted(getattr(arguments, factor)) for factor in FACTORS}
    base = Sizes(*arguments.base)
    measured = sweep(arguments.methods, base, varied, arguments.smaller, arguments.rounds, arguments.repeats)
    found = slopes(measured)
    arguments.out.mkdir(parents=True, exist_ok=True)
    measured.to_csv(arguments.out / "complexity.csv", index=False)
    found.to_csv(arguments.out / "slopes.csv", index=False)
    draw(measured).savefig(arguments.out / "complexity.png")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
