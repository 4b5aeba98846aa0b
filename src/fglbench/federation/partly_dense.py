"""Feature matrices with both dense and sparse rows, which arise when a method generates nodes (FedSage+)."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from fglbench.federation.operators import SparseOperator, stacked_linear


@dataclass(frozen=True)
class PartlyDense:
    """A [rows, num_features] float32 matrix with both dense and sparse rows.

    Attributes:
        sparse: [rows, num_features] CSR, without entries in the dense rows.
        dense: [D, num_features] the dense rows.
        dense_index: [D] ascending numbers of the dense rows.
    """

    sparse: sp.csr_matrix
    dense: np.ndarray
    dense_index: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        rows, columns = self.sparse.shape
        return int(rows), int(columns)

    def __getitem__(self, rows: np.ndarray) -> "PartlyDense":
        """Select rows by their ascending numbers."""
        kept = np.isin(self.dense_index, rows)
        return PartlyDense(self.sparse[rows], self.dense[kept], np.searchsorted(rows, self.dense_index[kept]))

    def propagated(self, operator: sp.csr_matrix) -> "PartlyDense":
        """Compute operator @ self.

        Args:
            operator: [rows, rows] float32 CSR.

        Returns:
            [rows, num_features], in which each row that reads a dense row is dense.
        """
        from_dense = operator[:, self.dense_index]
        dense_index = np.flatnonzero(np.diff(from_dense.indptr))
        product = (operator @ self.sparse).tocsr()
        dense = product[dense_index].toarray() + from_dense[dense_index] @ self.dense
        kept = np.ones(product.shape[0], dtype=np.float32)
        kept[dense_index] = 0
        rest = (sp.diags(kept) @ product).tocsr()
        rest.eliminate_zeros()
        return PartlyDense(rest, dense, dense_index)

    def toarray(self) -> np.ndarray:
        """Return the matrix as a dense array.

        Returns:
            [rows, num_features] float32.
        """
        filled: np.ndarray = self.sparse.toarray()
        filled[self.dense_index] = self.dense
        return filled


@dataclass(frozen=True)
class PartlyDenseRows:
    """Rows of a partly dense matrix, grouped by client, in a form that multiplies stacked weights.

    Attributes:
        sparse: [rows, S * num_features] operator, columns offset by client, without entries in the dense rows.
        dense: [D, num_features] the dense rows; they receive a gradient if they require one.
        ptr: [S + 1] boundaries of the dense rows by client.
        scatter: [rows, D] operator that moves the dense rows to their positions.
    """

    sparse: SparseOperator
    dense: Tensor
    ptr: list[int]
    scatter: SparseOperator

    @classmethod
    def of(cls, sparse: SparseOperator, dense: Tensor, dense_index: np.ndarray, ptr: list[int]) -> "PartlyDenseRows":
        """Combine sparse and dense rows.

        Args:
            sparse: [rows, S * num_features] operator, columns offset by client, without entries in the dense rows.
            dense: [D, num_features] float32, the dense rows.
            dense_index: [D] ascending numbers of the dense rows.
            ptr: [S + 1] boundaries of all rows by client.

        Returns:
            The combined rows, ready for `times`.
        """
        parts = (np.ones(len(dense_index), dtype=np.float32), (dense_index, np.arange(len(dense_index))))
        scatter = sp.csr_matrix(parts, shape=(sparse.shape[0], len(dense_index)))
        return cls(sparse, dense, np.searchsorted(dense_index, ptr).tolist(), SparseOperator(scatter, dense.device))

    def times(self, weight: Tensor) -> Tensor:
        """Multiply each client's rows by that client's weights.

        Args:
            weight: [S, num_features, out] float32.

        Returns:
            [rows, out] float32.
        """
        return self.sparse @ weight.flatten(0, 1) + self.scatter @ stacked_linear(self.dense, weight, self.ptr)
