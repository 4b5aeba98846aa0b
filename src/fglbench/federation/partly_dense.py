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
        places: [D] ascending numbers of the dense rows.
    """

    sparse: sp.csr_matrix
    dense: np.ndarray
    places: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and columns."""
        rows, columns = self.sparse.shape
        return int(rows), int(columns)

    def __getitem__(self, rows: np.ndarray) -> "PartlyDense":
        """Select rows by their ascending numbers."""
        kept = np.isin(self.places, rows)
        return PartlyDense(self.sparse[rows], self.dense[kept], np.searchsorted(rows, self.places[kept]))

    def propagated(self, operator: sp.csr_matrix) -> "PartlyDense":
        """Compute operator @ self.

        Args:
            operator: [rows, rows] float32 CSR.

        Returns:
            [rows, num_features], in which each row that reads a dense row is dense.
        """
        from_dense = operator[:, self.places]
        places = np.flatnonzero(np.diff(from_dense.indptr))
        product = (operator @ self.sparse).tocsr()
        dense = product[places].toarray() + from_dense[places] @ self.dense
        kept = np.ones(product.shape[0], dtype=np.float32)
        kept[places] = 0
        rest = (sp.diags(kept) @ product).tocsr()
        rest.eliminate_zeros()
        return PartlyDense(rest, dense, places)

    def toarray(self) -> np.ndarray:
        """Return the matrix as a dense array.

        Returns:
            [rows, num_features] float32.
        """
        filled: np.ndarray = self.sparse.toarray()
        filled[self.places] = self.dense
        return filled


@dataclass(frozen=True)
class PartlyDenseRows:
    """Rows of a partly dense matrix, grouped by client, in a form that multiplies stacked weights.

    Attributes:
        sparse: [rows, S * num_features] operator, columns offset by client, without entries in the dense rows.
        dense: [D, num_features] the dense rows; they receive a gradient if they require one.
        ptr: [S + 1] boundaries of the dense rows by client.
        place: [rows, D] operator that moves the dense rows to their positions.
    """

    sparse: SparseOperator
    dense: Tensor
    ptr: list[int]
    place: SparseOperator

    @classmethod
    def of(cls, sparse: SparseOperator, dense: Tensor, places: np.ndarray, ptr: list[int]) -> "PartlyDenseRows":
        """Combine sparse and dense rows.

        Args:
            sparse: [rows, S * num_features] operator, columns offset by client, without entries in the dense rows.
            dense: [D, num_features] float32, the dense rows.
            places: [D] ascending numbers of the dense rows.
            ptr: [S + 1] boundaries of all rows by client.

        Returns:
            The combined rows, ready for `times`.
        """
        parts = (np.ones(len(places), dtype=np.float32), (places, np.arange(len(places))))
        place = sp.csr_matrix(parts, shape=(sparse.shape[0], len(places)))
        return cls(sparse, dense, np.searchsorted(places, ptr).tolist(), SparseOperator(place, dense.device))

    def times(self, weight: Tensor) -> Tensor:
        """Multiply each client's rows by that client's weights.

        Args:
            weight: [S, num_features, out] float32.

        Returns:
            [rows, out] float32.
        """
        return self.sparse @ weight.flatten(0, 1) + self.place @ stacked_linear(self.dense, weight, self.ptr)
