"""Graph attention: a softmax over the sources of each target, and the weighted sum of their values.

All H heads form one sparse matrix with H rows for each target and H columns for each source. One product therefore
serves all heads, and a tensor [nodes, H * width] can be viewed as [nodes * H, width] without reordering. Values of
edges are in the order of this matrix: by target, then by head.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from fglbench.federation.operators import csr_tensor


class Edges:
    """Positions of the entries of a sparse matrix, repeated for each head.

    Args:
        matrix: [targets, sources] CSR with at least one entry in every row; its values are not used.
        heads: number of heads H.
        device: device of the products.

    Attributes:
        nnz: number of edges of one head.
        target: [edges * H] int32 row of each entry in the matrix of all heads.
        source: [edges * H] int32 column of each entry in the matrix of all heads.
    """

    def __init__(self, matrix: sp.csr_matrix, heads: int, device: torch.device | str = "cpu"):
        self._shape = matrix.shape[0] * heads, matrix.shape[1] * heads
        self.nnz = matrix.nnz
        number = matrix.nnz * heads
        sizes = np.repeat(np.diff(matrix.indptr), heads)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        target = np.repeat(np.arange(self._shape[0]), sizes)
        entry = np.arange(number) + np.repeat(np.repeat(matrix.indptr[:-1], heads) - indptr[:-1], sizes)
        source = matrix.indices[entry].astype(np.int64) * heads + target % heads
        order = np.argsort(source, kind="stable")  # entries by source
        by_source = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=self._shape[1]))])

        def tensor(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array.astype(np.int32)).to(device)

        self.target, self.source = tensor(target), tensor(source)
        self._indptr, self._by_source, self._order = tensor(indptr), tensor(by_source), tensor(order)
        self._offsets = self._indptr.long()
        self._target_by_source = tensor(target[order])
        ones = torch.ones(number, device=device)
        self._pattern = csr_tensor(self._indptr, self.source, ones, self._shape)
        every = torch.arange(number, dtype=torch.int32, device=device)
        self._to_targets = csr_tensor(self._indptr, every, ones, (self._shape[0], number))
        self._to_sources = csr_tensor(self._by_source, self._order, ones, (self._shape[1], number))

    def sum_by_target(self, values: Tensor) -> Tensor:
        """Sum the values of the edges of each target.

        Args:
            values: [edges * H] float32.

        Returns:
            [targets * H] float32.
        """
        return self._to_targets @ values

    def sum_by_source(self, values: Tensor) -> Tensor:
        """Sum the values of the edges of each source.

        Args:
            values: [edges * H] float32.

        Returns:
            [sources * H] float32.
        """
        return self._to_sources @ values

    def largest_by_target(self, values: Tensor) -> Tensor:
        """Compute the maximum over the edges of each target.

        Args:
            values: [edges * H] float32.

        Returns:
            [targets * H] float32.
        """
        return torch.segment_reduce(values, "max", offsets=self._offsets)

    def weighted(self, weights: Tensor, x: Tensor) -> Tensor:
        """Compute the weighted sum over the sources of each target.

        Args:
            weights: [edges * H] float32.
            x: [sources * H, width] float32.

        Returns:
            [targets * H, width] float32.
        """
        return csr_tensor(self._indptr, self.source, weights, self._shape) @ x

    def weighted_back(self, weights: Tensor, x: Tensor) -> Tensor:
        """Compute the weighted sum over the targets of each source, which is the transpose of `weighted`.

        Args:
            weights: [edges * H] float32.
            x: [targets * H, width] float32.

        Returns:
            [sources * H, width] float32.
        """
        rows = csr_tensor(
            self._by_source, self._target_by_source, weights.index_select(0, self._order), self._shape[::-1]
        )
        return rows @ x

    def dots(self, x: Tensor, y: Tensor) -> Tensor:
        """Compute the inner product of the target's row and the source's row for each edge.

        Args:
            x: [targets * H, width] float32.
            y: [sources * H, width] float32.

        Returns:
            [edges * H] float32.
        """
        products: Tensor = torch.sparse.sampled_addmm(self._pattern, x, y.T, beta=0.0).values()
        return products


def attend(x: Tensor, source: Tensor, target: Tensor, edges: Edges, slope: float, keep: Tensor | None = None) -> Tensor:
    """Compute the sum over sources s of alpha_ts x_s, alpha_t = softmax over s of LeakyReLU(source_s + target_t).

    This is graph attention (Velickovic et al., ICLR 2018, eq. 3 and 4). Its score is split into two terms, one for each
    half of the vector a.

    Args:
        x: [sources * H, width] float32 values of the sources.
        source: [sources * H] float32 term of the score for each source.
        target: [targets * H] float32 term of the score for each target.
        edges: the edges from sources to targets.
        slope: slope of the LeakyReLU for negative scores.
        keep: [edges * H] float32 factors that multiply alpha, such as a dropout mask; None for 1.

    Returns:
        [targets * H, width] float32.
    """
    out: Tensor = _Attend.apply(x, source, target, edges, slope, keep)  # type: ignore[no-untyped-call]
    return out


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
        to_score = torch.ops.aten.leaky_relu_backward(to_score, raw, ctx.slope, False)
        return to_x, edges.sum_by_source(to_score), edges.sum_by_target(to_score), None, None, None
