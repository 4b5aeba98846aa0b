"""The first product of a model, features times weights, and its gradient: sparse against dense features.

Prints the cost ratio at several densities of the features, which shows where both cost the same, and the share of a
training step that the first linear map takes on each dataset with either storage. FedAvg on Louvain clients, 20 %
training nodes, one torch thread. Repeats alternate between both storages, so that temporary load slows both alike.

    python benchmarks/first_product.py --datasets pubmed photo computers --backbones gcn gamlp --mirror DIR
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
import torch
from engine_vs_oracle import LOCAL_EPOCHS, SEED, make_case
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from federations import TASK, Case, backbone_of, method_of, schedule_of  # noqa: E402

from fglbench.engine.loop import train  # noqa: E402
from fglbench.federation import parameters as stacked  # noqa: E402
from fglbench.federation.operators import SparseOperator, no_dropout, stacked_linear  # noqa: E402
from fglbench.federation.propagation_batch import PropagationBatch  # noqa: E402
from fglbench.runtime.memory import keep_freed_memory  # noqa: E402
from fglbench.seeding import torch_stream  # noqa: E402

DATASETS = ["pubmed", "photo", "computers", "cora", "citeseer", "cs", "physics", "dblp"]
DENSITIES = (0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
CLIENTS, ROWS, COLUMNS = 10, 1000, 700  # clients, and shape of each client's features, in the grid of densities
LARGEST_DENSE_BYTES = 2**30


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratio(one: Callable[[], Any], other: Callable[[], Any], repeats: int) -> float:
    """Return the median ratio of the seconds of two calls, over pairs of calls."""
    one(), other()
    return statistics.median(timed(one) / timed(other) for _ in range(repeats))


def print_crossing(width: int, repeats: int) -> None:
    """Print one line per density: sparse seconds divided by dense ones, of the product and of its gradient."""
    for density in DENSITIES:
        forward, backward = sparse_to_dense(width, density, repeats)
        print(f"{width:6} {density:8.0%} {forward:8.2f} {backward:9.2f}", flush=True)


def sparse_to_dense(width: int, density: float, repeats: int) -> tuple[float, float]:
    """Return sparse seconds divided by dense ones, of the product with random features and of its gradient."""
    parts = [sp.random(ROWS, COLUMNS, density, "csr", np.float32, client) for client in range(CLIENTS)]
    sparse, dense = SparseOperator(sp.block_diag(parts, "csr")), torch.from_numpy(sp.vstack(parts).toarray())
    ptr = [ROWS * client for client in range(CLIENTS + 1)]
    weight, gradient = torch.randn(CLIENTS, COLUMNS, width).requires_grad_(), torch.randn(CLIENTS * ROWS, width)
    flat = weight.detach().flatten(0, 1)
    out = stacked_linear(dense, weight, ptr)
    forward = ratio(lambda: sparse.product(flat), lambda: stacked_linear(dense, weight, ptr), repeats)
    backward = ratio(
        lambda: sparse.transposed_product(gradient),
        lambda: torch.autograd.grad(out, weight, gradient, retain_graph=True),
        repeats,
    )
    return forward, backward


class Measured:
    """Training on one dataset with one storage of its features."""

    def __init__(self, case: Case, name: str, hidden: int):
        settings = {"hidden": hidden, "dropout": 0.5}
        self._federation = case.federation(name, **settings)
        self._backbone = backbone_of(self._federation, name, **settings)
        self._maps: list[Callable[[], None]] = []
        self._record_first_maps()

    def _record_first_maps(self) -> None:
        """Record the calls of both `input_linear` functions in a forward pass, to repeat each with its gradient."""
        one, per_hop = PropagationBatch.input_linear, PropagationBatch.input_linear_per_hop

        def record_one(batch: PropagationBatch, weight: Tensor) -> Tensor:
            leaf = weight.detach().requires_grad_()
            self._maps.append(lambda: _gradient([one(batch, leaf)], [leaf]))
            return one(batch, weight)

        def record_per_hop(batch: PropagationBatch, weights: Sequence[Tensor]) -> list[Tensor]:
            leaves = [weight.detach().requires_grad_() for weight in weights]
            self._maps.append(lambda: _gradient(per_hop(batch, leaves), leaves))
            return per_hop(batch, weights)

        federation, backbone = self._federation, self._backbone
        start = backbone.initial(torch_stream(SEED, "initialisation"))
        clients = np.flatnonzero(federation.count(1))
        batch = backbone.batch(federation, clients, TASK.objective(federation).targets)
        recorded = {"input_linear": record_one, "input_linear_per_hop": record_per_hop}
        with patch.multiple(PropagationBatch, **recorded):
            backbone.forward(stacked.stack(start, len(clients)), batch, no_dropout)

    def first_s(self) -> float:
        """Return the seconds of the first linear map and its gradient, with the propagation that is not precomputed."""
        return timed(lambda: [repeat() for repeat in self._maps])

    def step_s(self, rounds: int) -> float:
        """Return the seconds of a training step: the seconds of a round divided by its local epochs."""
        method = method_of(self._federation, self._backbone, "fedavg")
        schedule = schedule_of(rounds=rounds, local_epochs=LOCAL_EPOCHS)
        result = train(self._federation, method, TASK, schedule, SEED)
        return result.train_seconds / rounds / LOCAL_EPOCHS


def _gradient(outputs: list[Tensor], leaves: list[Tensor]) -> None:
    torch.autograd.grad(outputs, leaves, [torch.ones_like(output) for output in outputs])


def storages(case: Case, folder: Path) -> dict[str, Case]:
    """Return the case with sparse features and, up to `LARGEST_DENSE_BYTES`, with dense features."""
    features = case.graph.features
    found = {"sparse": sp.csr_matrix(features)}
    if 4 * np.prod(features.shape) <= LARGEST_DENSE_BYTES:
        found["dense"] = found["sparse"].toarray()
    return {
        name: replace(case, graph=replace(case.graph, features=features), folder=folder / name)
        for name, features in found.items()
    }


def print_shares(case: Case, label: str, name: str, hidden: int, rounds: int, repeats: int) -> None:
    """Print one line: milliseconds of a step with both storages and the share of the first map in it, as medians."""
    with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
        measured = {kind: Measured(own, name, hidden) for kind, own in storages(case, Path(temporary)).items()}
        seconds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in measured}
        for number in range(repeats + 1):
            for kind, training in measured.items():
                found = training.step_s(rounds), statistics.median(training.first_s() for _ in range(rounds))
                if number:  # the first repeat fills caches
                    seconds[kind].append(found)
    print(f"{label:12} {name:8} {hidden:6}", end="")
    for pairs in seconds.values():
        step_s = statistics.median(step for step, _ in pairs)
        print(f" {step_s * 1e3:10.1f} {statistics.median(first / step for step, first in pairs):7.0%}", end="")
    if len(seconds) > 1:
        pairs = zip(seconds["sparse"], seconds["dense"], strict=True)
        print(f" {statistics.median(one[0] / other[0] for one, other in pairs):8.2f}", end="")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="*", default=DATASETS)
    parser.add_argument("--backbones", nargs="+", default=["gcn"])
    parser.add_argument("--hidden", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=4, help="of one repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--mirror", type=Path, default=None, help="folder of raw datasets; downloaded without")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training jobs do
    print("Sparse seconds divided by dense ones\n hidden  density  product  gradient")
    for hidden in arguments.hidden:
        print_crossing(hidden, arguments.repeats)
    print("\nA training step, and the share of the first linear map and its gradient")
    print(f"{'dataset':12} {'backbone':8} {'hidden':>6}", end="")
    print(f" {'sparse ms':>10} {'share':>7} {'dense ms':>10} {'share':>7} {'ratio':>8}")
    for dataset in arguments.datasets:
        with tempfile.TemporaryDirectory(prefix="fglbench-") as temporary:
            case = make_case(dataset, arguments.clients, arguments.mirror, Path(temporary))
            for name in arguments.backbones:
                for hidden in arguments.hidden:
                    print_shares(case, dataset, name, hidden, arguments.rounds, arguments.repeats)


if __name__ == "__main__":
    main()
