"""The plain models of the oracle: PyG's and torch's own layers on one client's graph, with dense features.

Their formulas are written down here once more, on propagated features that are formed, so that they share nothing with
the backbones but the names of the parameters.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import dropout, elu
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, SGConv, SSGConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

Weights = dict[str, Tensor]


class Model(torch.nn.Module):
    """Layers of PyG or torch with ReLU (gat: ELU) and dropout between them.

    A model sees one client's graph only, so that what it keeps of the propagated features is right.
    """

    activation = staticmethod(torch.relu)

    def __init__(self, settings: Mapping[str, Any], features: int, classes: int):
        super().__init__()
        self.settings = settings
        inner = [settings["hidden"]] * (settings["depth"] - 1)
        shapes = list(zip([features, *inner], [*inner, classes], strict=True))
        self.layers = torch.nn.ModuleList(self.layer(*shape, position) for position, shape in enumerate(shapes))

    def layer(self, columns: int, rows: int, position: int) -> torch.nn.Module:
        return torch.nn.Linear(columns, rows)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for position, layer in enumerate(self.layers):
            if position:
                x = dropout(self.activation(x), self.settings["dropout"], self.training)
            x = layer(x) if isinstance(layer, torch.nn.Linear) else layer(x, edges)
        return x

    def named(self) -> Weights:
        """Its parameters under the engine's names; matrices are stored transposed, [out, in]."""
        found: Weights = {}
        for position, layer in enumerate(self.layers):
            for name, tensor in self.parameters_of(layer).items():
                found[f"{position}.{name}"] = tensor
        return found

    def parameters_of(self, layer: Any) -> Weights:
        linear = layer if isinstance(layer, torch.nn.Linear) else layer.lin
        return {"weight": linear.weight, "bias": linear.bias}

    def read(self) -> Weights:
        """Detached copies in the engine's shapes: matrices [in, out], attention vectors flat."""
        return {
            name: (tensor.T if tensor.dim() == 2 else tensor.flatten()).detach().clone()
            for name, tensor in self.named().items()
        }

    def write(self, weights: Mapping[str, Tensor]) -> None:
        """Sets the parameters in place, so that an optimiser that holds them keeps its state."""
        with torch.no_grad():
            for name, tensor in self.named().items():
                tensor.copy_(weights[name].T if tensor.dim() == 2 else weights[name].view_as(tensor))


class GCN(Model):
    def layer(self, columns: int, rows: int, position: int) -> torch.nn.Module:
        return GCNConv(columns, rows, cached=False)

    def parameters_of(self, layer: Any) -> Weights:
        return {"weight": layer.lin.weight, "bias": layer.bias}


class SGC(Model):
    """Keeps A^k X, slow on dense features."""

    def layer(self, columns: int, rows: int, position: int) -> torch.nn.Module:
        if position:
            return torch.nn.Linear(columns, rows)
        return SGConv(columns, rows, K=self.settings["hops"], cached=True)


class S2GC(Model):
    def layer(self, columns: int, rows: int, position: int) -> torch.nn.Module:
        if position:
            return torch.nn.Linear(columns, rows)
        return SSGConv(columns, rows, alpha=self.settings["alpha"], K=self.settings["hops"], cached=True)


class SAGE(Model):
    def layer(self, columns: int, rows: int, position: int) -> torch.nn.Module:
        return SAGEConv(columns, rows)

    def parameters_of(self, layer: Any) -> Weights:
        return {
            "neighbours.weight": layer.lin_l.weight,
            "own.weight": layer.lin_r.weight,
            "bias": layer.lin_l.bias,
        }


class GAT(Model):
    activation = staticmethod(elu)

    def layer(self, columns: int, rows: int, position: int) -> torch.nn.Module:
        last = position == self.settings["depth"] - 1
        heads = 1 if last else self.settings["heads"]
        return GATConv(
            columns,
            rows // heads,
            heads,
            negative_slope=self.settings["slope"],
            dropout=self.settings["dropout"],
        )

    def parameters_of(self, layer: Any) -> Weights:
        return {"weight": layer.lin.weight, "source": layer.att_src, "target": layer.att_dst, "bias": layer.bias}


class Hops(Model):
    """Base of models on all hops, X to A^k X, which are formed once."""

    hops: list[Tensor] | None = None

    def propagated(self, x: Tensor, edges: Tensor) -> list[Tensor]:
        if self.hops is None:
            index, values = gcn_norm(edges, num_nodes=len(x), dtype=x.dtype)
            operator = torch.sparse_coo_tensor(index.flip(0), values, (len(x), len(x)), check_invariants=True)
            self.hops = [x]
            for _ in range(self.settings["hops"]):
                self.hops.append(operator @ self.hops[-1])
        return self.hops


class GBP(Hops):
    total: Tensor | None = None

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        if self.total is None:
            beta = self.settings["beta"]
            self.total = torch.zeros_like(x)
            for hop, own in enumerate(self.propagated(x, edges)):
                self.total = self.total + beta * (1 - beta) ** hop * own
        return super().forward(self.total, edges)


class SIGN(Hops):
    def __init__(self, settings: Mapping[str, Any], features: int, classes: int):
        hops, hidden = settings["hops"], settings["hidden"]
        super().__init__({**settings, "depth": settings["depth"] - 1}, (hops + 1) * hidden, classes)
        self.maps = torch.nn.ModuleList(torch.nn.Linear(features, hidden) for _ in range(hops + 1))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        mapped = [own(part) for own, part in zip(self.maps, self.propagated(x, edges), strict=True)]
        h = dropout(torch.cat(mapped, dim=1).relu(), self.settings["dropout"], self.training)
        return super().forward(h, edges)

    def named(self) -> Weights:
        found = {
            f"0.{hop}.{name}": tensor for hop, own in enumerate(self.maps) for name, tensor in own.named_parameters()
        }
        for position, layer in enumerate(self.layers, start=1):
            found |= {f"{position}.{name}": tensor for name, tensor in layer.named_parameters()}
        return found


class GAMLP(Hops):
    def __init__(self, settings: Mapping[str, Any], features: int, classes: int):
        super().__init__(settings, features, classes)
        joined = settings["hops"] + 2 if settings["attention"] == "jk" else 2
        self.score = torch.nn.Linear(features, joined, bias=False)  # its rows are one vector on [references, own]
        self.bias = torch.nn.Parameter(torch.zeros(1))
        self.activations = torch.nn.ModuleList(torch.nn.PReLU() for _ in range(settings["depth"] - 1))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        hops = self.propagated(x, edges)
        scores: list[Tensor] = []
        for own in hops:
            joined = torch.cat([*self.references(hops, scores), own], dim=1)
            scores.append(torch.sigmoid(joined @ self.score.weight.flatten() + self.bias))
        h = torch.einsum("nl,nlf->nf", torch.stack(scores, dim=1).softmax(1), torch.stack(hops, dim=1))
        for layer, activation in zip(self.layers, self.activations, strict=False):
            h = dropout(activation(layer(h)), self.settings["dropout"], self.training)
        return self.layers[-1](h)

    def references(self, hops: list[Tensor], scores: list[Tensor]) -> list[Tensor]:
        if self.settings["attention"] == "jk":
            return hops
        if not scores:
            return [hops[0]]
        return [torch.einsum("nl,nlf->nf", torch.stack(scores, dim=1).softmax(1), torch.stack(hops[: len(scores)], 1))]

    def named(self) -> Weights:
        slopes = {f"{layer}.slope": own.weight for layer, own in enumerate(self.activations)}
        return {**super().named(), **slopes, "attention.weight": self.score.weight, "attention.bias": self.bias}


MODELS: dict[str, type[Model]] = {
    "mlp": Model,
    "gcn": GCN,
    "sgc": SGC,
    "s2gc": S2GC,
    "gbp": GBP,
    "sign": SIGN,
    "gamlp": GAMLP,
    "sage": SAGE,
    "gat": GAT,
}
