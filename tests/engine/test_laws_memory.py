"""Laws of the engine: memory limits and reproducibility."""

import hashlib
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from federations import (
    Case,
    backbone_of,
    made_of,
    tiny_case,
)
from laws import HIDDEN, run

from fglbench import registry
from fglbench.federation.chunks import clients_at_once
from fglbench.federation.operators import no_dropout


def test_chunks_under_a_memory_limit(five: Case) -> None:
    federation = five.federation()
    request = backbone_of(federation, "gcn").propagation
    assert clients_at_once(federation, request, HIDDEN, 1000, None) is None
    assert clients_at_once(federation, request, HIDDEN, 1000, 10_000) == 5
    assert clients_at_once(federation, request, HIDDEN, 10**9, 1) == 1
    assert clients_at_once(federation, request, HIDDEN, 1000, 1) == 5
    assert clients_at_once(federation, request, HIDDEN, 1000, 1, edge_values=10_000) == 1
    assert clients_at_once(federation, request, HIDDEN, 1000, 1, pair_bytes=10**6) == 1
    limits = [clients_at_once(federation, request, 64, 2**20, memory) or 0 for memory in (1, 4, 8, 12, 16, 100)]
    assert limits == sorted(limits) and len(set(limits)) > 2


@pytest.mark.parametrize("name", registry.names("backbone"))
def test_no_layer_is_wider_than_the_memory_limit_counts(tmp_path: Path, name: str) -> None:
    federation = tiny_case(tmp_path, sparse=False).federation(name, hidden=HIDDEN, dropout=0.0)
    backbone = backbone_of(federation, name, hidden=HIDDEN, dropout=0.0)
    one = backbone.initial(torch.Generator().manual_seed(0))
    parameters = {part: tensor.repeat(3, *[1] * tensor.dim()).requires_grad_() for part, tensor in one.items()}
    batch = backbone.batch(federation, np.arange(3))
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = backbone.forward(parameters, batch, no_dropout)
    width = backbone.branches * max(tensor.shape[-1] for tensor in one.values())
    inner = {tensor.data_ptr() for tensor in (*parameters.values(), *batch.features)}
    rows = len(batch.targets)
    widest = [tensor.shape[1] for place, tensor in kept.items() if place not in inner and len(tensor) == rows]
    assert max([output.hidden.shape[1], *widest]) <= width
    assert name not in ("sign", "gamlp") or backbone.branches == backbone.hops + 1


@pytest.mark.parametrize(("sparse", "propagate"), [(True, True), (False, True), (False, False)])
def test_no_input_is_written_to(tmp_path: Path, sparse: bool, propagate: bool) -> None:
    federation = tiny_case(tmp_path, sparse=sparse).federation(propagate=propagate)
    rebuilding = {name for name in registry.names("method") if registry.declaration("method", name).changes_graph}
    methods = set(registry.names("method")) - {"global"} - (rebuilding if made_of(federation).hops else set())
    parts = [federation.labels, federation.ptr, federation.role]
    for matrix in (
        federation.adjacency,
        made_of(federation).operator,
        federation.features,
        *made_of(federation).features,
    ):
        parts += [matrix] if isinstance(matrix, np.ndarray) else [matrix.data, matrix.indices, matrix.indptr]
    before = [part.copy() for part in parts]
    for part in parts:
        part.flags.writeable = False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        for method in methods:
            run(federation, method, dropout=0.5, participation=0.7)
    assert all(np.array_equal(now, then) for now, then in zip(parts, before, strict=True))


_TWICE = """
import hashlib, sys
from pathlib import Path
from federations import tiny_case
from laws import run
result = run(tiny_case(Path(sys.argv[1])).federation(), "fedprox", dropout=0.5, participation=0.7, rounds=4)
digest = hashlib.sha256()
for reading in sorted(result.predictions):
    digest.update(result.predictions[reading].tobytes())
for kept in ("val", "last"):
    for name, tensor in sorted(result.parameters[kept].items()):
        digest.update(tensor.detach().contiguous().numpy().tobytes())
print(digest.hexdigest())
"""


def test_two_processes_give_the_same_bits(tmp_path: Path) -> None:
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent), str(here.parent.parent / "src")]
    digests = []
    for number in range(2):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": str(number)}
        done = subprocess.run(
            [sys.executable, "-c", _TWICE, str(tmp_path / str(number))],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        digests.append(done.stdout.split()[-1])
    assert digests[0] == digests[1]
    assert len(digests[0]) == hashlib.sha256().digest_size * 2


def test_two_equal_clients_differ_in_their_dropout_alone(five: Case) -> None:
    whole = five.federation()
    rows = np.tile(np.arange(five.ptr[1]), 2)
    own = whole.adjacency[rows[: five.ptr[1]]][:, rows[: five.ptr[1]]]
    twins = replace(
        whole,
        ptr=np.array([0, 12, 24]),
        labels=whole.labels[rows],
        role=whole.role[rows],
        adjacency=sp.block_diag([own, own], format="csr"),
        x=whole.features[rows],
        precomputed={},
    )
    for dropout, equal in ((0.0, True), (0.5, False)):
        losses = run(twins, "local", dropout=dropout).history["train_loss"]
        assert np.allclose(losses[:, 0], losses[:, 1], rtol=0, atol=1e-6) == equal


def test_seeds_differ_in_start_and_dropout(five: Case) -> None:
    federation = five.federation()
    one, other = (run(federation, "local", seed=seed, dropout=0.5, rounds=1).parameters["last"] for seed in (1, 2))
    assert not torch.equal(one["0.weight"], other["0.weight"])
    again = run(federation, "local", seed=1, dropout=0.5, rounds=1).parameters["last"]
    assert torch.equal(one["0.weight"], again["0.weight"])
