"""Attention over edges: a softmax over every target's sources, and the sum of the sources' values weighted by it.

Heads are blocks of one sparse matrix, with an entry (target, source) of every edge and head, so that one product serves
all heads. Tensors are head-major: rows of head 0, rows of head 1, ...; values of edges are in the matrix' order.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from fglbench.federation.operators import csr_tensor


class Edges:
    """Where a sparse matrix has entries, once for each head.

    Args:
        matrix: [targets, sources] CSR with an entry in every row; its values are not used.
        heads: number of heads H.
        device: where the products run.

    Attributes:
        nnz: edges.
        target, source: [H * edges] int32, row and column of every entry of the matrix of all heads.
    """

    def __init__(self, matrix: sp.csr_matrix, heads: int, device: torch.device | str = "cpu"):
        blocks = sp.block_diag([matrix] * heads, format="csr")
        self._shape = blocks.shape
        self.nnz = matrix.nnz
        indptr = blocks.indptr.astype(np.int32)
        order = np.argsort(blocks.indices, kind="stable").astype(np.int32)  # entries by source
        target = np.repeat(np.arange(blocks.shape[0], dtype=np.int32), np.diff(indptr))
        by_source = np.concatenate([[0], np.cumsum(np.bincount(blocks.indices, minlength=blocks.shape[1]))])

        def tensor(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array.astype(np.int32)).to(device)

        self.target, self.source = tensor(target), tensor(blocks.indices)
        self._indptr, self._by_source, self._order = tensor(indptr), tensor(by_source), tensor(order)
        self._offsets = self._indptr.long()
        self._target_by_source = tensor(target[order])
        ones, number = torch.ones(blocks.nnz, device=device), blocks.nnz
        self._pattern = csr_tensor(self._indptr, self.source, ones, self._shape)
        every = torch.arange(number, dtype=torch.int32, device=device)
        self._to_targets = csr_tensor(self._indptr, every, ones, (self._shape[0], number))
        self._to_sources = csr_tensor(self._by_source, self._order, ones, (self._shape[1], number))

    def sum_by_target(self, values: Tensor) -> Tensor:
        """[H * edges] -> [H * targets]."""
        return self._to_targets @ values

    def sum_by_source(self, values: Tensor) -> Tensor:
        """[H * edges] -> [H * sources]."""
        return self._to_sources @ values

    def largest_by_target(self, values: Tensor) -> Tensor:
        """[H * edges] -> [H * targets]."""
        return torch.segment_reduce(values, "max", offsets=self._offsets)

    def weighted(self, weights: Tensor, x: Tensor) -> Tensor:
        """Sums of sources: [H * edges], [H * sources, width] -> [H * targets, width]."""
        return csr_tensor(self._indptr, self.source, weights, self._shape) @ x

    def weighted_back(self, weights: Tensor, x: Tensor) -> Tensor:
        """Sums of targets: [H * edges], [H * targets, width] -> [H * sources, width]."""
        rows = csr_tensor(self._by_source, self._target_by_source, weights[self._order], self._shape[::-1])
        return rows @ x

    def dots(self, x: Tensor, y: Tensor) -> Tensor:
        """Inner products over edges: [H * targets, width], [H * sources, width] -> [H * edges]."""
        return torch.sparse.sampled_addmm(self._pattern, x, y.T, beta=0.0).values()


def attend(x: Tensor, source: Tensor, target: Tensor, edges: Edges, slope: float, keep: Tensor | None = None) -> Tensor:
    """Sum over sources s of alpha_ts x_s, alpha_t = softmax over s of LeakyReLU(source_s + target_t).

    Graph attention (Velickovic et al., ICLR 2018, eq. 3 and 4), its score split into the two halves of the vector a.

    Args:
        x: [H * sources, width] float32.
        source, target: [H * sources] and [H * targets] float32 halves of the scores.
        edges: who attends to whom.
        slope: of the LeakyReLU for negative scores.
        keep: [H * edges] factors on alpha, as of dropout; None for 1.

    Returns:
        [H * targets, width] float32.
    """
    return _Attend.apply(x, source, target, edges, slope, keep)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: Tensor, target: Tensor, edges: Edges, slope: float, keep: Tensor | None
    ) -> Tensor:
        raw = source.index_select(0, edges.source).add_(target.index_select(0, edges.target))
        score = leaky_relu(raw, slope)
        score -= edges.largest_by_target(score).index_select(0, edges.target)
        score.exp_()
        alpha = score.div_(edges.sum_by_target(score).index_select(0, edges.target))
        ctx.save_for_backward(x, raw, alpha, keep)
        ctx.edges, ctx.slope = edges, slope
        return edges.weighted(alpha if keep is None else alpha * keep, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, raw, alpha, keep = ctx.saved_tensors
        edges, gradient = ctx.edges, gradients[0].contiguous()
        to_x = edges.weighted_back(alpha if keep is None else alpha * keep, gradient)
        to_alpha = edges.dots(gradient, x)
        if keep is not None:
            to_alpha *= keep
        product = to_alpha.mul_(alpha)
        to_score = product - alpha * edges.sum_by_target(product).index_select(0, edges.target)
        to_score *= torch.where(raw > 0, 1.0, ctx.slope)
        return to_x, edges.sum_by_source(to_score), edges.sum_by_target(to_score), None, None, None
