"""A backbone from any PyTorch model: an ordinary `torch.nn.Module` on (x, edge_index), called client by client.

The operations of the module have no client axis. Therefore each client's forward pass is a separate call through
`torch.func.functional_call`, with the client's parameters and buffers. Such a backbone works under every method that
does not require a particular backbone (FedSage and FedSage+ require sage). It is several times slower than a stacked
backbone. Node features are made dense.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fglbench.backbones import base
from fglbench.backbones.base import Dropout
from fglbench.errors import ComponentError
from fglbench.federation.features import dense_rows
from fglbench.federation.federation import Federation
from fglbench.federation.operators import SparseOperator, client_means
from fglbench.federation.parameters import Parameters
from fglbench.federation.step import Output


@dataclass(frozen=True)
class ModuleBatch:
    """The whole graphs of some clients, and the nodes whose outputs are computed; a `Batch`.

    Attributes:
        clients, targets, target_ptr, labels, client_mean: as in `Batch`.
        graphs: for each client x [n, num_features] float32, edge_index [2, e] int64 with the client's own node numbers,
            and the positions of its targets [t] int64.
    """

    clients: np.ndarray
    targets: Tensor
    target_ptr: list[int]
    labels: Tensor
    client_mean: SparseOperator
    graphs: list[tuple[Tensor, Tensor, Tensor]]

    def at_targets(self, x: Tensor, level: int) -> Tensor:
        """Return `x` as it is, because `forward` keeps hidden rows of the targets only.

        Args:
            x: [T, width] float32 rows of the targets.
            level: not used.

        Returns:
            [T, width] float32.
        """
        return x


class ModuleBackbone(base.Backbone):
    """A backbone around `model`, a class of modules that is constructed with (features, outputs, settings).

    The head is the last child of the module that has parameters, unless `head_child` names another submodule. The input
    of the head is the representation. The normalisation consists of the parameters and floating-point buffers of the
    submodules whose class name contains "Norm". Integer buffers belong to the module and are the same for all clients.

    Raises:
        AttributeError: `head_child` is not the name of a submodule.
        ComponentError: the head is a container of layers or a normalisation, or running statistics are cumulative
            averages (momentum=None).
    """

    model: type[nn.Module]
    head_child: str = ""

    def __init__(self, settings: Any, features: int, outputs: int | None):
        super().__init__(settings, features, outputs)
        self.hops = self.propagations = 0
        with _seeded(0):
            self._module = self.model(features, self.outputs, settings)
        children = [name for name, child in self._module.named_children() if list(child.parameters())]
        self._head = self.head_child or (children[-1] if children else "")
        self._check_head_and_statistics()
        self.head = [name for name, _ in self._module.named_parameters() if name.startswith(f"{self._head}.")]
        self.norms = [
            f"{prefix}.{name}"
            for prefix, child in self._module.named_modules()
            if "Norm" in type(child).__name__
            for name, _ in (*child.named_parameters(recurse=False), *self._floating(child))
        ]

    def _check_head_and_statistics(self) -> None:
        where = f"{type(self).__module__}: {self.model.__name__}"
        head = self._module.get_submodule(self._head)
        if self._head and (isinstance(head, nn.ModuleList | nn.ModuleDict) or "Norm" in type(head).__name__):
            raise ComponentError(
                f"{where}: its head '{self._head}' is a {type(head).__name__}, not a layer with weights. "
                'Name the last layer in the class Backbone, for example: head_child = "convs.1".'
            )
        if any(getattr(child, "momentum", 0.0) is None for child in self._module.modules()):
            raise ComponentError(f"{where}: running statistics with momentum=None are not supported. Set a momentum.")

    @staticmethod
    def _floating(module: nn.Module, recurse: bool = False) -> Iterator[tuple[str, Tensor]]:
        return ((name, buffer) for name, buffer in module.named_buffers(recurse=recurse) if buffer.is_floating_point())

    def initial(self, generator: torch.Generator) -> Parameters:
        with _seeded(generator.initial_seed()):
            module = self.model(self.features, self.outputs, self.settings)
        return {name: tensor.detach() for name, tensor in module.named_parameters()}

    def buffers(self, generator: torch.Generator) -> Parameters:
        return {name: tensor.detach().clone() for name, tensor in self._floating(self._module, recurse=True)}

    def batch(
        self,
        federation: Federation,
        clients: np.ndarray,
        targets: np.ndarray | None = None,
        *,
        draw_neighbours: Any = None,
        device: torch.device | str = "cpu",
    ) -> ModuleBatch:
        self._module.to(device)
        rows = federation.rows_of(clients) if targets is None else targets
        graphs, target_ptr = [], [0]
        for client in clients:
            start, stop = federation.ptr[client : client + 2]
            x = dense_rows(federation.features[np.arange(start, stop)], device)
            edges = federation.adjacency[start:stop, start:stop].tocoo()
            edge_index = torch.from_numpy(np.stack([edges.col, edges.row]).astype(np.int64)).to(device)
            positions = rows[slice(*np.searchsorted(rows, [start, stop]))] - start
            graphs.append((x, edge_index, torch.from_numpy(positions).to(device)))
            target_ptr.append(target_ptr[-1] + len(positions))
        return ModuleBatch(
            clients=np.asarray(clients),
            targets=torch.from_numpy(rows).to(device),
            target_ptr=target_ptr,
            labels=torch.from_numpy(federation.labels[rows]).to(device),
            client_mean=client_means(target_ptr, device),
            graphs=graphs,
        )

    def forward(self, parameters: Parameters, batch: ModuleBatch, dropout: Dropout) -> Output:
        self._module.train(dropout.training)
        names = [name for name, _ in self._floating(self._module, recurse=True)]
        seeds = dropout.seeds()
        logits, hidden = [], []
        moved: dict[str, list[Tensor]] = {name: [] for name in names if dropout.training}
        for index, (x, edge_index, targets) in enumerate(batch.graphs):
            client_tensors = {name: tensor[index] for name, tensor in parameters.items()}
            # A training pass writes to the buffers.
            client_tensors |= {name: client_tensors[name].clone() for name in names}
            with _seeded(seeds[index] if seeds else None), _reading(self._module, self._head) as read:
                out = functional_call(self._module, client_tensors, (x, edge_index))
            if self._head and not read:
                raise ComponentError(
                    f"{type(self).__module__}: {self.model.__name__} does not call its child '{self._head}', which "
                    "therefore cannot be the head. Set head_child in the class Backbone to a child that it calls."
                )
            logits.append(out[targets])
            hidden.append(read[0][targets] if read else out[targets])
            for name, values in moved.items():
                values.append(client_tensors[name])
        updated = {name: torch.stack(values) for name, values in moved.items()}
        return Output(torch.cat(logits), torch.cat(hidden), buffers=updated)


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Seed torch's global generators inside the context, and restore their state afterwards; None: no change."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def _reading(module: nn.Module, child: str) -> Iterator[list[Tensor]]:
    """Yield a list that receives the first argument of each call of a child inside the context."""
    read: list[Tensor] = []
    if not child:
        yield read
        return
    handle = module.get_submodule(child).register_forward_pre_hook(lambda _, arguments: read.append(arguments[0]))
    try:
        yield read
    finally:
        handle.remove()
