"""Products for all clients at once: constant sparse matrices, and linear maps with stacked weights.

Rows of a stacked matrix are grouped by client: rows `ptr[c]:ptr[c + 1]` belong to the c-th client.
"""

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

_LARGEST_INT32 = 2**31 - 1


class SparseOperator:
    """A constant sparse matrix; `operator @ dense` is differentiable in `dense`.

    The backward pass needs the transpose, which is built on its first use; evaluation alone does not build it. Indices
    are 32-bit if they fit, which halves the memory traffic of 64-bit indices.

    Args:
        matrix: [rows, columns] CSR, float32 values.
        device: device of the products.
    """

    def __init__(self, matrix: sp.csr_matrix, device: torch.device | str = "cpu"):
        self._matrix = matrix
        self._device = device
        self._csr = _to_torch(matrix, device)
        self._transposed: Tensor | None = None

    @property
    def matrix(self) -> sp.csr_matrix:
        """The matrix as SciPy CSR, which must not be modified."""
        return self._matrix

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        rows, columns = self._matrix.shape
        return int(rows), int(columns)

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return int(self._matrix.nnz)

    def __matmul__(self, dense: Tensor) -> Tensor:
        product: Tensor = _SparseProduct.apply(dense, self)  # type: ignore[no-untyped-call]
        return product

    def product(self, dense: Tensor) -> Tensor:
        """Compute matrix @ dense outside autograd.

        Args:
            dense: [columns, width] float32.

        Returns:
            [rows, width] float32.
        """
        return product(self._csr, dense)

    def transposed_product(self, dense: Tensor) -> Tensor:
        """Compute matrix.T @ dense outside autograd.

        Args:
            dense: [rows, width] float32.

        Returns:
            [columns, width] float32.
        """
        if self._transposed is None:
            self._transposed = _to_torch(self._matrix.T.tocsr(), self._device)
        return product(self._transposed, dense)


def selection(rows: np.ndarray, size: int, device: torch.device | str = "cpu") -> SparseOperator:
    """Return an operator that selects rows; its gradient is many times faster than that of `index_select`.

    Args:
        rows: [R] int64 numbers of the rows to select.
        size: number of rows to select from.
        device: device of the products.

    Returns:
        [R, size] operator.
    """
    parts = (np.ones(len(rows), dtype=np.float32), rows, np.arange(len(rows) + 1))
    return SparseOperator(sp.csr_matrix(parts, shape=(len(rows), size)), device)


def client_means(
    ptr: np.ndarray | list[int], device: torch.device | str = "cpu", sizes: np.ndarray | None = None
) -> SparseOperator:
    """Return an operator that averages the rows of each client.

    Args:
        ptr: [S + 1] boundaries of the rows by client.
        device: device of the products.
        sizes: [S] numbers to divide the sums by; None for the number of rows of each client.

    Returns:
        [S, rows] operator, whose row s sums the rows ptr[s]:ptr[s + 1] and divides by their number or `sizes[s]`, but
        at least by 1.
    """
    counts = np.diff(ptr)
    shares = (1.0 / np.maximum(counts if sizes is None else sizes, 1)).astype(np.float32)
    parts = (np.repeat(shares, counts), np.arange(ptr[-1]), ptr)
    return SparseOperator(sp.csr_matrix(parts, shape=(len(counts), ptr[-1])), device)


def product(matrix: Tensor, dense: Tensor) -> Tensor:
    """Multiply a sparse CSR tensor by a dense tensor, outside autograd.

    Args:
        matrix: [rows, columns] sparse CSR tensor, float32.
        dense: [columns, width] float32.

    Returns:
        [rows, width] float32.
    """
    # `matrix @ dense` fills the result with zeros and copies it once more, which takes as long as the product.
    out = dense.new_empty(matrix.shape[0], dense.shape[1])
    return torch.addmm(out, matrix, dense, beta=0, out=out)


def _to_torch(matrix: sp.csr_matrix, device: torch.device | str) -> Tensor:
    index = np.int32 if max(matrix.nnz, *matrix.shape) <= _LARGEST_INT32 else np.int64
    return csr_tensor(
        torch.from_numpy(matrix.indptr.astype(index, copy=False)).to(device),
        torch.from_numpy(matrix.indices.astype(index, copy=False)).to(device),
        torch.from_numpy(matrix.data.astype(np.float32, copy=False)).to(device),
        matrix.shape,
    )


def csr_tensor(indptr: Tensor, indices: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """Return a sparse CSR tensor without a check of its parts.

    Args:
        indptr: [rows + 1] int32 or int64.
        indices: [nnz] columns, of the same dtype.
        values: [nnz] float32.
        shape: number of rows and columns.

    Returns:
        A sparse CSR tensor of this shape, on the device of its parts.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(indptr, indices, values, size=shape, check_invariants=False)


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, operator: SparseOperator) -> Tensor:
        ctx.operator = operator
        return operator.product(dense)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.operator.transposed_product(gradients[0].contiguous()), None


def stacked_linear(x: Tensor, weight: Tensor, ptr: list[int]) -> Tensor:
    """Multiply each client's rows by that client's weights.

    Args:
        x: [rows, in] float32, grouped by client.
        weight: [clients, in, out] float32.
        ptr: [clients + 1] row boundaries.

    Returns:
        [rows, out] float32.
    """
    product: Tensor = _StackedLinear.apply(x, weight, ptr)  # type: ignore[no-untyped-call]
    return product


class _StackedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ptr: list[int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.ptr = ptr
        out = x.new_empty(len(x), weight.shape[2])
        for rows, matrix, result in zip(_split(x, ptr), weight.unbind(), _split(out, ptr), strict=True):
            torch.mm(rows, matrix, out=result)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        to_x = to_weight = None
        by_client = _split(gradients[0], ctx.ptr)
        if ctx.needs_input_grad[0]:
            to_x = torch.empty_like(x)
            for gradient, matrix, result in zip(by_client, weight.mT.unbind(), _split(to_x, ctx.ptr), strict=True):
                torch.mm(gradient, matrix, out=result)
        if ctx.needs_input_grad[1]:
            to_weight = torch.empty_like(weight)
            for gradient, columns, result in zip(by_client, _split(x, ctx.ptr), to_weight.unbind(), strict=True):
                torch.mm(columns.T, gradient, out=result)
        return to_x, to_weight, None


def stacked_bias(x: Tensor, bias: Tensor, ptr: list[int]) -> Tensor:
    """Add each client's bias to its rows.

    Args:
        x: [rows, out] float32, grouped by client.
        bias: [clients, out] float32.
        ptr: [clients + 1] row boundaries.

    Returns:
        [rows, out] float32.
    """
    out: Tensor = _StackedBias.apply(x, bias, ptr)  # type: ignore[no-untyped-call]
    return out


class _StackedBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, ptr: list[int]) -> Tensor:
        ctx.ptr = ptr
        out = torch.empty_like(x)
        for rows, vector, result in zip(_split(x, ptr), bias.unbind(), _split(out, ptr), strict=True):
            torch.add(rows, vector, out=result)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        gradient = gradients[0]
        to_bias = gradient.new_empty(len(ctx.ptr) - 1, gradient.shape[1])
        for rows, result in zip(_split(gradient, ctx.ptr), to_bias.unbind(), strict=True):
            torch.sum(rows, dim=0, out=result)
        return gradient, to_bias, None


def _split(rows: Tensor, ptr: list[int]) -> tuple[Tensor, ...]:
    """Return each client's rows as a view."""
    return rows.tensor_split(ptr[1:-1])


class ClientDropout:
    """Dropout and noise of training passes, drawn from the random stream of each client.

    Since every client has its own stream, neither chunks nor other clients change its draws. Masks are drawn as 16-bit
    integers, which is several times faster on a CPU than Bernoulli variates. This rounds the rate to a multiple of
    2^-16.

    Args:
        rate: probability of dropping an entry, in [0, 1).
        generators: one random stream for each client of the batch, in the order of the batch.

    Attributes:
        training: True, since the pass belongs to a training step.
    """

    training = True

    def __init__(self, rate: float, generators: list[torch.Generator]):
        self._rate = rate
        self._generators = generators

    def seeds(self) -> list[int]:
        """Draw a seed from each client's stream, for modules that draw random numbers themselves.

        Returns:
            Integers in [0, 2^62), one for each client.
        """
        return [int(torch.randint(2**62, (), generator=each, device=each.device)) for each in self._generators]

    def normal(self, width: int, ptr: list[int]) -> Tensor:
        """Draw standard normal variates, the rows of each client from its own stream.

        Args:
            width: number of columns.
            ptr: [S + 1] row boundaries by client.

        Returns:
            [ptr[-1], width] float32.
        """
        drawn = torch.empty(ptr[-1], width, device=self._generators[0].device)
        for generator, start, stop in zip(self._generators, ptr, ptr[1:], strict=False):
            drawn[start:stop].normal_(generator=generator)
        return drawn

    def __call__(self, x: Tensor, ptr: list[int]) -> Tensor:
        """Apply dropout to rows that are grouped by client.

        Args:
            x: [rows, width] float32.
            ptr: [S + 1] row boundaries by client.

        Returns:
            [rows, width] float32; kept entries are scaled by 1 / (1 - rate).
        """
        if self._rate == 0.0:
            return x
        bits = torch.empty(len(x), -(-x.shape[1] // 4), dtype=torch.int64, device=x.device)
        for generator, start, stop in zip(self._generators, ptr, ptr[1:], strict=False):
            bits[start:stop].random_(-(2**63), None, generator=generator)
        first_kept = round(self._rate * 2**16) - 2**15
        # 1 for integers of at least `first_kept`, else 0; a comparison takes three times as long on a CPU.
        kept = bits.view(torch.int16)[:, : x.shape[1]].to(x.dtype).sub_(first_kept - 1).clamp_(0, 1)
        return x * kept.mul_(1.0 / (1.0 - self._rate))


class NoDropout:
    """Dropout of evaluation passes: the identity.

    Attributes:
        training: False, since the pass belongs to an evaluation.
    """

    training = False

    def seeds(self) -> list[int]:
        """Return no seeds, because evaluation draws no random numbers.

        Returns:
            An empty list.
        """
        return []

    def __call__(self, x: Tensor, ptr: list[int]) -> Tensor:
        return x


no_dropout = NoDropout()
