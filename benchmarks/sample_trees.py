"""Seconds of sampling a tree for each of a million nodes, the speed-up over sampling node by node, and gathering times.

Clients have block model graphs of their own. The sampler `tree` makes the draw. The batch holds the distinct rows that
the draw reads, with their features, and the positions of each target's rows. Sampling node by node is a Python loop
over targets, in which NumPy draws the neighbours of one node at a time; it runs on `--plain` targets, and its time is
scaled to all targets. The rows that each target reads are gathered, and their gradients summed, in five ways. One torch
thread; medians over repeats.

    python benchmarks/sample_trees.py --clients 1 10
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import embedding

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]

from fglbench.datasets.sbm import generate  # noqa: E402
from fglbench.datasets.spec import SbmSettings  # noqa: E402
from fglbench.engine.samples import sample_batch  # noqa: E402
from fglbench.federation.federation import Federation  # noqa: E402
from fglbench.federation.operators import selection  # noqa: E402
from fglbench.partition.ratios import TRAIN  # noqa: E402
from fglbench.runtime.memory import keep_freed_memory  # noqa: E402
from fglbench.samplers.tree import Sampler, Settings  # noqa: E402
from fglbench.seeding import numpy_stream  # noqa: E402

SEED, FEATURES, CLASSES = 0, 16, 5


def make_federation(nodes: int, clients: int) -> Federation:
    """Return one block model graph per client, all of equal size."""
    sizes = SbmSettings(nodes=nodes // clients, features=FEATURES, classes=CLASSES)
    graphs = [generate(sizes.model_copy(update={"seed": client})) for client in range(clients)]
    blocks = [sp.csr_matrix((np.ones(g.edges.shape[1], np.float32), g.edges), (g.num_nodes,) * 2) for g in graphs]
    return Federation(
        ptr=np.arange(clients + 1) * sizes.nodes,
        labels=np.concatenate([graph.labels for graph in graphs]),
        role=np.full(clients * sizes.nodes, TRAIN, dtype=np.int8),
        classes=CLASSES,
        adjacency=sp.block_diag(blocks, "csr"),
        x=np.concatenate([graph.features for graph in graphs]),
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def plain_trees(adjacency: sp.csr_matrix, targets: int, fanouts: list[int]) -> list[list[int]]:
    """Return the trees sampled node by node."""
    stream, trees = np.random.default_rng(SEED), []
    for target in range(targets):
        tree = level = [target]
        for fanout in fanouts:
            children: list[int] = []
            for node in level:
                known = adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]
                picked = known[stream.integers(len(known), size=fanout)].tolist() if len(known) else [node] * fanout
                children += picked
            tree, level = tree + children, children
        trees.append(tree)
    return trees


def print_sampling(clients: int, nodes: int, fanouts: list[int], plain: int, repeats: int) -> None:
    """Print one line: seconds of the draw and of the batch, and the speed-up of both over sampling node by node."""
    federation = make_federation(nodes, clients)
    sampler = Sampler(Settings(fanouts=fanouts), federation.adjacency)
    every, targets = np.arange(clients), np.arange(len(federation.labels))
    found = []
    for _ in range(repeats):
        streams = [numpy_stream(SEED, "sampling", client) for client in range(clients)]
        began = time.perf_counter()
        drawn = sampler.draw(targets, federation.ptr.tolist(), streams)
        drawn_s = time.perf_counter() - began
        batch_s = seconds(partial(sample_batch, federation, every, targets, drawn))
        node_by_node_s = seconds(partial(plain_trees, federation.adjacency, plain, fanouts)) * len(targets) / plain
        found.append((drawn_s, batch_s, drawn_s + batch_s, node_by_node_s / (drawn_s + batch_s)))
    columns = [statistics.median(column) for column in zip(*found, strict=True)]
    print(f"{clients:7} {len(targets):9,}" + "".join(f"{value:8.2f}" for value in columns[:3]) + f"{columns[3]:9.0f}")


def gather_and_back(way: Callable[[], Tensor], x: Tensor, gradient: Tensor) -> None:
    """Gather the rows and compute the gradient of their source."""
    torch.autograd.grad(way(), x, gradient)


def print_gathering(targets: int, size: int, rows: int, width: int, repeats: int) -> None:
    """Print one line: milliseconds of gathering and its gradient, for each of the five ways."""
    drawn = np.random.default_rng(SEED).integers(0, rows, targets * size)
    positions, narrow = torch.from_numpy(drawn), torch.from_numpy(drawn.astype(np.int32))
    x, gradient = torch.randn(rows, width).requires_grad_(), torch.randn(targets * size, width)
    kept = selection(drawn, rows)
    ways: list[Callable[[], Tensor]] = [
        lambda: x.index_select(0, positions),
        lambda: x.index_select(0, narrow),
        lambda: embedding(positions, x),
        lambda: kept @ x,
        lambda: selection(drawn, rows) @ x,
    ]
    turns = [[seconds(partial(gather_and_back, way, x, gradient)) for way in ways] for _ in range(repeats)]
    medians = [statistics.median(times) for times in zip(*turns, strict=True)]
    print(f"{targets:8,} {width:6}" + "".join(f"{1000 * median:12.2f}" for median in medians))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000, help="targets, of all clients together")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--fanouts", type=int, nargs="+", default=[6, 6])
    parser.add_argument("--plain", type=int, default=2000, help="targets that are sampled node by node")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as training jobs do
    print("Seconds of sampling; times faster than node by node\nclients   targets    draw   batch    both    times")
    for clients in arguments.clients:
        print_sampling(clients, arguments.nodes, arguments.fanouts, arguments.plain, arguments.repeats)
    names = ["index 64", "index 32", "embedding", "operator", "made anew"]
    print("\nMilliseconds of gathering what each target reads, with its gradient")
    print(f"{'targets':>8} {'width':>6}" + "".join(f"{name:>12}" for name in names))
    size = Sampler(Settings(fanouts=arguments.fanouts), sp.csr_matrix((1, 1), dtype=np.float32)).size
    for targets, rows in ((320, 3000), (2000, 5000), (10_000, 20_000)):
        for width in (16, 64):
            print_gathering(targets, size, rows, width, 3 * arguments.repeats)


if __name__ == "__main__":
    main()
