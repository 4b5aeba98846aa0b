"""Link prediction: the stacked engine against client-by-client training with PyG, and the cost of FedVGAE's parts.

GCN with hidden width 64, 10 Metis clients, 5 local epochs per round, without evaluation, one torch thread. Each repeat
measures all kinds in turn, so that temporary load slows them alike.

    python benchmarks/links.py --datasets cora pubmed --mirror DIR
    python benchmarks/links.py --nodes 1000000
"""

import argparse
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "engine"), str(ROOT / "tests")]

import plain_links  # noqa: E402
from federations import Case, method_of, schedule_of  # noqa: E402
from torch_geometric.nn import GAE, InnerProductDecoder  # noqa: E402
from torch_geometric.utils import negative_sampling  # noqa: E402

from fglbench import registry  # noqa: E402
from fglbench.engine.loop import train  # noqa: E402
from fglbench.federation.federation import Federation  # noqa: E402
from fglbench.records.graph import load_graph  # noqa: E402
from fglbench.records.split import load_split  # noqa: E402
from fglbench.runtime.memory import keep_freed_memory  # noqa: E402
from fglbench.seeding import torch_stream  # noqa: E402
from fglbench.stages.download import download  # noqa: E402
from fglbench.stages.split import split  # noqa: E402
from fglbench.tasks import task_of  # noqa: E402
from fglbench.workflow.single import run_cell  # noqa: E402

LOCAL_EPOCHS, SEED, HIDDEN = 5, 0, 64
TASK = {"name": "link-prediction", "version": 1, "settings": {}}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gcn": ("gcn", "fedavg", {}),
    "vgae": ("vgae", "fedavg", {}),
    "contrast": ("vgae", "fedvgae", {"no_fine_tuning": True}),
    "fedvgae": ("vgae", "fedvgae", {}),
}


def make_case(dataset: str, clients: int, mirror: Path | None, folder: Path) -> Case:
    """Download a dataset (or take it from the mirror) and split its edges."""
    download({"name": dataset}, folder / "download", mirror)
    spec = {"dataset": dataset, "scheme": "metis", "clients": clients, "settings": {}, "split": {}, "task": TASK}
    split(folder / "download", spec, [SEED], folder / "split")
    made = load_split(folder / "split" / f"seed{SEED}")
    graph = load_graph(folder / "download")
    return Case(graph, made.nodes, made.ptr, made.role, folder / "case", pairs=made.pairs)


def time_engine(federation: Federation, kind: str, rounds: int) -> float:
    """Return the seconds of a round."""
    name, method, own = KINDS[kind]
    settings = registry.declaration("backbone", name).settings(hidden=HIDDEN, dropout=0.0)
    backbone = registry.module("backbone", name).Backbone(settings, federation.num_features, None)
    federated = method_of(federation, backbone, method, **own)
    schedule = schedule_of(rounds=rounds, local_epochs=LOCAL_EPOCHS)
    result = train(federation, federated, task_of({"task": TASK}), schedule, SEED)
    if result.state != "ok":
        raise SystemExit(f"the engine's run ended as '{result.state}' in round {result.diverged_round}")
    return result.train_seconds / rounds


class PlainLoop:
    """FedAvg in its usual form: a PyG model and an optimiser for each client."""

    def __init__(self, federation: Federation):
        self._clients = plain_links.clients_of(federation)
        self._models = [plain_links.Encoder(federation.num_features, HIDDEN, False) for _ in self._clients]
        start = registry.module("backbone", "gae").Backbone(
            registry.declaration("backbone", "gae").settings(hidden=HIDDEN), federation.num_features, None
        )
        for model in self._models:
            model.write(start.initial(torch_stream(SEED, "initialisation")))
        self._optimisers = [torch.optim.Adam(own.parameters(), lr=0.01, weight_decay=5e-4) for own in self._models]
        self._recon = GAE(torch.nn.Identity(), InnerProductDecoder())
        self._positive = [torch.from_numpy(own.links.T.copy()) for own in self._clients]

    def time(self, rounds: int) -> float:
        """Return the seconds of a round."""
        began = time.perf_counter()
        for _ in range(rounds):
            self._round()
        return (time.perf_counter() - began) / rounds

    def _round(self) -> None:
        for client, model, optimiser, positive in zip(
            self._clients, self._models, self._optimisers, self._positive, strict=True
        ):
            for _ in range(LOCAL_EPOCHS):
                optimiser.zero_grad()
                (z,) = model(client.x, client.edges)
                negative = negative_sampling(client.edges, len(client.x), positive.shape[1])
                self._recon.recon_loss(z, positive, negative).backward()
                optimiser.step()
        sizes = [own.shape[1] for own in self._positive]
        weights = [model.read() for model in self._models]
        mean = {
            name: sum(own[name] * (size / sum(sizes)) for own, size in zip(weights, sizes, strict=True))
            for name in weights[0]
        }
        for model in self._models:
            model.write(mean)  # type: ignore[arg-type]


def compare(dataset: str, clients: int, mirror: Path | None, seconds: float, repeats: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
        federation = make_case(dataset, clients, mirror, Path(temporary)).federation("gcn")
    plain = PlainLoop(federation)
    for kind in KINDS:
        time_engine(federation, kind, 2)
    rounds = max(2, round(seconds / plain.time(1)))
    rows = [
        {"plain": plain.time(rounds), **{kind: time_engine(federation, kind, 3 * rounds) for kind in KINDS}}
        for _ in range(repeats)
    ]
    medians = {name: statistics.median(row[name] for row in rows) * 1e3 for name in rows[0]}
    ratios = {
        f"{one} / {other}": statistics.median(row[one] / row[other] for row in rows)
        for one, other in (("plain", "gcn"), ("contrast", "vgae"), ("fedvgae", "vgae"))
    }
    print(
        f"{dataset:10}",
        "  ".join(f"{name} {value:.1f} ms" for name, value in medians.items()),
        " | ",
        "  ".join(f"{name} {value:.2f}" for name, value in ratios.items()),
        flush=True,
    )


def large(nodes: int) -> None:
    """Run three rounds on a block model with 1,000 MiB for the clients trained at once; the peak is of all stages."""
    values = {
        "datasets": [{"name": "sbm", "nodes": nodes, "classes": 10, "average_degree": 8.0, "features": 16}],
        "partitions": ["metis"],
        "clients": [10],
        "methods": ["fedavg"],
        "backbones": ["gcn"],
        "seeds": [0],
        "training": {"rounds": 3, "local_epochs": 1},
        "protocol": {"task": "link_prediction"},
        "device": "cpu",
        "jobs": {"memory_mb": 1000},
    }
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
        done = run_cell(values, Path(temporary))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"sbm of {nodes:,} nodes: {done['outcome']}, {time.perf_counter() - began:.0f} s in all stages, {peak:.1f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "pubmed"])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the plain loop in one repeat, about")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mirror", type=Path, default=None, help="folder of raw datasets; downloaded without")
    parser.add_argument("--nodes", type=int, default=None, help="of a block model, instead of datasets")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training jobs do; it helps both loops
    if arguments.nodes:
        large(arguments.nodes)
        return
    print("a round, medians; ratios are medians over repeats")
    for dataset in arguments.datasets:
        compare(dataset, arguments.clients, arguments.mirror, arguments.seconds, arguments.repeats)


if __name__ == "__main__":
    main()
